/* Settings, tabs, keys, and what happens when the page is opened. */

/* ---- Settings ---- */

const FIELDS = { system: "set-system", temperature: "set-temperature", limit: "set-limit", seed: "set-seed", theme: "set-theme" };
let served = [];  // drafters of the server that draft in any chat

/* What the field draftwood.draft of a request says. */
function draftersWanted() {
  const on = served.filter((name) => !settings.off.includes(name));
  return on.length === served.length || (on.length > 0 && on);
}

function showSettings() {
  for (const [name, id] of Object.entries(FIELDS)) byId(id).value = settings[name];
  for (const box of byId("set-drafters").querySelectorAll("input")) box.checked = !settings.off.includes(box.value);
  byId("delete-all").textContent = "Delete all chats";
  followTemperature();
}

function takeField(name) {
  const field = byId(FIELDS[name]), isNumber = typeof DEFAULTS[name] === "number";
  if (!field.checkValidity()) return;  // the field shows it, and what was set before holds
  saveSettings({ [name]: isNumber ? Number(field.value) : field.value });
  if (name === "theme") useTheme();
  if (name === "temperature") followTemperature();
}

function followTemperature() { valueOf(byId("set-temperature")).textContent = byId("set-temperature").value; }

function useTheme() {
  document.documentElement.dataset.theme = settings.theme;
}

function offerDrafters(names) {
  served = names.filter((name) => !["prediction", "grammar"].includes(name));
  for (const name of served) {
    const label = make("label", "switch"), box = Object.assign(make("input", ""), { type: "checkbox", value: name });
    const off = () => served.filter((one) => !byId("set-drafters").querySelector(`[value="${CSS.escape(one)}"]`).checked);
    box.checked = !settings.off.includes(name);
    box.addEventListener("change", () => saveSettings({ off: off() }));
    label.append(box, ` ${name}: ${EXPLAINED[name] || "drafts for this model"}`);
    byId("set-drafters").append(label);
  }
  byId("set-drafters").hidden = !served.length;
}

function deleteAll(event) {
  if (event.target.textContent === "Delete all chats") {
    event.target.textContent = chats.size ? `Really delete ${chats.size}?` : "There are none";
    return;
  }
  for (const chat of chats.values()) { stopWriting(chat); deleteChat(chat); }
  openChat(newChat());
  byId("settings").close();
  toast("All chats are deleted.");
}

/* ---- Tabs, the list on narrow screens, keys ---- */

function showTab(name) {
  for (const one of ["chat", "race"]) {
    const isShown = one === name, tab = byId("tab-" + one);
    byId(one).hidden = !isShown;
    tab.setAttribute("aria-selected", isShown);
    tab.tabIndex = isShown ? 0 : -1;
  }
  document.body.dataset.tab = name;
  history.replaceState(null, "", name === "race" ? "#race" : location.pathname + location.search);
  if (name === "chat") { fit(); fitEnd(); }
}

function showSide(on) {
  if (!on && byId("side").contains(document.activeElement)) byId("open-side").focus();
  byId("side").classList.toggle("open", on);
  byId("shade").hidden = !on;
  byId("talk").inert = on;
  byId("open-side").setAttribute("aria-expanded", on);
  if (on) byId("new-chat").focus();
}

function otherTab() {
  const name = byId("chat").hidden ? "chat" : "race";
  showTab(name);
  byId("tab-" + name).focus();
}

function chatKey(event) {
  if (event.key !== "Escape" || byId("chat").hidden || byId("settings").open) return;
  if (byId("side").classList.contains("open")) { showSide(false); byId("open-side").focus(); }
  else if (editing) setEditing(null);
  else stopWriting(current);
}

function messageKey(event) {
  if (event.key !== "Enter" || event.shiftKey) return;
  if (event.isComposing || event.keyCode === 229) return;  // Safari ends a composition before this key
  event.preventDefault();
  send();
}

/* Another tab has written or deleted a chat; the turn that is written here is not touched. */
function takeStored({ key }) {
  if (key === null) { loadChats(); return drawList(); }
  if (key === SETTINGS) { loadSettings(); useTheme(); return redraw(); }
  const id = key.startsWith(PREFIX) ? key.slice(PREFIX.length) : "";
  if (!id || (writing.has(id) && !storage.get(key))) return;
  const isHere = loadChat(key);
  if (id !== current.id) return drawList();
  if (!isHere) return openChat(newChat());
  if (editing && isStale()) dropEdit();
  draw(current.turns);
}

function redraw() {
  byId("show-sources").checked = settings.sources;
  byId("show-speed").checked = settings.speed;
  draw(current.turns);
}

function saveAll() {
  isLeaving = true;
  for (const [id, { turn }] of writing) if (chats.has(id)) saveChat(chats.get(id), turn);
  keepDraft();
  try { sessionStorage.setItem("draftwood.drafts", JSON.stringify([...drafts].filter(([, text]) => text))); } catch { /* lost */ }
}

function begunBefore() {
  try {
    for (const [id, text] of JSON.parse(sessionStorage.getItem("draftwood.drafts")) || []) drafts.set(id, text);
    return sessionStorage.getItem("draftwood.chat");
  } catch { return null; }
}

function listen() {
  const on = (id, what, act) => byId(id).addEventListener(what, act);
  on("composer", "submit", (event) => { event.preventDefault(); send(); });
  on("message", "keydown", messageKey);
  on("message", "input", fit);
  on("halt", "click", () => stopWriting(current));
  on("edit-cancel", "click", () => { setEditing(null); toMessage(); });
  on("scroll", "scroll", noteEnd);
  on("to-end", "click", toEnd);
  new ResizeObserver(fitEnd).observe(byId("scroll"));
  on("new-chat", "click", () => { openChat(newChat()); showSide(false); toMessage(); });
  on("open-side", "click", () => showSide(!byId("side").classList.contains("open")));
  on("shade", "click", () => showSide(false));
  on("open-settings", "click", () => { showSettings(); byId("settings").showModal(); });
  on("settings-form", "submit", (event) => { event.preventDefault(); byId("settings").close(); });
  on("key-form", "submit", takeKey);
  on("key-later", "click", () => byId("ask-key").close());
  on("open-key", "click", () => { byId("settings").close(); askForKey(); });
  on("model", "change", (event) => saveSettings({ model: event.target.value }));
  on("close-settings", "click", () => byId("settings").close());
  on("delete-all", "click", deleteAll);
  for (const name of Object.keys(FIELDS)) on(FIELDS[name], "input", () => takeField(name));
  for (const name of ["sources", "speed"]) {
    on("show-" + name, "change", (event) => { saveSettings({ [name]: event.target.checked }); redraw(); });
  }
  for (const name of ["chat", "race"]) {
    on("tab-" + name, "click", () => showTab(name));
    on("tab-" + name, "keydown", (event) => { if (["ArrowLeft", "ArrowRight"].includes(event.key)) otherTab(); });
  }
  byId("toast").lastElementChild.addEventListener("click", undo);
  document.addEventListener("keydown", chatKey);
  narrow.addEventListener("change", () => showSide(false));
  addEventListener("storage", takeStored);
  addEventListener("pagehide", saveAll);
  addEventListener("pageshow", () => { isLeaving = false; });
  addEventListener("hashchange", () => showTab(location.hash === "#race" ? "race" : "chat"));
}

function offerStarters() {
  for (const [name, said] of [["chat", "Why is the sky blue?"], ["write", "Write a class in Python"], ["edit", "Rename a function"]]) {
    const one = button(said, () => { byId("message").value = EXAMPLES[name].prompt; fit(); toMessage(); });
    one.className = "small";
    byId("starters").append(one);
  }
}

function start() {
  loadSettings();
  useTheme();
  loadChats();
  listen();
  offerStarters();
  saveSettings({});
  const before = begunBefore();
  byId("message").value = drafts.get("new") || "";
  try {
    openChat(chats.get(before) || current);
  } catch {
    openChat(newChat());  // whatever is wrong with a stored chat, the page goes on
  }
  redraw();
  showTab(location.hash === "#race" ? "race" : "chat");
  about.then(({ model, drafters }) => {
    for (const place of document.querySelectorAll(".served")) place.textContent = model || place.textContent;
    offerDrafters(drafters || []);
  });
  toMessage();
  begun();
}

start();
