/* Chats and settings: kept in this browser alone, within bounds; without storage, until the page is closed. */

const PREFIX = "draftwood.chat.", SETTINGS = "draftwood.settings";
const MOST_CHATS = 60, MOST_LETTERS = 3_000_000;  // of JSON; older chats are deleted. Browsers keep some five million
const DEFAULTS = {
  system: "", temperature: 0.7, seed: "", limit: 512, off: [], theme: "system", sources: false, speed: false, model: "",
};

/* A turn is a question and its answer. Of two copies the one of the higher `revision` wins; `before` is the question
   and the answer that are being replaced. `runs` are pairs of a source and a number of letters, in the text's order. */
const randomId = () => crypto.getRandomValues(new Uint32Array(2)).join("-");
const newTurn = (question) => ({ id: randomId(), revision: 0, question, answer: null, error: "", before: null });
const newAnswer = (seed) => ({
  text: "", thought: "", begins: 0, runs: [], tokens: 0, passes: 0, drafted: 0, seconds: 0, plainPasses: 0, plainSeconds: 0, busy: "", seed, limit: 0, ended: "",
  prompt: 0, cached: 0,
});
const newChat = () => ({ id: randomId(), touched: 0, turns: [] });

const chats = new Map();  // by their ids
const sizes = new Map();  // letters of JSON, by the chat's id
const unkept = new Set();  // ids of chats, or SETTINGS, that the storage would not take
const drafts = new Map();  // what was typed and not sent, by `draftKey`
const draftKey = (chat) => (chat.turns.length ? chat.id : "new");
let settings = { ...DEFAULTS };

/* Storage that may be missing, forbidden or full; `get` returns null then, and `set` false. */
const storage = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, text) { try { localStorage.setItem(key, text); return true; } catch { return false; } },
  remove(key) { try { localStorage.removeItem(key); } catch { /* it was never there */ } },
  keys() { try { return Object.keys(localStorage); } catch { return []; } },
};

function parsed(text) {
  try { return JSON.parse(text); } catch { return null; }
}

/* ---- Chats ---- */

function loadChats() {
  chats.clear();
  for (const key of storage.keys()) if (key.startsWith(PREFIX)) loadChat(key);
}

/* Take a chat as it is stored, another tab may have written it; returns whether there is one. */
function loadChat(key) {
  const text = storage.get(key), id = key.slice(PREFIX.length), found = chatOf(parsed(text), id);
  if (!found) { chats.delete(id); return false; }
  if (chats.has(id)) merge(chats.get(id), found);
  else chats.set(id, found);
  sizes.set(id, text.length);
  return true;
}

/* Return what is of the pattern's types, and the pattern's own value for what is not. */
function like(pattern, found) {
  const fits = (name) => typeof found[name] === typeof pattern[name] && Array.isArray(found[name]) === Array.isArray(pattern[name]);
  return Object.fromEntries(Object.keys(pattern).map((name) => [name, fits(name) ? found[name] : pattern[name]]));
}

/* Return a stored chat with each field of its right type, whatever was stored; null where there is none. */
function chatOf(found, id) {
  if (found?.id !== id || !Array.isArray(found.turns)) return null;
  return { ...like(newChat(), found), id, turns: found.turns.filter((turn) => typeof turn?.question === "string").map(turnOf) };
}

function turnOf(found, place) {
  const before = typeof found.before?.question === "string" && answerOf(found.before.answer);
  return {
    ...like({ ...newTurn(""), id: "at-" + place }, found), answer: answerOf(found.answer),
    before: before ? { question: found.before.question, answer: before } : null,
  };
}

function answerOf(found) {
  if (typeof found?.text !== "string") return null;
  const isRun = (run) => Array.isArray(run) && typeof run[0] === "string" && run[1] > 0;
  const answer = like(newAnswer(0), found);
  return { ...answer, runs: answer.runs.every(isRun) ? answer.runs : [] };
}

/* Take up what another tab has stored of a chat: no turn is lost, and the one that is written here stays. */
function merge(chat, found) {
  const left = new Map(chat.turns.map((turn) => [turn.id, turn])), mine = writing.get(chat.id)?.turn;
  const turns = found.turns.map((turn) => {
    const own = left.get(turn.id);
    left.delete(turn.id);
    return !own || own === mine || own.revision >= turn.revision ? own || turn : Object.assign(own, turn);
  });
  chat.turns = [...turns, ...left.values()];
  chat.touched = Math.max(chat.touched, found.touched);
}

/* Bring a chat up to what is stored of it. */
function refresh(chat) {
  const found = chatOf(parsed(storage.get(PREFIX + chat.id)), chat.id);
  if (found) merge(chat, found);
}

/* Run `work` while no other tab writes in a chat, brought up to date; returns false where one does. */
async function aloneIn(chat, work) {
  let isBegun = false;
  const begin = async (lock) => {
    if (!lock) return false;
    isBegun = true;
    refresh(chat);
    await work();
    return true;
  };
  try {
    return await navigator.locks.request(PREFIX + chat.id, { ifAvailable: true }, begin);
  } catch (error) {
    if (isBegun) throw error;
    return begin(true);  // no locks on a page that came by http from another machine: revisions must do
  }
}

/* Save a chat, merged with what is stored of it; `turn` is the one that has changed, if one has. */
function saveChat(chat, turn) {
  if (!chats.has(chat.id)) return;  // it was deleted while it was written
  if (turn) turn.revision++;
  refresh(chat);
  const text = JSON.stringify(chat), letters = () => [...sizes.values()].reduce((a, b) => a + b, 0);
  sizes.set(chat.id, text.length);
  while ((chats.size > MOST_CHATS || letters() > MOST_LETTERS) && dropOldest(chat)) { /* until there is room */ }
  noteKept(chat.id, storage.set(PREFIX + chat.id, text));
}

function noteKept(name, isKept) {
  if (isKept) unkept.delete(name);
  else unkept.add(name);
  showUnkept();
}

function showUnkept() { byId("unkept").hidden = !unkept.has(current.id) && !unkept.has(SETTINGS); }

/* Delete the oldest chat, but not `but` and none that is being written; returns whether one was deleted. */
function dropOldest(but) {
  const oldest = sorted().findLast((chat) => chat !== but && !writing.has(chat.id));
  if (oldest) deleteChat(oldest);
  return Boolean(oldest);
}

function deleteChat(chat) {
  chats.delete(chat.id);
  sizes.delete(chat.id);
  unkept.delete(chat.id);
  storage.remove(PREFIX + chat.id);
}

const sorted = () => [...chats.values()].sort((a, b) => b.touched - a.touched);
const titleOf = ({ turns }) => (turns.length ? turns[0].question.trim().slice(0, 80) : "New chat");

/* ---- Settings ---- */

function loadSettings() {
  settings = like(DEFAULTS, parsed(storage.get(SETTINGS)) || {});
}

function saveSettings(changed) {
  settings = { ...settings, ...changed };
  noteKept(SETTINGS, storage.set(SETTINGS, JSON.stringify(settings)));
}
