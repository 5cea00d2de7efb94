/* Answers that are being written: as many at a time as there are chats; each goes on whichever chat is looked at. */

const writing = new Map();  // by the chat's id, what ends its answer
let isLeaving = false;  // whether the page is being closed, which ends its requests
const SAVED_EVERY = 1000;  // milliseconds between two savings of an answer that grows
const PLAIN_TOKENS = 48;  // of an answer that is written again without drafts, to know how fast that is
const LEAST_PASSES = 8;  // without drafts, from which on their median says how fast plain decoding is

function bodyOf(chat, turn, seed) {
  const before = chat.turns.slice(0, chat.turns.indexOf(turn));
  const messages = before.flatMap(({ question, answer }) => [
    { role: "user", content: question }, ...(answer?.text ? [{ role: "assistant", content: answer.text }] : []),
  ]);
  if (settings.system.trim()) messages.unshift({ role: "system", content: settings.system });
  messages.push({ role: "user", content: turn.question });
  const draft = draftersWanted();
  return {
    messages, seed, temperature: settings.temperature, max_tokens: settings.limit,
    ...(draft === true ? {} : { draftwood: { draft } }),
  };
}

const newSeed = () => (settings.seed === "" ? crypto.getRandomValues(new Uint32Array(1))[0] : Number(settings.seed));

/* Write the answer of a turn; `changed` is called whenever there is more to show. Never fails. */
async function writeAnswer(chat, turn, changed) {
  const before = turn.answer, control = new AbortController(), plain = [];
  const answer = turn.answer = newAnswer(newSeed());
  turn.error = "";
  writing.set(chat.id, control);
  saveChat(chat);
  changed();
  let saved = performance.now();
  try {
    const response = await ask(bodyOf(chat, turn, answer.seed), "trace", control.signal);
    for await (const event of passes(response, (reason) => { answer.ended = reason; })) {
      takePass(answer, event, plain);
      if (performance.now() - saved > SAVED_EVERY) { saveChat(chat); saved = performance.now(); }
      changed();
    }
    answer.ended ||= "stop";
  } catch (error) {
    answer.ended = isLeaving ? "" : "stopped";
    if (isLeaving) return;  // what is there stays, and the next page says that it is not whole
    if (error.name !== "AbortError") { turn.error = sentence(error); answer.ended = "error"; }
    if (!answer.text) turn.answer = before;
    if (!answer.text && !before && !turn.error) turn.error = "Stopped before the first word.";
  } finally {
    writing.delete(chat.id);
    saveChat(chat);
    changed();
  }
}

function takePass(answer, { pieces, tokens, seconds, step }, plain) {
  for (const { text, source } of pieces) {
    const last = answer.runs.at(-1);
    answer.text += text;
    if (last && last[0] === source) last[1] += text.length;
    else answer.runs.push([source, text.length]);
  }
  answer.tokens = tokens;
  answer.seconds = seconds;
  if (!step) return;
  answer.passes++;
  if (step.drafted === 0) plain.push(step.ms);
  if (plain.length < LEAST_PASSES) return;
  const middle = [...plain].sort((a, b) => a - b)[plain.length >> 1];
  answer.plain = { rate: 1000 / middle, from: `${plain.length} passes of this answer that checked no draft` };
}

function stopWriting(chat) {
  writing.get(chat.id)?.abort();
}

/* Write the beginning of an answer again without drafts, and note how fast that was; returns an error's sentence. */
async function measurePlain(chat, turn) {
  const { answer } = turn;
  let last = { tokens: 0, seconds: 0 };
  try {
    const body = { ...bodyOf(chat, turn, answer.seed), max_tokens: Math.min(PLAIN_TOKENS, answer.tokens) };
    for await (const event of passes(await ask(body, "trace, plain"))) last = event;
  } catch (error) {
    return sentence(error);
  }
  if (last.tokens < 2) return "The answer is one token: there is nothing to compare.";
  const from = `its first ${last.tokens} tokens, just written again without drafts`;
  answer.plain = { rate: (last.tokens - 1) / last.seconds, from };
  saveChat(chat);
  return "";
}

/* Return a function from a place in an answer to who proposed the letter there; places are asked in rising order. */
function sourcesOf({ runs }) {
  const ends = [];
  for (const [, letters] of runs) ends.push((ends.at(-1) || 0) + letters);
  let at = 0;
  return (place) => {
    if (at > 0 && place < ends[at - 1]) at = 0;
    while (at < ends.length && place >= ends[at]) at++;
    return at < runs.length ? runs[at][0] : MODEL;
  };
}
