// The panels beside the conversation: quality and memory. The others have modules of their own.

import { call } from "./api.js";
import { badge } from "./badge.js";
import { draw as drawDecide } from "./decide.js";
import { byId, confirmed, element, fillWithRendered, graph, moment, pairs } from "./elements.js";
import { draw as drawModels } from "./models.js";
import { draw as drawEvents } from "./monitor.js";

/** How often the models are looked at while they are shown, in milliseconds. */
const INTERVAL = 3000;

const PANELS = { quality, memory, models: drawModels, decide: drawDecide, events: async () => drawEvents() };
/** Those that change only when a person does something there, or by themselves. */
const LASTING = ["events", "memory", "decide"];
const CHOSEN = "hone-panel";
let timer = null;

/** How many memories are listed at first, and at most: the server lists no more. */
const FEW_ENGRAMS = 30;
const MOST_ENGRAMS = 200;

/** Begins. */
export function start() {
  byId("open-panel").addEventListener("click", () => (byId("panel").hidden ? open(chosen()) : close()));
  byId("close-panel").addEventListener("click", close);
  const tabs = Object.keys(PANELS).map((name) => byId(`tab-${name}`));
  for (const tab of tabs) {
    tab.addEventListener("click", () => open(tab.getAttribute("aria-controls")));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
      open(next.getAttribute("aria-controls"));
      next.focus();
    });
  }
  byId("panel").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.target.closest(".grade")) return;
    event.preventDefault();
    close();
  });
}

/** Draws the open panel again, as after a new grade. */
export function refresh() {
  if (!byId("panel").hidden && !LASTING.includes(chosen())) PANELS[chosen()]().catch(() => {});
}

function chosen() {
  const name = sessionStorage.getItem(CHOSEN);
  return name in PANELS ? name : "quality";
}

async function open(name) {
  clearInterval(timer);
  sessionStorage.setItem(CHOSEN, name);
  byId("panel").hidden = false;
  byId("open-panel").setAttribute("aria-expanded", "true");
  for (const other of Object.keys(PANELS)) {
    const isOpen = other === name;
    byId(other).hidden = !isOpen;
    byId(`tab-${other}`).setAttribute("aria-selected", String(isOpen));
    byId(`tab-${other}`).tabIndex = isOpen ? 0 : -1;
  }
  try {
    await PANELS[name]();
    if (name === "models") timer = setInterval(refresh, INTERVAL);
  } catch (error) {
    byId(name).replaceChildren(element("p", { class: "complaint", role: "alert", text: error.message }));
  }
}

function close() {
  clearInterval(timer);
  byId("panel").hidden = true;
  byId("open-panel").setAttribute("aria-expanded", "false");
  byId("open-panel").focus();
}

// Quality

async function quality() {
  const { judges, trend, win_rates: rates, statistics } = await call("/hone/v1/report");
  const { all, grades_due: due } = statistics;
  const figures = [
    ["Answers", all.engrams],
    ["With a score", all.scored],
    ["Likely right", all.likely_right],
    ["Likely wrong", all.likely_wrong],
    ["Rated good", all.good],
    ["Rated bad", all.bad],
    ["Grades due", due],
  ];
  const parts = [pairs(figures)];
  const isMarked = all.likely_right + all.likely_wrong > 0;
  if (judges.length === 0 && !isMarked) parts.push(element("p", { class: "quiet", text: "No answer has a score yet." }));
  for (const judge of judges) {
    parts.push(
      element("h3", { text: judge.judge }),
      element("p", { class: "quiet", text: `${judge.scored} grades, mean ${judge.mean_score.toFixed(2)}` }),
      graph(judge.svg),
    );
  }
  if (trend) parts.push(element("h3", { text: "Trend" }), graph(trend.svg));
  if (rates) {
    parts.push(element("h3", { text: "Comparisons won" }), graph(rates.svg));
  }
  byId("quality").replaceChildren(element("h2", { text: "Quality" }), ...parts);
}

// Memory

async function memory() {
  const field = element("input", { type: "search", placeholder: "Search by meaning or words" });
  const results = element("ul", { class: "engrams" });
  let limit = FEW_ENGRAMS;
  const more = element("button", { type: "button", text: "Show more" });
  const show = async () => {
    const { engrams } = await call(`/hone/v1/memory?limit=${limit}&search=${encodeURIComponent(field.value)}`);
    results.replaceChildren(...engrams.map((engram) => engramOf(engram, show)));
    if (engrams.length === 0) results.append(element("li", { class: "quiet", text: "Nothing is remembered." }));
    more.hidden = engrams.length < limit || limit === MOST_ENGRAMS;
  };
  const search = () => {
    limit = FEW_ENGRAMS;
    return show();
  };
  more.addEventListener("click", async () => {
    const known = results.children.length;
    limit = MOST_ENGRAMS;
    await show();
    results.children[known]?.querySelector("summary").focus();
  });
  const form = element(
    "form",
    {},
    element("label", {}, element("span", { class: "hidden", text: "Search memory" }), field),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  field.addEventListener("search", search);
  const blocked = element("div", { id: "blocked" });
  byId("memory").replaceChildren(element("h2", { text: "Memory" }), blocked, form, results, more);
  blocks(blocked).catch(() => {});
  await search();
}

/** What is not an answer of a model. */
const KINDS = { fact: "a fact", intention: "an intention", research: "research", consolidation: "a summary" };

/** What the critic has blocked in the last 24 hours, with buttons for what a person says of it. */
async function blocks(target) {
  const { mode, blocks } = await call("/hone/v1/critic");
  const parts = blocks.map((block) => blockOf(block, target));
  const heading = parts.length > 0 ? [element("h3", { text: "Blocked by the critic today" })] : [];
  if (mode) heading.push(element("p", { class: "quiet", text: `Every gate is ${mode}, as a person has set it.` }));
  target.replaceChildren(...heading, element("ul", { class: "engrams" }, ...parts));
}

function blockOf({ query_id: id, content_type: type, text, reason, state, right, at }, target) {
  const said = right === null ? state : `${state}, ${right ? "rightly" : "wrongly blocked"}`;
  const review = (text, isRight) =>
    element("button", {
      type: "button",
      text,
      "aria-label": `${text}: ${reason}`,
      onclick: async () => {
        await call(`/hone/v1/critic/blocks/${id}`, { method: "POST", body: { right: isRight } });
        await blocks(target);
      },
    });
  const reviews = right === null ? [review("Rightly blocked", true), review("Wrongly blocked", false)] : [];
  return element(
    "li",
    { class: "block" },
    element("p", { class: "name", text }),
    element("p", { class: "quiet", text: `${type} · ${moment(at)} · ${said}` }),
    element("p", { text: reason }),
    element("div", { class: "bar" }, ...reviews),
  );
}

/** Draws the blocks again, if they are shown. */
export function refreshBlocks() {
  const target = byId("blocked");
  if (target) blocks(target).catch(() => {});
}

function engramOf(engram, changed) {
  const { query_id: id, kind, query, at, model, grade, similarity, vetting } = engram;
  const about = [KINDS[kind] ?? model, moment(at)];
  if (vetting !== "unreviewed") about.push(vetting);
  if (similarity !== undefined) about.push(`similarity ${similarity.toFixed(2)}`);
  const body = element("div", { class: "engram" });
  const details = element(
    "details",
    {},
    element(
      "summary",
      {},
      element("span", { class: "name", text: query }),
      element("span", { class: "quiet", text: about.join(" · ") }),
    ),
    body,
  );
  details.addEventListener("toggle", () => details.open && body.childNodes.length === 0 && show(id, body, changed));
  return element("li", {}, details, badge(grade));
}

async function show(id, body, changed) {
  const content = element("div", { class: "content" });
  try {
    const engram = await call(`/hone/v1/memory/${id}`);
    fillWithRendered(content, engram.html);
    const feedback = engram.grade.feedback || engram.grade.failure;
    const forget = element("button", {
      type: "button",
      class: "danger",
      text: "Forget",
      onclick: () => remove(id, engram, changed),
    });
    body.append(content, ...(feedback ? [element("p", { class: "quiet", text: feedback })] : []), forget);
  } catch (error) {
    body.append(element("p", { class: "complaint", text: error.message }));
  }
}

async function remove(id, engram, changed) {
  if (!(await confirmed("Forget this?", `“${engram.query}” is removed from memory.`, "Forget"))) return;
  await call(`/hone/v1/memory/${id}`, { method: "DELETE" });
  await changed();
}
