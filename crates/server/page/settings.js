// The settings of a conversation. Its instructions are saved with it; how its answers are sampled is kept by this browser.

import { call } from "./api.js";
import { byId, element } from "./elements.js";

const KEPT = "hone-settings";
/** Settings that are numbers, with their fields. */
const NUMBERS = ["temperature", "top_p", "max_tokens"];
/** Those of a conversation that is not saved yet. */
const NEW = "";

const shown = { name: NEW, system: "", isChanged: false };

/** Begins. */
export function start() {
  byId("open-settings").addEventListener("click", open);
  byId("settings-cancel").addEventListener("click", () => byId("settings").close());
  byId("settings-form").addEventListener("submit", (event) => {
    event.preventDefault();
    save();
    byId("settings").close();
  });
}

/** Another conversation is shown. */
export function show(name, system) {
  Object.assign(shown, { name: name ?? NEW, system, isChanged: false });
  mark();
}

/** The conversation that is shown has a name now, or another one. */
export function named(name) {
  const all = kept();
  if (all[shown.name]) all[name] = all[shown.name];
  delete all[shown.name];
  keep(all);
  shown.name = name;
}

/** Offers the presets, if there are any. */
async function offerPresets() {
  const { presets } = await call("/hone/v1/presets").catch(() => ({ presets: [] }));
  byId("preset-choice").hidden = presets.length === 0;
  const names = presets.map(({ name }) => element("option", { value: name, text: name }));
  byId("set-preset").replaceChildren(element("option", { value: "", text: "none" }), ...names);
  byId("set-preset").onchange = () => fill(presets.find(({ name }) => name === byId("set-preset").value)?.settings ?? {});
}

/** Fills the fields with the settings of a preset. */
function fill(preset) {
  byId("set-system").value = preset["chat.system"] ?? "";
  for (const name of NUMBERS) byId(`set-${name}`).value = preset[`sampling.${name}`] ?? "";
  const thinking = preset["sampling.thinking"];
  byId("set-thinking").value = { off: "false", on: "true" }[thinking] ?? "";
  const models = [...byId("model").options].map((option) => option.value);
  if (models.includes(preset["engine.model"])) byId("model").value = preset["engine.model"];
}

/** Opens the settings. */
export function open() {
  offerPresets();
  const own = kept()[shown.name] ?? {};
  byId("set-system").value = shown.system;
  for (const name of NUMBERS) byId(`set-${name}`).value = own[name] ?? "";
  byId("set-thinking").value = own.thinking === undefined ? "" : String(own.thinking);
  byId("settings").showModal();
}

/** What a question says of them. */
export function wanted() {
  const own = { ...kept()[shown.name] };
  if (shown.isChanged) own.system = shown.system;
  return own;
}

function save() {
  const own = {};
  for (const name of NUMBERS) {
    const text = byId(`set-${name}`).value.trim();
    if (text) own[name] = Number(text);
  }
  const thinking = byId("set-thinking").value;
  if (thinking) own.thinking = thinking === "true";
  const all = kept();
  if (Object.keys(own).length > 0) all[shown.name] = own;
  else delete all[shown.name];
  keep(all);
  const system = byId("set-system").value;
  shown.isChanged ||= system !== shown.system;
  shown.system = system;
  mark();
}

/** Shows whether this conversation has settings of its own. */
function mark() {
  const has = shown.system !== "" || kept()[shown.name] !== undefined;
  byId("open-settings").classList.toggle("active", has);
}

function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

function keep(all) {
  localStorage.setItem(KEPT, JSON.stringify(all));
}
