/* The chat on the screen: the list of chats, the turns of one of them, and what is sent. */

const NEAR_END = 48;  // pixels from its end within which a text is followed as it grows
let current = newChat();
let editing = null;  // the turn whose question is in the field
let undone = null;  // the chat that was deleted last
let isFollowed = true;  // whether the end of the turns was in sight when they were scrolled last
const nodes = new Map();  // of the current chat's turns
const dirty = new Set();  // turns that have changed since they were drawn
const isWritten = (chat, turn) => writing.has(chat.id) && turn === chat.turns.at(-1);

/* ---- Which chat ---- */

function openChat(chat) {
  keepDraft();
  current = chat;
  nodes.clear();
  byId("turns").replaceChildren();
  byId("spoken").replaceChildren();
  setEditing(null);
  draw(chat.turns);
  toEnd();
  try { sessionStorage.setItem("draftwood.chat", chat.id); } catch { /* then the newest one is opened */ }
}

function keepDraft() {
  if (!editing) drafts.set(draftKey(current), byId("message").value);
}

function drawList() {
  const list = sorted(), key = JSON.stringify([current.id, list.map((chat) => [chat.id, titleOf(chat), writing.has(chat.id)])]);
  if (byId("chat-list").drawn === key) return;
  byId("chat-list").drawn = key;
  byId("chat-list").replaceChildren(...list.map(listItem));
}

function listItem(chat) {
  const item = make("li", ""), open = make("button", "title", titleOf(chat)), remove = make("button", "quiet", "✕");
  open.type = remove.type = "button";
  if (chat === current) open.setAttribute("aria-current", "true");
  if (writing.has(chat.id)) open.append(make("span", "dot", " is being written"));
  remove.setAttribute("aria-label", "Delete the chat: " + titleOf(chat));
  open.addEventListener("click", () => { openChat(chat); showSide(false); });
  remove.addEventListener("click", () => removeChat(chat));
  item.append(open, remove);
  return item;
}

function removeChat(chat) {
  stopWriting(chat);
  deleteChat(chat);
  undone = chat;
  if (chat === current) openChat(newChat());
  drawList();
  byId("new-chat").focus();
  toast("The chat is deleted.", true);
}

function undo() {
  chats.set(undone.id, undone);
  saveChat(undone);
  openChat(undone);
  toast("");
}

function toast(message, canUndo = false) {
  const [said, button] = byId("toast").children;
  said.textContent = message;
  button.hidden = !canUndo;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { said.textContent = ""; button.hidden = true; }, 8000);
}

/* ---- Sending ---- */

function send() {
  const text = byId("message").value.trim();
  if (!text || writing.has(current.id)) return;
  const turn = editing || newTurn(text);
  if (!editing) drafts.delete(draftKey(current));
  if (editing) Object.assign(turn, { question: text, answer: null });
  else current.turns.push(turn);
  chats.set(current.id, current);
  setEditing(null);
  begin(current, turn);
}

function begin(chat, turn) {
  byId("spoken").replaceChildren();
  nodes.get(turn)?.root.remove();
  nodes.delete(turn);
  writeAnswer(chat, turn, () => later(turn));
  draw(chat.turns);
  toEnd();
  if (document.activeElement === document.body) byId("halt").focus();  // the pressed button is gone
}

function setEditing(turn) {
  editing = turn;
  byId("editing").hidden = !turn;
  byId("message").value = turn ? turn.question : drafts.get(draftKey(current)) || "";
  fit();
}

/* Make the field as high as what is in it. */
function fit() {
  byId("message").style.height = "auto";
  byId("message").style.height = byId("message").scrollHeight + 2 + "px";
}

/* ---- Drawing ---- */

/* Draw a turn with the next frame; many passes may come before it. */
function later(turn) {
  if (!dirty.size) requestAnimationFrame(() => { const turns = [...dirty]; dirty.clear(); draw(turns); });
  dirty.add(turn);
}

function draw(turns) {
  const follows = atEnd();
  for (const turn of turns) if (current.turns.includes(turn)) drawTurn(turn);
  for (const [turn, parts] of nodes) drawTools(turn, parts);
  const isBusy = writing.has(current.id), { activeElement } = document;
  byId("empty").hidden = current.turns.length > 0;
  byId("send").hidden = isBusy;
  byId("halt").hidden = !isBusy;
  if (activeElement === byId("halt") && !isBusy) toMessage();
  drawList();
  drawLegend();
  if (follows) toEnd();
  noteEnd();
}

function toEnd() { byId("scroll").scrollTop = byId("scroll").scrollHeight; }

function atEnd() {
  const box = byId("scroll");
  return box.scrollTop + box.clientHeight >= box.scrollHeight - NEAR_END;
}

function noteEnd() {
  isFollowed = atEnd();
  byId("to-end").hidden = isFollowed;
}

/* What stands below the turns takes more room, or less: who has read to the end still does. */
function fitEnd() {
  if (isFollowed) toEnd();
  noteEnd();
}

function drawTurn(turn) {
  const parts = nodes.get(turn) || addTurn(turn), { answer } = turn, isBusy = isWritten(current, turn);
  parts.asked.textContent = turn.question;
  showMarkdown(parts.prose, answer?.text || "", answer && settings.sources ? sourcesOf(answer) : null);
  parts.wait.hidden = !isBusy || Boolean(answer?.text);
  parts.root.setAttribute("aria-busy", isBusy);
  parts.wrong.hidden = !turn.error;
  if (parts.why.textContent !== turn.error) parts.why.textContent = turn.error;
  parts.ending.textContent = isBusy || turn.error ? "" : endingOf(answer);
  drawSpeed(turn, parts.speed, isBusy);
  speak(turn, parts, isBusy);
}

function endingOf(answer) {
  if (answer?.ended === "length") return `Ended at ${answer.tokens} tokens: the settings say how long an answer may be.`;
  if (answer?.ended === "stopped") return "Stopped.";
  return answer?.ended ? "" : "Not finished: its page was closed, or another tab is still writing it.";
}

/* Hand the finished paragraphs of a growing answer to screen readers, each once. */
function speak(turn, parts, isBusy) {
  const blocks = [...parts.prose.children], whole = isBusy ? blocks.length - 1 : blocks.length;
  for (; parts.spoken < whole; parts.spoken++) byId("spoken").append(make("p", "", blocks[parts.spoken].textContent));
}

function addTurn(turn) {
  const root = make("article", "turn"), asked = make("div", "asked"), prose = make("div", "prose");
  const wait = make("p", "wait", "The model reads …"), ending = make("p", "about ending"), speed = make("p", "about speed");
  const wrong = make("p", "wrong"), why = make("span", ""), tools = make("div", "tools");
  wrong.setAttribute("role", "alert");
  wrong.append(why, " ", button("Try again", () => begin(current, turn)));
  const copy = button("Copy", () => copyText(turn.answer.text, copy)), again = button("Write again", () => begin(current, turn));
  const edit = button("Edit question", () => { editQuestion(turn); });
  tools.append(copy, again, edit);
  root.append(make("h3", "seen-not", "You"), asked, make("h3", "seen-not", "Answer"), prose, wait, ending, wrong, speed, tools);
  const spoken = isWritten(current, turn) ? 0 : Infinity;
  const parts = { root, asked, prose, wait, ending, wrong, why, speed, tools, copy, again, edit, spoken };
  nodes.set(turn, parts);
  byId("turns").append(root);
  return parts;
}

function button(said, act) {
  const found = make("button", "quiet", said);
  found.type = "button";
  found.addEventListener("click", act);
  return found;
}

function drawTools(turn, { tools, copy, again, edit }) {
  const isLast = turn === current.turns.at(-1);
  tools.hidden = writing.has(current.id) && isLast;
  copy.hidden = !turn.answer?.text;
  again.hidden = !isLast || Boolean(turn.error);
  edit.hidden = !isLast;
}

function editQuestion(turn) {
  keepDraft();
  setEditing(turn);
  byId("message").focus();
}

/* Let the reader type; where that opens a keyboard on the screen, it is the reader who opens it. */
function toMessage() {
  if (!matchMedia("(pointer: coarse)").matches) byId("message").focus({ preventScroll: true });
}

/* ---- Switches ---- */

function drawLegend() {
  const letters = new Map();
  for (const { answer } of current.turns) {
    for (const [source, count] of answer?.runs || []) letters.set(source, (letters.get(source) || 0) + count);
  }
  byId("who").hidden = !settings.sources || !letters.size;
  if (!byId("who").hidden) fillLegend(byId("chat-legend"), letters, true);
}

function drawSpeed(turn, line, isBusy) {
  const { answer } = turn;
  line.hidden = !settings.speed || !answer || answer.tokens < 2 || !answer.seconds;
  if (line.hidden) return;
  const speed = (answer.tokens - 1) / answer.seconds, perPass = (answer.tokens - 1) / Math.max(1, answer.passes);
  const said = [`${speed.toFixed(1)} tokens per second, ${perPass.toFixed(2)} tokens in each pass. `];
  if (answer.plain) {
    said.unshift(make("b", "", `${(speed / answer.plain.rate).toFixed(2)} times plain. `));
    said.push(`Plain: ${answer.plain.rate.toFixed(1)} tokens per second, from ${answer.plain.from}. `);
  }
  if (!isBusy) said.push(button(answer.plain ? "Measure plain again" : "Measure plain", (event) => measure(turn, event.target)));
  line.replaceChildren(...said);
}

async function measure(turn, pressed) {
  pressed.disabled = true;
  pressed.textContent = "Measuring …";
  const wrong = await measurePlain(current, turn);
  draw([turn]);
  if (wrong) nodes.get(turn)?.speed.append(" " + wrong);
}

/* ---- Copying ---- */

async function copyText(text, pressed) {
  const said = pressed.textContent;
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copyOldWay(text);
  pressed.textContent = isCopied ? "Copied" : "Could not copy";
  setTimeout(() => { pressed.textContent = said; }, 1500);
}

/* Pages that did not come by https from elsewhere have no clipboard but this one. */
function copyOldWay(text) {
  const field = Object.assign(make("textarea", "seen-not"), { value: text }), { activeElement } = document;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  activeElement?.focus();
  return isCopied;
}
