"use strict";
/* Asks the server: a request, the passes of a streamed answer, and errors as one sentence. */

const byId = (id) => document.getElementById(id);
const make = (tag, className, text = "") => Object.assign(document.createElement(tag), { className, textContent: text });
const MODEL = "model";  // the source of tokens that nobody drafted

/* Ask for a streamed answer; `wishes` are words of the header x-draftwood. */
async function ask(body, wishes, signal) {
  const headers = { "Content-Type": "application/json", "x-draftwood": wishes, ...keyHeaders() };
  const asked = JSON.stringify({ ...body, ...modelWanted(), stream: true, stream_options: { include_usage: true } });
  const response = await fetch("v1/chat/completions", { method: "POST", headers, body: asked, signal });
  if (response.status === 401) askForKey();
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  const said = await response.json().catch(() => null);
  const { message, code } = (said && said.error) || {};
  const told = message || "The server answered with status " + response.status;
  return Object.assign(new Error(told), { status: response.status, code });
}

async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts) if (line.startsWith("data: ")) yield line.slice(6);
  }
}

/* Yield what each pass of an answer adds, as it comes, with the server's seconds of all passes so far: the browser's
   clock would count its own painting, too. `ended` is called with the finish reason, `told`, behind the pass that it
   comes from, with what is new in the answer and in what the model thinks, and `used` at the end with the usage. */
async function* passes(response, ended = () => {}, told = () => {}, used = () => {}) {
  let seconds = 0;
  for await (const line of lines(response)) {
    if (line === "[DONE]") return;
    const chunk = JSON.parse(line);
    if (chunk.error) throw Object.assign(new Error(chunk.error.message), { code: chunk.error.code });
    const reason = chunk.choices?.[0]?.finish_reason;
    if (reason) ended(reason);
    seconds += (chunk.draftwood?.step?.ms || 0) / 1000;
    if (chunk.draftwood) yield { seconds, ...chunk.draftwood };
    told(chunk.choices?.[0]?.delta || {});
    if (chunk.usage) used(chunk.usage);
  }
  throw new Error("The connection ended before the answer did.");
}

/* Return an error as a sentence for the reader of the page. */
function sentence(error) {
  if (error instanceof TypeError) return "The server cannot be reached. Is it still running?";
  if (error.status === 401) return "This server asks for an API key: enter the right one, then try again.";
  if (error.status === 429) return "The model is busy with other texts: try again in a moment.";
  if (error.code === "context_length_exceeded") {
    return "This chat is longer than the model can read: shorten the question, or start a new chat.";
  }
  return error.message.replace(/^[a-z]/, (letter) => letter.toUpperCase());
}

/* What the server says of itself; empty where it cannot be asked. */
const about = fetch("health").then((answer) => answer.json()).catch(() => ({}));
