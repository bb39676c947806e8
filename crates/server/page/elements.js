// Elements of the page. Texts become text nodes; only HTML that the server has rendered and sanitised becomes elements.

const SVG = "http://www.w3.org/2000/svg";

// The strokes of each icon, in a square of 24 by 24.
const ICONS = {
  check: "M5 13l4 4 10-11",
  clip: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 4.8 4.8l-8.3 8.3a1.7 1.7 0 0 1-2.4-2.4L14.5 7.5",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  down: "M17 14V3H6.5L4 10v3h6l-1 6 2 2 6-7zM21 3v11",
  edit: "M4 20l1-5L16 4l4 4L9 19z",
  end: "M12 5v14M6 13l6 6 6-6",
  keys: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M8 14h8",
  left: "M15 5l-7 7 7 7",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5",
  menu: "M4 6h16M4 12h16M4 18h16",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  panel: "M4 20V10M10 20V4M16 20v-8M22 20H2",
  pause: "M8 5v14M16 5v14",
  play: "M7 4l13 8-13 8z",
  plus: "M12 5v14M5 12h14",
  right: "M9 5l7 7-7 7",
  redo: "M20 12a8 8 0 1 1-3-6.2M20 3v5h-5",
  send: "M12 20V5M5 11l7-7 7 7",
  settings: "M4 7h9M19 7h1M4 17h1M11 17h9M16 4v6M8 14v6",
  stop: "M7 7h10v10H7z",
  system: "M3 5h18v11H3zM8 20h8M12 16v4",
  up: "M7 10v11h10.5L20 14v-3h-6l1-6-2-2-6 7zM3 21V10",
};

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** A new element. Keys that begin with `on` are listeners, `class` and `text` are what they say, others attributes. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "text") made.textContent = value;
    else if (key === "class") made.className = value;
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** An icon, which assistive technology does not read. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button that shows an icon only. */
export function iconButton(name, label, onclick, properties = {}) {
  const button = element("button", { type: "button", class: "icon", title: label, onclick, ...properties }, icon(name));
  button.setAttribute("aria-label", label);
  return button;
}

/** Fills an element with HTML that the server has rendered and sanitised. Leading blocks that have not changed stay in place. */
export function fillWithRendered(target, html) {
  const wanted = [...rendered(html).childNodes];
  const shown = [...target.childNodes];
  const changed = wanted.findIndex((node, at) => !shown[at]?.isEqualNode(node));
  const kept = changed < 0 ? wanted.length : changed;
  for (const node of shown.slice(kept)) node.remove();
  target.append(...wanted.slice(kept));
}

function rendered(html) {
  const content = element("div");
  content.innerHTML = html;
  for (const block of content.querySelectorAll("pre")) {
    block.tabIndex = 0;
    const copy = iconButton("copy", "Copy the code", () =>
      copied(copy, block.querySelector("code")?.textContent ?? ""),
    );
    const box = element("div", { class: "code" });
    block.replaceWith(box);
    const language = /language-(\S+)/.exec(block.querySelector("code")?.className)?.[1];
    if (language) box.append(element("span", { class: "language", text: language }));
    box.append(block, copy);
  }
  return content;
}

/** Where a selection within an element begins and ends, each a path of nodes and an offset; null if nothing is selected. */
export function selectionIn(target) {
  const { type, anchorNode, anchorOffset, focusNode, focusOffset } = getSelection();
  if (type !== "Range" || !target.contains(anchorNode) || !target.contains(focusNode)) return null;
  const path = (node) => (node === target ? [] : [...path(node.parentNode), [...node.parentNode.childNodes].indexOf(node)]);
  return [[path(anchorNode), anchorOffset], [path(focusNode), focusOffset]];
}

/** Selects in an element what was selected in another one, whose content was much the same. */
export function select(target, ends) {
  const found = ends.map(([path, offset]) => [path.reduce((node, at) => node?.childNodes[at], target), offset]);
  if (!found.every(([node]) => node)) return;
  const places = found.map(([node, offset]) => [node, Math.min(offset, node.length ?? node.childNodes.length)]);
  getSelection().setBaseAndExtent(...places.flat());
}

/** Terms with their values. */
export function pairs(all) {
  const terms = all.flatMap(([name, value]) => [
    element("dt", { text: name }),
    element("dd", { text: String(value) }),
  ]);
  return element("dl", {}, ...terms);
}

/** A graph that the server has drawn. */
export function graph(svg) {
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  return document.importNode(parsed, true);
}

/** Copies a text, and shows on the button that it was. */
export async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers offer the clipboard only to pages of this machine or with encryption.
    const field = element("textarea", { class: "hidden", "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.replaceChildren(icon("check"));
  announce("Copied");
  setTimeout(() => button.replaceChildren(icon("copy")), 1500);
}

/** Tells those who do not see the page. */
export function announce(text) {
  byId("announcer").textContent = text;
}

/** Asks whether something is wanted that cannot be undone. */
export async function confirmed(title, note, action) {
  return (await confirmedWith(title, note, action, "")) !== null;
}

/** The same with a choice: null if it is not wanted, and else whether the option is. */
export function confirmedWith(title, note, action, option) {
  const dialog = byId("confirm-dialog");
  byId("confirm-title").textContent = title;
  byId("confirm-note").textContent = note;
  byId("confirm-yes").textContent = action;
  byId("confirm-option").textContent = option;
  byId("confirm-choice").hidden = !option;
  byId("confirm-check").checked = false;
  dialog.showModal();
  byId("confirm-no").focus();
  return new Promise((resolve) => {
    let answer = null;
    byId("confirm-yes").onclick = () => {
      answer = byId("confirm-check").checked;
      dialog.close();
    };
    byId("confirm-no").onclick = () => dialog.close();
    dialog.onclose = () => resolve(answer);
  });
}

/** Bytes for a person, as the terminal says them. */
export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${count.toFixed(unit > 0 ? 2 : 0)} ${units[unit]}`;
}

/** A moment for a person: the time today, the day otherwise. */
export function moment(milliseconds) {
  const at = new Date(milliseconds);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday
    ? at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
    : at.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });
}
