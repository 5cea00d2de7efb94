/* Answers that are being written: at most one in each chat; each goes on whichever chat is shown. */

const writing = new Map();  // by the chat's id: the turn (null until it is known), and the control that ends it
let isLeaving = false;  // whether the page is being closed, which ends its requests
const SAVED_EVERY = 1000;  // milliseconds between two savings of an answer that grows
const LEAST_PASSES = 8;  // passes without drafts that it takes to say how fast plain decoding is

function bodyOf(chat, turn, seed) {
  const before = chat.turns.slice(0, chat.turns.indexOf(turn));
  const messages = before.flatMap(({ question, answer }) => (answer?.text
    ? [{ role: "user", content: question }, said(answer)] : []));  // roles take turns
  if (settings.system.trim()) messages.unshift({ role: "system", content: settings.system });
  messages.push({ role: "user", content: turn.question });
  const draft = draftersWanted();
  return {
    messages, seed, temperature: settings.temperature, max_tokens: settings.limit,
    ...(draft === true ? {} : { draftwood: { draft } }),
  };
}

/* Return an answer as a message; the chat template decides what becomes of its thoughts. */
function said({ text, begins, thought }) {
  return { role: "assistant", content: text.slice(begins), ...(thought ? { reasoning_content: thought } : {}) };
}

const newSeed = () => (settings.seed === "" ? crypto.getRandomValues(new Uint32Array(1))[0] : Number(settings.seed));

/* Write a turn of a chat, unless this or another tab writes in it. `pick` returns the turn, or null: none is written.
   `changed(turn, isBegun)` is called when there is more to show, with null until the turn is known. Returns false where
   another tab writes. */
async function writeTurn(chat, pick, changed) {
  if (writing.has(chat.id)) return true;
  const work = { turn: null, control: new AbortController() };
  writing.set(chat.id, work);
  changed(null);
  try {
    return await aloneIn(chat, async () => {
      work.turn = pick();
      if (work.turn) await writeAnswer(chat, work, (isBegun) => changed(work.turn, isBegun));
    });
  } finally {
    writing.delete(chat.id);  // once no lock is held, so that the next turn gets one
    changed(work.turn);
  }
}

async function writeAnswer(chat, { turn, control }, changed) {
  const answer = turn.answer = { ...newAnswer(newSeed()), limit: settings.limit };
  turn.error = "";
  chat.touched = Date.now();
  chats.set(chat.id, chat);
  saveChat(chat, turn);
  changed(true);
  let saved = performance.now();
  try {
    const response = await ask(bodyOf(chat, turn, answer.seed), "trace", control.signal);
    for await (const event of passes(response, (reason) => { answer.ended = reason; }, thoughtsOf(answer), readOf(answer))) {
      takePass(answer, event);
      if (performance.now() - saved > SAVED_EVERY) { saveChat(chat, turn); saved = performance.now(); }
      changed();
    }
    answer.ended ||= "stop";
    turn.before = null;
  } catch (error) {
    if (isLeaving) { answer.ended = ""; return; }  // what is there stays, and the next page says that it is not whole
    answer.ended = "stopped";
    if (error.name !== "AbortError") { turn.error = sentence(error); answer.ended = "error"; }
    if (!answer.text) withdraw(chat, turn);
  } finally {
    saveChat(chat, turn);
  }
}

/* No word of an answer came: restore the turn as it was before, and put an edited question back into the field. */
function withdraw(chat, turn) {
  const typed = turn.question;
  turn.answer = null;
  if (turn.before) putBack(turn);
  else turn.error ||= "Stopped before the first word.";
  if (typed !== turn.question) giveBack(chat, turn, typed);
}

function putBack(turn) { Object.assign(turn, turn.before, { before: null }); }

/* Speeds are from the server's times of this answer's own passes: the browser's clock would count the network, too. */
function takePass(answer, { pieces, tokens, step, busy }) {
  for (const { text, source } of pieces) {
    const last = answer.runs.at(-1);
    answer.text += text;
    if (last && last[0] === source) last[1] += text.length;
    else if (text) answer.runs.push([source, text.length]);
  }
  answer.tokens = tokens;
  answer.busy ||= busy || "";
  if (!step) return;
  answer.passes++;
  answer.drafted += step.drafted;
  answer.seconds += step.ms / 1000;
  if (step.drafted) return;
  answer.plainPasses++;
  answer.plainSeconds += step.ms / 1000;
}

/* Return what keeps thoughts, and where the answer begins in the text: behind them and the tags that mark them. */
function thoughtsOf(answer) {
  let hasBegun = false;
  return ({ reasoning_content: thought = "", content = "" }) => {
    answer.thought += thought;
    if (!hasBegun) answer.begins = answer.text.length - content.length;
    hasBegun ||= Boolean(content);
  };
}

/* Return what keeps how much of the prompt there was, and how much of it had been read before. */
function readOf(answer) {
  return ({ prompt_tokens: prompt, prompt_tokens_details: { cached_tokens: cached } }) => Object.assign(answer, { prompt, cached });
}

function stopWriting(chat) {
  writing.get(chat.id)?.control.abort();
}

/* Return a function that says who proposed the letter at a place of an answer behind its thoughts; fast if asked in
   rising order. */
function sourcesOf({ runs, begins }) {
  const ends = [];
  for (const [, letters] of runs) ends.push((ends.at(-1) || 0) + letters);
  let at = 0;
  return (behind) => {
    const place = begins + behind;
    if (at > 0 && place < ends[at - 1]) at = 0;
    while (at < ends.length && place >= ends[at]) at++;
    return at < runs.length ? runs[at][0] : MODEL;
  };
}
