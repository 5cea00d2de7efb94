/* What is sent: a new question, one that was edited, or an answer that is to be written again. */

let editing = null;  // the turn whose question is in the field
let editedFrom = "";  // that question as it was

function send() {
  const text = byId("message").value.trim(), chat = current, edited = editing;
  if (!text) return;
  begin(chat, () => {
    if (edited && isStale()) { dropEdit(); return null; }
    const turn = edited || newTurn(text), last = chat.turns.at(-1);
    if (!edited) drafts.delete(draftKey(chat));
    if (edited) keepBefore(turn);
    else if (last) last.before = null;
    turn.question = text;
    if (!edited) chat.turns.push(turn);
    if (chat === current) setEditing(null);
    return turn;
  });
}

function rewrite(turn) {
  const chat = current;
  begin(chat, () => {
    if (turn !== chat.turns.at(-1)) return null;  // another tab has gone on
    keepBefore(turn);
    return turn;
  });
}

/* Restore the question and the answer that an unfinished new one has replaced. */
function takeBack(turn) {
  putBack(turn);
  turn.error = "";
  saveChat(current, turn);
  draw([turn]);
  toMessage();
}

/* Keep what a new answer replaces until that is finished; a second attempt keeps what the first one kept. */
function keepBefore(turn) {
  turn.before ||= turn.answer?.text ? { question: turn.question, answer: turn.answer } : null;
}

/* Write the turn that `pick` returns, as `writeTurn` does. */
async function begin(chat, pick) {
  const isAlone = await writeTurn(chat, pick, (turn, isBegun) => {
    if (isBegun && chat === current) restart(turn);
    else if (turn) later(turn);
    else draw(current.turns);
  });
  if (!isAlone) toast("Another tab is writing in this chat: wait until it has ended, then try again.");
}

/* Draw a turn anew, as one that is being written. */
function restart(turn) {
  byId("spoken").replaceChildren();
  nodes.get(turn)?.root.remove();
  nodes.delete(turn);
  draw(current.turns);
  toEnd();
  if (document.activeElement === document.body) byId("halt").focus();  // the pressed button is gone
}

function setEditing(turn) {
  editing = turn;
  editedFrom = turn?.question;
  byId("editing").hidden = !turn;
  byId("message").value = turn ? turn.question : drafts.get(draftKey(current)) || "";
  fit();
}

const isStale = () => editing !== current.turns.at(-1) || editing.question !== editedFrom;

/* Another tab has gone on: what was an edit becomes a message that is not sent yet. */
function dropEdit() {
  drafts.set(draftKey(current), byId("message").value);
  setEditing(null);
  toast("Another tab has gone on in this chat. Your text is still in the field, as a new message.");
}

/* Let the reader change a question whose answer did not come. */
function giveBack(chat, turn, typed) {
  if (chat !== current || byId("message").value) { drafts.set(draftKey(chat), drafts.get(draftKey(chat)) || typed); return; }
  setEditing(turn);
  byId("message").value = typed;
  fit();
}

/* Make the field as high as what is in it. */
function fit() {
  byId("message").style.height = "auto";
  byId("message").style.height = byId("message").scrollHeight + 2 + "px";
}

function editQuestion(turn) {
  keepDraft();
  setEditing(turn);
  byId("message").focus();
}
