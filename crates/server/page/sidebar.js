// The list of conversations: searched, renamed, put into folders, exported and deleted.

import { call, conversationPath, request } from "./api.js";
import { byId, confirmedWith, element, icon, moment } from "./elements.js";
import * as places from "./places.js";

/** How long nothing is typed before it is searched for, in milliseconds. */
const PAUSE = 200;

const hooks = { chosen: () => {}, renamed: () => {}, removed: () => {}, failed: () => {} };
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
    if (menu) event.preventDefault();
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
    byId("conversations").replaceChildren(...(search ? conversations.map(item) : ordered(conversations)));
    byId("no-conversations").hidden = conversations.length > 0;
    byId("no-conversations").textContent = search ? "Nothing found" : "Conversations appear here";
    mark(shown);
  } catch (error) {
    hooks.failed(error.message);
  }
}

/** Those that are pinned, then the folders, then the others. */
function ordered(conversations) {
  const pinned = conversations.filter(({ name }) => places.isPinned(name));
  const others = conversations.filter(({ name }) => !places.isPinned(name));
  const inFolder = (folder) => others.filter(({ name }) => places.folderOf(name) === folder);
  const filled = places.folders().map((folder) => [folder, inFolder(folder)]).filter(([, found]) => found.length > 0);
  return [...pinned.map(item), ...filled.map(([folder, found]) => folderItem(folder, found)), ...inFolder("").map(item)];
}

function folderItem(folder, conversations) {
  const details = element(
    "details",
    { class: "folder", open: places.isOpen(folder) },
    element(
      "summary",
      {},
      element("span", { class: "name", text: folder }),
      element("span", { class: "quiet", text: String(conversations.length) }),
    ),
    element("ul", {}, ...conversations.map(item)),
  );
  details.addEventListener("toggle", () => places.toggled(folder, details.open));
  return element("li", { class: "in-folder" }, details);
}

function item({ name, title, written }) {
  const isPinned = places.isPinned(name);
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
        places.pin(name, !isPinned);
        refresh();
      }),
      action("Move to a folder", () => move(details, name)),
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
  askInRow(details, { label: "New name", value: asName(title) }, async (text) => {
    const wanted = asName(text);
    if (!wanted || wanted === asName(title)) return;
    await attempt(async () => {
      await call(conversationPath(name), { method: "PATCH", body: { name: wanted } });
      places.renamed(name, wanted);
      hooks.renamed(name, wanted);
    });
  });
}

function move(details, name) {
  const label = "Name of a folder, empty for none";
  askInRow(details, { label, value: places.folderOf(name), choices: places.folders() }, async (folder) => {
    places.moveTo(name, folder.trim());
    await refresh();
  });
}

/** Shows a field in place of a conversation. Enter, or leaving the field, is what `done` is called after. */
function askInRow(details, { label, value, choices = [] }, done) {
  const row = details.closest("li");
  const list = element("datalist", { id: "choices" }, ...choices.map((choice) => element("option", { value: choice })));
  const field = element("input", { type: "text", "aria-label": label, placeholder: label, maxlength: "60", list: "choices" });
  field.value = value;
  const before = [...row.childNodes];
  let isDone = false;
  const finish = async (isWanted) => {
    if (isDone) return;
    isDone = true;
    details.open = false;
    row.replaceChildren(...before);
    if (isWanted) await done(field.value);
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") finish(true);
    if (event.key !== "Escape") return;
    event.preventDefault();
    finish(false);
  });
  field.addEventListener("blur", () => finish(true));
  row.replaceChildren(field, list);
  field.select();
  field.focus();
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
    places.removed(name);
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
