/* The chats, and what the reader has set: kept in this browser alone, within bounds; without storage for this visit. */

const PREFIX = "draftwood.chat.", SETTINGS = "draftwood.settings";
const MOST_CHATS = 60, MOST_LETTERS = 3_000_000;  // of JSON; what is older goes. Browsers keep some five million
const DEFAULTS = {
  system: "", temperature: 0.7, seed: "", limit: 512, off: [], theme: "system", sources: false, speed: false,
};

/* A turn is a question and its answer. `runs` are pairs of a source and a number of letters, in the text's order. */
const newTurn = (question) => ({ question, answer: null, error: "" });
const newAnswer = (seed) => ({ text: "", runs: [], tokens: 0, passes: 0, seconds: 0, seed, ended: "", plain: null });
const newChat = () => ({ id: crypto.getRandomValues(new Uint32Array(2)).join("-"), touched: 0, turns: [] });

const chats = new Map();  // by their ids
const sizes = new Map();  // letters of JSON, by the chat's id
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
  const text = storage.get(key), found = parsed(text), id = key.slice(PREFIX.length);
  if (!isChat(found, id)) { chats.delete(id); return false; }
  chats.set(id, found);
  sizes.set(id, text.length);
  return true;
}

function isChat(found, id) {
  const isTurn = (turn) => typeof turn?.question === "string" && (turn.answer === null
    || (typeof turn.answer?.text === "string" && Array.isArray(turn.answer.runs)));
  return found?.id === id && Array.isArray(found.turns) && found.turns.every(isTurn);
}

function saveChat(chat) {
  if (!chats.has(chat.id)) return;  // it was deleted while it was written
  chat.touched = Date.now();
  const text = JSON.stringify(chat), letters = () => [...sizes.values()].reduce((a, b) => a + b, 0);
  sizes.set(chat.id, text.length);
  while ((chats.size > MOST_CHATS || letters() > MOST_LETTERS) && dropOldest(chat)) { /* until there is room */ }
  byId("unkept").hidden = storage.set(PREFIX + chat.id, text);
}

/* Let the oldest chat go, unless it is this one or is being written; returns whether one went. */
function dropOldest(but) {
  const oldest = sorted().findLast((chat) => chat !== but && !writing.has(chat.id));
  if (oldest) deleteChat(oldest);
  return Boolean(oldest);
}

function deleteChat(chat) {
  chats.delete(chat.id);
  sizes.delete(chat.id);
  storage.remove(PREFIX + chat.id);
}

const sorted = () => [...chats.values()].sort((a, b) => b.touched - a.touched);
const titleOf = ({ turns }) => (turns.length ? turns[0].question.trim().slice(0, 80) : "New chat");

/* ---- Settings ---- */

function loadSettings() {
  const found = parsed(storage.get(SETTINGS)) || {};
  const fits = (name) => typeof found[name] === typeof DEFAULTS[name] && Array.isArray(found[name]) === Array.isArray(DEFAULTS[name]);
  settings = Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, fits(name) ? found[name] : DEFAULTS[name]]));
}

function saveSettings(changed) {
  settings = { ...settings, ...changed };
  byId("unkept").hidden = storage.set(SETTINGS, JSON.stringify(settings));
}
