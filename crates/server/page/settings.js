// The settings of a conversation. Its instructions are saved with its next answer; until then they are kept by this browser, as
// is how its answers are sampled.

import { call } from "./api.js";
import { byId, element } from "./elements.js";

const KEPT = "hone-settings";
/** Settings that are numbers, with their fields. */
const NUMBERS = ["temperature", "top_p", "max_tokens"];
/** Those of a conversation that is not saved yet. */
const NEW = "";

/** The conversation that is shown, and the instructions that are saved with it. */
const shown = { name: NEW, saved: "" };
/** The model of the preset that was chosen. */
let chosenModel;

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

/** Another conversation is shown, whose saved instructions are these. */
export function show(name, system) {
  Object.assign(shown, { name: name ?? NEW, saved: system });
  mark();
}

/** The conversation that is shown has a name now. */
export function named(name) {
  moved(shown.name, name);
  shown.name = name;
}

/** A conversation has another name. */
export function moved(old, name) {
  const { [old]: own, ...others } = kept();
  keep(own ? { ...others, [name]: own } : others);
  if (shown.name === old) shown.name = name;
}

/** A conversation is gone. */
export function removed(name) {
  const { [name]: _, ...others } = kept();
  keep(others);
}

/** An answer was saved, and with it the instructions of the conversation. */
export function saved() {
  const { system, ...rest } = own();
  if (system === undefined) return;
  shown.saved = system;
  replace(rest);
}

/** Offers the presets, if there are any. */
async function offerPresets() {
  const { presets } = await call("/hone/v1/presets").catch(() => ({ presets: [] }));
  byId("preset-choice").hidden = presets.length === 0;
  const names = presets.map(({ name }) => element("option", { value: name, text: name }));
  byId("set-preset").replaceChildren(element("option", { value: "", text: "none" }), ...names);
  byId("set-preset").onchange = () => {
    const chosen = presets.find(({ name }) => name === byId("set-preset").value);
    if (chosen) fill(chosen.settings);
    else fillOwn();
  };
}

/** Fills the fields with the settings of a preset, and says which of them a question of the page does not take. */
function fill(preset) {
  byId("set-system").value = preset["chat.system"] ?? "";
  for (const name of NUMBERS) byId(`set-${name}`).value = preset[`sampling.${name}`] ?? "";
  byId("set-thinking").value = { off: "false", on: "true" }[preset["sampling.thinking"]] ?? "";
  chosenModel = preset["engine.model"];
  const known = ["chat.system", "engine.model", "sampling.thinking", ...NUMBERS.map((name) => `sampling.${name}`)];
  const others = Object.keys(preset).filter((key) => !known.includes(key));
  byId("preset-note").textContent = others.length > 0 ? `Not used on this page: ${others.join(", ")}` : "";
}

/** Fills the fields with the settings of the conversation. */
function fillOwn() {
  const { system = shown.saved, thinking, ...numbers } = own();
  byId("set-system").value = system;
  for (const name of NUMBERS) byId(`set-${name}`).value = numbers[name] ?? "";
  byId("set-thinking").value = thinking === undefined ? "" : String(thinking);
  byId("preset-note").textContent = "";
  chosenModel = undefined;
}

/** Opens the settings. */
export function open() {
  offerPresets();
  fillOwn();
  byId("settings").showModal();
}

/** What a question says of them. */
export function wanted() {
  return own();
}

function save() {
  const settings = {};
  for (const name of NUMBERS) {
    const text = byId(`set-${name}`).value.trim();
    if (text) settings[name] = Number(text);
  }
  const thinking = byId("set-thinking").value;
  if (thinking) settings.thinking = thinking === "true";
  const system = byId("set-system").value;
  if (system !== shown.saved) settings.system = system;
  replace(settings);
  const models = [...byId("model").options].map((option) => option.value);
  if (models.includes(chosenModel)) byId("model").value = chosenModel;
}

/** Shows whether this conversation has settings of its own. */
function mark() {
  const has = (own().system ?? shown.saved) !== "" || Object.keys(own()).length > 0;
  byId("open-settings").classList.toggle("active", has);
}

/** The settings of the conversation that is shown, as far as they are not saved with it. */
function own() {
  const all = kept();
  return Object.hasOwn(all, shown.name) ? all[shown.name] : {};
}

function replace(settings) {
  const { [shown.name]: _, ...others } = kept();
  keep(Object.keys(settings).length > 0 ? { ...others, [shown.name]: settings } : others);
  mark();
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
