/* The chat on the screen: the list of chats, and the turns of one of them. */

const NEAR_END = 48;  // pixels from its end within which a text is followed as it grows
let current = newChat();
let undone = null;  // the chat that was deleted last
let isFollowed = true;  // whether the end of the turns was in sight when they were scrolled last
const nodes = new Map();  // of the current chat's turns
const dirty = new Set();  // turns that have changed since they were drawn
const isWritten = (chat, turn) => writing.has(chat.id) && turn === writing.get(chat.id).turn;

/* ---- Which chat ---- */

function openChat(chat) {
  keepDraft();
  current = chat;
  nodes.clear();
  byId("turns").replaceChildren();
  byId("spoken").replaceChildren();
  setEditing(null);
  showUnkept();
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
  const focused = byId("chat-list").contains(document.activeElement) ? document.activeElement : null;
  byId("chat-list").drawn = key;
  byId("chat-list").replaceChildren(...list.map(listItem));
  const again = focused && [...byId("chat-list").children].find(({ chat }) => chat === focused.parentNode.chat);
  again?.querySelector("." + focused.className).focus();  // a new button stands for the one that had the focus
}

function listItem(chat) {
  const item = make("li", ""), open = make("button", "title", titleOf(chat)), remove = make("button", "quiet", "✕");
  open.type = remove.type = "button";
  if (chat === current) open.setAttribute("aria-current", "true");
  if (writing.has(chat.id)) open.append(make("span", "dot", " is being written"));
  remove.setAttribute("aria-label", "Delete the chat: " + titleOf(chat));
  item.chat = chat;
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

/* ---- Drawing ---- */

/* Draw a turn soon, once for many passes. What takes long to draw, as long texts do, is drawn less often. */
function later(turn) {
  if (!dirty.size) setTimeout(() => requestAnimationFrame(drawDirty), 4 * drawDirty.took || 0);
  dirty.add(turn);
}

function drawDirty() {
  const start = performance.now(), turns = [...dirty];
  dirty.clear();
  draw(turns);
  drawDirty.took = performance.now() - start;
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

/* The room for the turns has changed: a reader who was at the end stays there. */
function fitEnd() {
  if (isFollowed) toEnd();
  noteEnd();
}

function drawTurn(turn) {
  const parts = nodes.get(turn) || addTurn(turn), { answer } = turn, isBusy = isWritten(current, turn);
  showQuestion(parts.asked, turn.question);
  const text = answer?.text.slice(answer.begins) || "";
  showMarkdown(parts.prose, text, answer && settings.sources ? sourcesOf(answer) : null);
  parts.thought.hidden = !answer?.thought;
  if (parts.thinking.textContent !== (answer?.thought || "")) parts.thinking.textContent = answer?.thought || "";
  parts.wait.hidden = !isBusy || Boolean(answer?.text);
  parts.root.setAttribute("aria-busy", isBusy);
  parts.wrong.hidden = !turn.error;
  if (parts.why.textContent !== turn.error) parts.why.textContent = turn.error;
  parts.ending.textContent = isBusy || turn.error ? "" : endingOf(answer);
  drawSpeed(turn, parts.speed);
  speak(turn, parts, isBusy);
}

function endingOf(answer) {
  if (answer?.ended === "length") {
    const isOurs = answer.limit > 0 && answer.tokens >= answer.limit;
    return `Ended at ${answer.tokens} tokens: ${isOurs ? "the settings say how long an answer may be" : "the server ended it"}.`;
  }
  if (answer?.ended === "stopped") return "Stopped.";
  if (answer?.ended === "stop" && !answer.text) return "The model ended the answer before its first word.";
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
  const more = button("Show all", () => unfold(asked, more)), wrong = make("p", "wrong"), why = make("span", ""), tools = make("div", "tools");
  wrong.setAttribute("role", "alert");
  const retry = button("Try again", () => rewrite(turn)), again = button("Write again", () => rewrite(turn));
  wrong.append(why, " ", retry);
  const thought = make("details", "thought"), thinking = make("div", "thinking");
  thought.append(make("summary", "", "Thoughts"), thinking);
  const copy = button("Copy answer", () => copyText(said(turn.answer).content, copy)), edit = button("Edit question", () => editQuestion(turn));
  const earlier = button("Earlier answer", () => takeBack(turn));
  tools.append(copy, again, edit, earlier);
  more.classList.add("more");
  asked.more = more;
  long.observe(asked);
  root.append(make("h3", "seen-not", "You"), asked, more, make("h3", "seen-not", "Answer"), thought, prose, wait, ending, wrong, speed, tools);
  const spoken = isWritten(current, turn) ? 0 : Infinity;
  const parts = { root, asked, thought, thinking, prose, wait, ending, wrong, why, speed, tools, copy, again, edit, earlier, retry, spoken };
  nodes.set(turn, parts);
  const next = current.turns.slice(current.turns.indexOf(turn) + 1).map((one) => nodes.get(one)?.root).find(Boolean);
  byId("turns").insertBefore(root, next ?? null);
  return parts;
}

/* A question that does not fit into its box fades out, and a button shows all of it. */
const long = new ResizeObserver((seen) => {
  for (const { target } of seen) {
    const isCut = target.scrollHeight > target.clientHeight + 1, isWhole = target.classList.contains("whole");
    target.classList.toggle("cut", isCut);
    target.more.hidden = !isCut && !isWhole;
  }
});

function unfold(asked, pressed) {
  const isWhole = asked.classList.toggle("whole");
  pressed.textContent = isWhole ? "Show less" : "Show all";
  pressed.setAttribute("aria-expanded", isWhole);
}

function button(said, act) {
  const found = make("button", "quiet", said);
  found.type = "button";
  found.addEventListener("click", act);
  return found;
}

function drawTools(turn, { tools, copy, again, edit, earlier, retry }) {
  const isLast = turn === current.turns.at(-1), isBusy = writing.has(current.id);
  tools.hidden = isBusy && isLast;
  copy.hidden = !turn.answer?.text;
  again.hidden = !isLast || Boolean(turn.error);
  retry.hidden = !isLast || isBusy;
  edit.hidden = !isLast;
  earlier.hidden = !isLast || !turn.before;
}

/* Move the focus to the message, but not on touch screens, where that would open the keyboard. */
function toMessage() {
  if (!matchMedia("(pointer: coarse)").matches) byId("message").focus({ preventScroll: true });
}

/* ---- Switches ---- */

function drawLegend() {
  const letters = new Map();
  byId("who").hidden = true;
  if (!settings.sources) return;
  for (const { answer } of current.turns) {
    for (const [source, count] of answer?.runs || []) letters.set(source, (letters.get(source) || 0) + count);
  }
  byId("who").hidden = !letters.size;
  if (!byId("who").hidden) fillLegend(byId("chat-legend"), letters, true);
}

/* Show in one line the speed, where that is asked for, and what of the prompt was not read again. */
function drawSpeed({ answer }, line) {
  line.title = "";
  const said = settings.speed && answer?.tokens > 1 && answer.seconds ? speedOf(answer, line) : [];
  if (answer?.cached) {
    said.push(`${said.length ? " · " : ""}${answer.cached} of ${answer.prompt} tokens of the prompt were known, and not read again`);
  }
  line.hidden = !said.length;
  line.replaceChildren(...said);
}

/* Return the speed as nodes; the ratio to plain only where drafts were checked, enough passes had none, and nothing else
   is known to have taken time. */
function speedOf(answer, line) {
  const speed = (answer.tokens - 1) / answer.seconds, perPass = (answer.tokens - 1) / answer.passes;
  const said = [`${speed.toFixed(1)} tokens/s · ${perPass.toFixed(2)} per pass`];
  line.title = "By the server's times, after the first token.";
  if (answer.busy) line.title += ` Not compared with plain decoding: ${answer.busy}.`;
  else if (answer.ended && answer.drafted && answer.plainPasses >= LEAST_PASSES) {
    const plain = answer.plainPasses / answer.plainSeconds;
    said.unshift(make("b", "", `${(speed / plain).toFixed(2)} times plain`), " · ");
    line.title += ` Plain: ${plain.toFixed(1)} tokens/s, from ${answer.plainPasses} passes of this answer that checked no draft.`;
  }
  return said;
}

/* ---- Copying ---- */

async function copyText(text, pressed) {
  const said = pressed.textContent;
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copyOldWay(text);
  pressed.textContent = isCopied ? "Copied" : "Could not copy";
  setTimeout(() => { pressed.textContent = said; }, 1500);
}

/* A page that came by http from another machine has no navigator.clipboard. */
function copyOldWay(text) {
  const field = Object.assign(make("textarea", "seen-not"), { value: text }), { activeElement } = document;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  activeElement?.focus();
  return isCopied;
}
