// The panel of the models: those that are installed, those in memory, the workers, and the catalog.

import { call, linesOf, request } from "./api.js";
import { byId, bytes, confirmed, element, iconButton, pairs } from "./elements.js";

/** Pulls in progress, by what is pulled: what was last heard of them. */
const pulls = new Map();

let told = () => {};

/** Begins. `changed` is called when the installed models are others than before. */
export function start(changed) {
  told = changed;
}

/** Fills the panel. */
export async function draw() {
  const [installed, running] = await Promise.all([call("/hone/v1/models"), call("/hone/v1/ps")]);
  const parts = running.processes.flatMap(processOf);
  if (running.fleet) parts.push(...workersOf(running.fleet));
  if (running.grades_due > 0) {
    parts.push(element("p", { text: `Grades due: ${running.grades_due}. They come while nobody asks.` }));
  }
  parts.push(element("h3", { text: "Installed" }));
  parts.push(element("ul", { class: "models" }, ...installed.models.map(modelOf)));
  let place = byId("model-list");
  if (!place) {
    place = element("div", { id: "model-list" });
    const pulling = element("div", { id: "pulls" });
    byId("models").replaceChildren(element("h2", { text: "Models" }), pulling, place, catalog(), pullForm());
  }
  // What is drawn again every few seconds must not take the focus away.
  const fill = (place, children) => place.contains(document.activeElement) || place.replaceChildren(...children);
  fill(byId("pulls"), [...pulls].map(pullOf));
  fill(place, parts);
}

/** The workers on the bus, and how much they have to do. */
function workersOf({ is_connected: isConnected, workers, users, queues, seconds_to_drain: drain }) {
  const heading = element("h3", { text: "Workers" });
  if (!isConnected) return [heading, element("p", { class: "quiet", text: "The bus cannot be reached." })];
  if (workers.length === 0) return [heading, element("p", { class: "quiet", text: "No worker is on the bus." })];
  const rows = workers.map(({ name, model, busy, slots, per_minute: pieces, tokens_per_minute: tokens }) =>
    element(
      "li",
      {},
      element("span", { class: "name", text: name }),
      element("span", { class: "quiet", text: model }),
      element("span", { class: "quiet", text: `${busy} of ${slots} busy · last minute: ${pieces} done, ${tokens} tokens` }),
    ),
  );
  const time = drain === null || queues.open === 0 ? [] : [["Done in about", `${Math.ceil(drain)} s`]];
  const by = users.map(({ machine, command }) => `hone ${command} on ${machine}`).join(", ");
  const used = by ? [["Used by", by]] : [];
  const left = pairs([["Left to do", queues.open], ...time, ["Given up", queues.dead], ...used]);
  return [heading, element("ul", { class: "models workers" }, ...rows), left];
}

function modelOf({ name, bytes: size, answers, elsewhere }) {
  if (elsewhere) {
    const place = element("span", { class: "quiet", text: `${bytes(size)}, on a worker` });
    return element("li", {}, element("span", { class: "name", text: name }), place);
  }
  const act = (text, work) =>
    element("button", { type: "button", text, "aria-label": `${text} ${name}`, onclick: () => tried(work) });
  const load = act("Load", () => call("/api/generate", { method: "POST", body: { model: name, stream: false } }));
  const discard = act("Remove", async () => {
    if (!(await confirmed("Remove this model?", `${name} (${bytes(size)}) is deleted from this machine.`, "Remove"))) return;
    await request("/api/delete", { method: "DELETE", body: { model: name } });
    changed();
  });
  return element(
    "li",
    {},
    element("span", { class: "name", text: name }),
    element("span", { class: "quiet", text: bytes(size) }),
    element("span", { class: "bar" }, answers ? load : null, discard),
  );
}

/** Draws the panel again, if it is shown. */
function redraw() {
  if (!byId("panel").hidden && !byId("models").hidden) draw().catch(() => {});
}

/** The installed models are others than before. */
function changed() {
  told();
  const list = byId("catalog-list");
  if (list?.querySelector("ul")) fillCatalog(list);
}

/** The groups of the catalog, by the role of their models. */
const GROUPS = { generator: "To chat with", judge: "To grade answers", embedder: "For memory", reranker: "To rank documents" };

/** The catalog. It is looked up when it is opened. */
function catalog() {
  const list = element("div", { id: "catalog-list" });
  const details = element("details", { id: "catalog" }, element("summary", { text: "Models to download" }), list);
  details.addEventListener("toggle", () => details.open && !list.querySelector("ul") && fillCatalog(list));
  return details;
}

async function fillCatalog(list) {
  if (list.childNodes.length === 0) list.append(element("p", { class: "quiet", text: "Looking at this machine…" }));
  try {
    const { models } = await call("/hone/v1/catalog");
    const missing = models.filter((model) => !model.installed);
    const groups = Object.entries(GROUPS).flatMap(([role, title]) => {
      const rows = missing.filter((model) => model.role === role).map(offerOf);
      return rows.length > 0 ? [element("h3", { text: title }), element("ul", { class: "models" }, ...rows)] : [];
    });
    const note = "Speeds are what this machine's memory allows; models that fit the processor's caches are faster.";
    list.replaceChildren(...groups, element("p", { class: "quiet", text: note }));
  } catch (error) {
    list.replaceChildren(element("p", { class: "complaint", role: "alert", text: error.message }));
  }
}

function offerOf({ name, parameters, quantization, licence, bytes: size, suggested, estimate }) {
  const about = [`${parameters} parameters`, quantization, licence].filter(Boolean).join(" · ");
  const fits = estimate.fits !== false || estimate.runs_from_file;
  const download = element("button", {
    type: "button",
    text: "Download",
    "aria-label": `Download ${name}`,
    onclick: async () => {
      download.disabled = true;
      await pull(name);
      download.disabled = false;
    },
  });
  return element(
    "li",
    {},
    element("span", { class: "name", text: name }),
    element("span", { class: "quiet", text: about }),
    element("span", { class: "quiet", text: [bytes(size), fitOf(estimate)].filter(Boolean).join(" · ") }),
    suggested ? element("span", { class: "suggested", text: "The best one for this machine" }) : null,
    element("span", { class: "bar" }, fits ? download : null),
  );
}

/** Whether a model fits this machine, and how fast it is there. */
function fitOf({ needs_memory: needs, fits, runs_from_file: runsFromFile, is_divided: isDivided, tokens_per_second: speed, speed_is_seen: isSeen }) {
  if (runsFromFile) return `needs ${bytes(needs)} of memory, runs from the disk`;
  if (fits === false) return `needs ${bytes(needs)} of memory`;
  const parts = speed === null ? [] : [`${isSeen ? "" : "about "}${speed < 10 ? speed.toFixed(1) : Math.round(speed)} tokens/s`];
  if (isDivided) parts.push("in part on the GPU");
  return parts.join(", ");
}

function pullForm() {
  const field = element("input", { type: "text", placeholder: "hf.co/OWNER/REPO:Q4_K_M", required: true });
  const form = element(
    "form",
    { class: "bar" },
    element("label", { class: "grow" }, element("span", { class: "hidden", text: "Model to download" }), field),
    element("button", { type: "submit", text: "Download" }),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    pull(field.value.trim());
    field.value = "";
  });
  return form;
}

function pullOf([name, { status, completed, total, error }]) {
  if (error) {
    const text = error.includes(name) ? error : `${name}: ${error}`;
    const dismiss = () => {
      document.activeElement.blur();
      pulls.delete(name);
      redraw();
    };
    return element("div", { class: "complaint", role: "alert" }, element("span", { text }), iconButton("close", "Dismiss", dismiss));
  }
  return element(
    "div",
    { class: "pull" },
    element("span", { class: "name", text: name }),
    element("span", { class: "quiet", text: total ? `${bytes(completed)} of ${bytes(total)}` : status }),
    total ? element("progress", { max: total, value: completed, "aria-label": `Downloading ${name}` }) : null,
  );
}

// A download ends with the page, and goes on from there when it is asked for again.
addEventListener("beforeunload", (event) => {
  if ([...pulls.values()].some(({ error }) => !error)) event.preventDefault();
});

async function pull(name) {
  if (pulls.has(name) && !pulls.get(name).error) return;
  pulls.set(name, { status: "asking…" });
  redraw();
  let last = {};
  try {
    const response = await request("/api/pull", { method: "POST", body: { model: name } });
    for await (const line of linesOf(response)) {
      last = line;
      pulls.set(name, line);
      redraw();
    }
    if (!last.error) {
      pulls.delete(name);
      changed();
    }
  } catch (error) {
    pulls.set(name, { error: error.message });
  }
  redraw();
}

/** Does what a button says, and shows what came of it. */
async function tried(work) {
  document.activeElement.blur();
  try {
    await work();
    pulls.delete("");
  } catch (error) {
    pulls.set("", { error: error.message });
  }
  redraw();
}

function processOf({ process, command, models: loaded, queue }) {
  const rows = loaded.map((model) => [
    model.name,
    `${model.state}, ${bytes(model.weight_bytes + model.kv_cache_bytes)}`,
  ]);
  const waiting = queue.map(({ lane, position, model, wait_seconds: wait }) => [
    `${position}. in the ${lane} queue`,
    `${model}, about ${wait.toFixed(0)} s`,
  ]);
  return [element("h3", { text: `hone ${command} (${process})` }), pairs([...rows, ...waiting])];
}
