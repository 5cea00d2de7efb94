/* Whether the server lets this page ask: its key, and the names of its models. */

const KEY = "draftwood.key";  // kept for this tab alone, until it is closed

const keyHeaders = () => (byId("key").value ? { Authorization: "Bearer " + byId("key").value } : {});

/* Ask which models there are, for which the server wants a key if it has one. */
async function meet() {
  try {
    const response = await fetch("v1/models", { headers: keyHeaders() });
    if (!response.ok) throw await refusal(response);
    offerModels((await response.json()).data.map(({ id }) => id));
    return null;
  } catch (error) { return error; }
}

async function begun() {
  try { byId("key").value = sessionStorage.getItem(KEY) || ""; } catch { /* it is asked for again */ }
  const error = await meet();
  if (error?.status === 401) askForKey();
}

function askForKey() {
  byId("open-key").hidden = false;
  tellKey(byId("key").value ? "The server does not know this key." : "");
  if (!byId("ask-key").open) byId("ask-key").showModal();
}

function tellKey(wrong) {
  byId("key-wrong").textContent = wrong;
  byId("key-wrong").hidden = !wrong;
}

/* Try the key that was entered, and keep it if it is right. */
async function takeKey(event) {
  event.preventDefault();
  const error = await meet();
  tellKey(error?.status === 401 ? "The server does not know this key." : error ? sentence(error) : "");
  if (error) return;
  try { sessionStorage.setItem(KEY, byId("key").value); } catch { /* it is asked for again */ }
  byId("ask-key").close();
  toMessage();
}

/* Let the reader choose among several names. */
function offerModels(names) {
  byId("model").replaceChildren(...names.map((name) => make("option", "", name)));
  byId("model").hidden = names.length < 2;
  document.querySelector("h1 .served").hidden = names.length > 1;
  byId("model").value = names.includes(settings.model) ? settings.model : names[0];
}

/* Return the field of a request that names the model; none where there is one name. */
const modelWanted = () => (byId("model").hidden ? {} : { model: byId("model").value });
