// The list of conversations: searched, renamed, exported and deleted.

import { call, conversationPath, request } from "./api.js";
import { byId, confirmedWith, element, icon, moment } from "./elements.js";

/** How long nothing is typed before it is searched for, in milliseconds. */
const PAUSE = 200;

const hooks = { chosen: () => {}, renamed: () => {}, removed: () => {}, failed: () => {} };
/** Where this browser keeps the names of pinned conversations. */
const PINNED = "hone-pinned";
/** The titles of the conversations that were listed, by name. */
const titles = new Map();
let shown = null;
let timer = null;

/** Begins. The hooks are called with the names of conversations, `failed` with a message. */
export function start(given) {
  Object.assign(hooks, given);
  byId("new").addEventListener("click", () => hooks.chosen(null));
  byId("search").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(refresh, PAUSE);
  });
  document.addEventListener("click", (event) => closeMenus(event.target.closest("details.menu")));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const menu = event.target.closest?.("details.menu[open]");
    closeMenus(null);
    menu?.querySelector("summary").focus();
  });
}

/** Marks the conversation that is shown. */
export function mark(name) {
  shown = name;
  for (const button of byId("conversations").querySelectorAll("button.conversation")) {
    if (button.dataset.name === name) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
}

/** The title of a conversation that was listed before; its name otherwise. */
export function titleOf(name) {
  return titles.get(name) ?? name;
}

/** Lists the conversations that are searched for. */
export async function refresh() {
  const search = byId("search").value.trim();
  try {
    const { conversations } = await call(`/hone/v1/conversations?search=${encodeURIComponent(search)}`);
    for (const { name, title } of conversations) titles.set(name, title);
    const pinned = pinnedNames();
    const order = [true, false].flatMap((isPinned) => conversations.filter(({ name }) => pinned.has(name) === isPinned));
    byId("conversations").replaceChildren(...order.map((entry) => item(entry, pinned.has(entry.name))));
    byId("no-conversations").hidden = conversations.length > 0;
    byId("no-conversations").textContent = search ? "Nothing found" : "Conversations appear here";
    mark(shown);
  } catch (error) {
    hooks.failed(error.message);
  }
}

/** The names of the pinned conversations. */
function pinnedNames() {
  try {
    return new Set(JSON.parse(localStorage.getItem(PINNED)));
  } catch {
    return new Set();
  }
}

function pin(name, isPinned, other = null) {
  const names = pinnedNames();
  names.delete(name);
  if (isPinned) names.add(other ?? name);
  localStorage.setItem(PINNED, JSON.stringify([...names]));
}

function item({ name, title, written }, isPinned) {
  const open = element(
    "button",
    { type: "button", class: "conversation", "data-name": name, title, onclick: () => hooks.chosen(name) },
    element("span", { class: "name", text: title }),
    element("span", { class: "quiet", text: isPinned ? `Pinned · ${moment(written)}` : moment(written) }),
  );
  return element("li", {}, open, menu(name, title, isPinned));
}

function menu(name, title, isPinned) {
  const summary = element("summary", { class: "icon", title: "More" }, icon("more"));
  summary.setAttribute("aria-label", `More for ${title}`);
  const action = (text, onclick) => element("button", { type: "button", text, onclick });
  const details = element(
    "details",
    { class: "menu" },
    summary,
    element(
      "div",
      {},
      action(isPinned ? "Unpin" : "Pin", () => {
        pin(name, !isPinned);
        refresh();
      }),
      action("Rename", () => rename(details, name, title)),
      action("Export as Markdown", () => save(name, "markdown", "md")),
      action("Export as JSON", () => save(name, "json", "json")),
      action("Delete", () => remove(name, title)),
    ),
  );
  return details;
}

function closeMenus(except) {
  for (const open of document.querySelectorAll("details.menu[open]")) if (open !== except) open.open = false;
}

function rename(details, name, title) {
  const row = details.closest("li");
  const field = element("input", { type: "text", "aria-label": "New name", maxlength: "60" });
  field.value = asName(title);
  const before = [...row.childNodes];
  let isDone = false;
  const finish = async (isWanted) => {
    if (isDone) return;
    isDone = true;
    details.open = false;
    row.replaceChildren(...before);
    const wanted = asName(field.value);
    if (!isWanted || !wanted || wanted === asName(title)) return;
    await attempt(async () => {
      await call(conversationPath(name), { method: "PATCH", body: { name: wanted } });
      pin(name, pinnedNames().has(name), wanted);
      hooks.renamed(name, wanted);
    });
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") finish(true);
    if (event.key === "Escape") finish(false);
  });
  field.addEventListener("blur", () => finish(true));
  row.replaceChildren(field);
  field.select();
}

/** A text as a name, which is that of a file. */
function asName(text) {
  const allowed = text.replace(/[\p{Cc}/\\]+/gu, " ").replace(/^[. ]+/, "");
  return allowed.slice(0, 60).trim();
}

async function remove(name, title) {
  closeMenus(null);
  const option = "Also forget what is remembered of it";
  const forgets = await confirmedWith("Delete this conversation?", `“${title}” is deleted.`, "Delete", option);
  if (forgets === null) return;
  await attempt(async () => {
    await call(conversationPath(name, forgets ? "?forget=true" : ""), { method: "DELETE" });
    pin(name, false);
    hooks.removed(name);
  });
}

async function save(name, format, ending) {
  closeMenus(null);
  await attempt(async () => {
    const response = await request(conversationPath(name, `/export?format=${format}`));
    const address = URL.createObjectURL(await response.blob());
    element("a", { href: address, download: `${name}.${ending}` }).click();
    URL.revokeObjectURL(address);
  });
}

async function attempt(work) {
  try {
    await work();
  } catch (error) {
    hooks.failed(error.message);
  }
  await refresh();
}
