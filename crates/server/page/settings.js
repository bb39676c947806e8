// The settings of a conversation. Its instructions are saved with its next answer; until then they are kept by this browser, as
// is how its answers are sampled. It also keeps the defaults of new conversations.

import { call } from "./api.js";
import { byId, confirmed, element } from "./elements.js";

const KEPT = "hone-settings";
const DEFAULTS = "hone-default-settings";
/** Settings that are numbers, with their fields. */
const NUMBERS = ["temperature", "top_p", "max_tokens"];
/** The keys of presets that the fields hold, with their fields. */
const FIELDS = new Map([
  ["chat.system", "set-system"],
  ["sampling.thinking", "set-thinking"],
  ...NUMBERS.map((name) => [`sampling.${name}`, `set-${name}`]),
]);
const MODEL = "engine.model";
/** The name under which the settings of a conversation are kept that is not saved yet. */
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
  byId("remove-defaults").addEventListener("click", removeDefaults);
  byId("remove-preset").addEventListener("click", removePreset);
  byId("preset-form").addEventListener("submit", (event) => {
    event.preventDefault();
    savePreset();
  });
}

/** Another conversation is shown, whose saved instructions are these. */
export function show(name, system) {
  Object.assign(shown, { name: name ?? NEW, saved: system });
  mark();
}

/** The conversation that is shown has a name now. */
export function named(name) {
  const settings = own();
  removed(shown.name);
  shown.name = name;
  replace(settings);
}

/** A conversation has another name. */
export function moved(old, name) {
  const { [old]: own, ...others } = kept(KEPT);
  keep(KEPT, own ? { ...others, [name]: own } : others);
  if (shown.name === old) shown.name = name;
}

/** A conversation is gone. */
export function removed(name) {
  const { [name]: _, ...others } = kept(KEPT);
  keep(KEPT, others);
}

/** An answer was saved, and with it the instructions of the conversation. */
export function saved() {
  const { system, ...rest } = own();
  if (system === undefined) return;
  shown.saved = system;
  replace(rest);
}

/** Offers the presets, if there are any; the one whose settings the fields hold is chosen. */
async function offerPresets() {
  const { presets, can_save: canSave } = await call("/hone/v1/presets").catch(() => ({ presets: [] }));
  byId("preset-choice").hidden = presets.length === 0;
  byId("preset-saving").hidden = !canSave;
  const names = presets.map(({ name }) => element("option", { value: name, text: name }));
  byId("set-preset").replaceChildren(element("option", { value: "", text: "none" }), ...names);
  byId("set-preset").value = presets.find(({ settings }) => isHeld(settings))?.name ?? "";
  const choose = () => {
    const name = byId("set-preset").value;
    byId("remove-preset").hidden = !canSave || !name;
    byId("preset-name").value = name;
  };
  byId("set-preset").onchange = () => {
    const chosen = presets.find(({ name }) => name === byId("set-preset").value);
    if (chosen) fill(chosen.settings);
    else fillOwn();
    choose();
  };
  choose();
}

/** The text of a field for a setting of a preset. */
function fieldText(preset, key) {
  const value = preset[key] ?? "";
  return key === "sampling.thinking" ? ({ off: "false", on: "true" }[value] ?? "") : String(value);
}

/** Whether the fields and the chosen model are those of a preset, as far as this page knows its settings. */
function isHeld(preset) {
  const isSame = [...FIELDS].every(([key, id]) => byId(id).value === fieldText(preset, key));
  const hasModel = [undefined, byId("model").value].includes(preset[MODEL]);
  return isSame && hasModel && Object.keys(preset).some(isKnown);
}

function isKnown(key) {
  return key === MODEL || FIELDS.has(key);
}

/** Fills the fields with the settings of a preset, and says which of them a question of the page does not take. */
function fill(preset) {
  for (const [key, id] of FIELDS) byId(id).value = fieldText(preset, key);
  chosenModel = preset[MODEL];
  const others = Object.keys(preset).filter((key) => !isKnown(key));
  byId("preset-note").textContent = others.length > 0 ? `Not used on this page: ${others.join(", ")}` : "";
}

/** Saves what the fields hold as a preset. A person is asked before another one is replaced. */
async function savePreset() {
  if (!byId("settings-form").reportValidity()) return;
  const name = byId("preset-name").value.trim();
  const saving = (replace) => call("/hone/v1/presets", { method: "POST", body: { name, replace, ...written() } });
  try {
    await saving(false).catch(async (error) => {
      if (error.status !== 409) throw error;
      if (await confirmed("Replace the preset?", `A preset ${name} exists already.`, "Replace")) return saving(true);
      throw new Error(`The preset ${name} is as it was.`);
    });
    byId("preset-saving").open = false;
    byId("settings-note").textContent = `The preset ${name} is saved.`;
    await offerPresets();
  } catch (error) {
    byId("settings-note").textContent = error.message;
  }
}

async function removePreset() {
  const name = byId("set-preset").value;
  if (!(await confirmed("Delete this preset?", `The preset ${name} is deleted.`, "Delete"))) return;
  try {
    await call(`/hone/v1/presets/${encodeURIComponent(name)}`, { method: "DELETE" });
    byId("settings-note").textContent = `The preset ${name} is deleted.`;
    await offerPresets();
    byId("settings-cancel").focus();
  } catch (error) {
    byId("settings-note").textContent = error.message;
  }
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
  byId("preset-saving").open = false;
  byId("settings-note").textContent = "";
  byId("set-default").checked = false;
  byId("remove-defaults").hidden = !hasDefaults();
  byId("settings").showModal();
}

/** What a question says of them. */
export function wanted() {
  return own();
}

/** What the fields hold. */
function written() {
  const settings = {};
  const system = byId("set-system").value;
  if (system) settings.system = system;
  for (const name of NUMBERS) {
    const text = byId(`set-${name}`).value.trim();
    if (text) settings[name] = Number(text);
  }
  const thinking = byId("set-thinking").value;
  if (thinking) settings.thinking = thinking === "true";
  return settings;
}

function save() {
  const { system = "", ...settings } = written();
  if (system !== shown.saved) settings.system = system;
  if (byId("set-default").checked) saveDefaults();
  if (byId("set-default").checked && shown.name === NEW) mark();
  else replace(settings);
  const models = [...byId("model").options].map((option) => option.value);
  if (models.includes(chosenModel)) byId("model").value = chosenModel;
}

/** New conversations begin with what the fields hold. */
function saveDefaults() {
  keep(DEFAULTS, written());
  removed(NEW);
}

function removeDefaults() {
  localStorage.removeItem(DEFAULTS);
  byId("remove-defaults").hidden = true;
  byId("set-default").focus();
  byId("settings-note").textContent = "New conversations begin without settings.";
  if (shown.name === NEW) fillOwn();
  mark();
}

function hasDefaults() {
  return Object.keys(kept(DEFAULTS)).length > 0;
}

/** Shows whether this conversation has settings of its own. */
function mark() {
  const has = (own().system ?? shown.saved) !== "" || Object.keys(own()).length > 0;
  byId("open-settings").classList.toggle("active", has);
}

/** The settings of the conversation that is shown, as far as they are not saved with it. */
function own() {
  const all = kept(KEPT);
  if (Object.hasOwn(all, shown.name)) return all[shown.name];
  return shown.name === NEW ? kept(DEFAULTS) : {};
}

function replace(settings) {
  const { [shown.name]: _, ...others } = kept(KEPT);
  // A new conversation may do without the defaults.
  const isKept = Object.keys(settings).length > 0 || (shown.name === NEW && hasDefaults());
  keep(KEPT, isKept ? { ...others, [shown.name]: settings } : others);
  mark();
}

function kept(key) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? {};
  } catch {
    return {};
  }
}

function keep(key, value) {
  localStorage.setItem(key, JSON.stringify(value));
}
