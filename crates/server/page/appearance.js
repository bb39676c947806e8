// The theme, and the keys that do what buttons do.

import { announce, byId, element, icon } from "./elements.js";

const THEME = "hone-theme";
/** The themes in the order of the switch, with what is said of each. */
const THEMES = [
  ["system", "Theme: as the system"],
  ["light", "Theme: light"],
  ["dark", "Theme: dark"],
];

/** The keys with what they do. `press` is what happens; those without it are keys of other parts of the page. */
const KEYS = [
  { keys: ["Enter"], does: "Send the question" },
  { keys: ["Shift", "Enter"], does: "Begin a new line" },
  { keys: ["Esc"], does: "Stop the answer" },
  { keys: ["/"], does: "Write a question", press: () => byId("question").focus() },
  { keys: ["Ctrl", "K"], does: "Search conversations", press: search },
  { keys: ["Ctrl", "Shift", "O"], does: "Begin a new conversation", press: () => byId("new").click() },
  { keys: ["Ctrl", "Shift", "S"], does: "Open the settings of this conversation", press: () => byId("open-settings").click() },
  { keys: ["Ctrl", "Shift", "D"], does: "Open or close the details", press: () => byId("open-panel").click() },
  { keys: ["?"], does: "Show these keys", press: showKeys },
];

/** Begins. */
export function start() {
  wear(localStorage.getItem(THEME));
  byId("theme").addEventListener("click", nextTheme);
  byId("show-keys").addEventListener("click", showKeys);
  byId("keys-close").addEventListener("click", () => byId("keys").close());
  const row = ({ keys, does }) => [
    element("dt", {}, ...keys.map((key) => element("kbd", { text: key }))),
    element("dd", { text: does }),
  ];
  byId("key-list").replaceChildren(...KEYS.flatMap(row));
  document.addEventListener("keydown", press);
}

function press(event) {
  const isWriting = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.isComposing || document.querySelector("dialog[open]")) return;
  const found = KEYS.find(({ keys, press }) => press && isPressed(keys, event) && (keys.length > 1 || !isWriting));
  if (!found) return;
  event.preventDefault();
  found.press();
}

function isPressed(keys, event) {
  const isControl = event.ctrlKey || event.metaKey;
  if (isControl !== keys.includes("Ctrl") || event.altKey) return false;
  // A sign such as ? needs Shift on some keyboards.
  if (isControl && event.shiftKey !== keys.includes("Shift")) return false;
  return event.key.toLowerCase() === keys.at(-1).toLowerCase();
}

function search() {
  document.body.classList.add("with-sidebar");
  byId("search").focus();
}

function showKeys() {
  byId("keys").showModal();
}

function nextTheme() {
  const current = THEMES.findIndex(([name]) => name === (document.documentElement.dataset.theme ?? "system"));
  const [name, told] = THEMES[(current + 1) % THEMES.length];
  localStorage.setItem(THEME, name);
  wear(name);
  announce(told);
}

function wear(theme) {
  const [name, told] = THEMES.find(([known]) => known === theme) ?? THEMES[0];
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  byId("theme").replaceChildren(icon(name));
  byId("theme").title = told;
  byId("theme").setAttribute("aria-label", told);
}
