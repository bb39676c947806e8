// The list of conversations: searched, renamed, put into folders, exported and deleted.

import { call, conversationPath, request } from "./api.js";
import { byId, confirmedWith, element, icon, iconButton, moment } from "./elements.js";
import * as places from "./places.js";

/** How long nothing is typed before it is searched for, in milliseconds. */
const PAUSE = 200;

const hooks = { chosen: () => {}, renamed: () => {}, removed: () => {}, failed: () => {} };
/** The rows of the conversations that were listed, by name, and those of folders. They stay when the list is refreshed. */
const rows = new Map();
const folderRows = new Map();
/** The titles of conversations whose first answer is not saved yet, by name. */
const begun = new Map();
/** Whether rows are being put into a list, which takes the focus from those that leave it. */
let isFilling = false;
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
  byId("conversations").addEventListener("scroll", placeMenus);
  addEventListener("resize", placeMenus);
}

/** Marks the conversation that is shown. */
export function mark(name) {
  shown = name;
  for (const button of byId("conversations").querySelectorAll("button.conversation")) {
    if (button.dataset.name === name) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
}

/** The title of a conversation that begins or was listed before; otherwise its name. */
export function titleOf(name) {
  return begun.get(name) ?? rows.get(name)?.title ?? name;
}

/** A conversation begins with this question; null once its answer is saved, from which the server knows its title. */
export function begins(name, question) {
  if (question === null) begun.delete(name);
  else begun.set(name, question.trim().split("\n")[0]);
}

/** Lists the conversations that are searched for. */
export async function refresh() {
  const search = byId("search").value.trim();
  try {
    const { conversations } = await call(`/hone/v1/conversations?search=${encodeURIComponent(search)}`);
    if (search !== byId("search").value.trim()) return;
    const [list, focused] = [byId("conversations"), document.activeElement];
    fill(list, search ? conversations.map(item) : ordered(conversations));
    if (list.contains(focused)) focused.focus();
    placeMenus();
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

/** Puts rows into a list. One that holds the focus stays where it is, with the others around it. */
function fill(list, wanted) {
  const still = wanted.findIndex((row) => row.parentNode === list && row.contains(document.activeElement));
  if (still < 0) {
    isFilling = true;
    list.replaceChildren(...wanted);
    isFilling = false;
    return;
  }
  for (const row of [...list.children]) if (!wanted.includes(row)) row.remove();
  wanted[still].before(...wanted.slice(0, still));
  wanted[still].after(...wanted.slice(still + 1));
}

function folderItem(folder, conversations) {
  const row = folderRows.get(folder) ?? newFolder(folder);
  folderRows.set(folder, row);
  row.querySelector(".quiet").textContent = String(conversations.length);
  fill(row.querySelector("ul"), conversations.map(item));
  return row;
}

function newFolder(folder) {
  const details = element(
    "details",
    { class: "folder", open: places.isOpen(folder) },
    element("summary", {}, element("span", { class: "name", text: folder }), element("span", { class: "quiet" })),
    element("ul"),
  );
  details.addEventListener("toggle", () => places.toggled(folder, details.open));
  const rename = iconButton("edit", `Rename the folder ${folder}`, () =>
    askIn(row, { label: "New name of the folder", value: folder }, rename, async (text) => {
      const wanted = text.trim();
      if (wanted && wanted !== folder) places.renameFolder(folder, wanted);
      await refresh();
    }),
  );
  const row = element("li", { class: "in-folder" }, details, rename);
  return row;
}

/** Shows a field in place of a row, then the row again with the focus on `next`. `done` is called on Enter, and when the field loses the focus. */
function askIn(row, { label, value, choices = [] }, next, done) {
  const list = element("datalist", { id: "choices" }, ...choices.map((choice) => element("option", { value: choice })));
  const field = element("input", { type: "text", "aria-label": label, placeholder: label, maxlength: "60", list: "choices" });
  const before = [...row.childNodes];
  field.value = value;
  let isDone = false;
  const finish = (isWanted) => {
    if (isDone) return;
    isDone = true;
    const hadFocus = field === document.activeElement;
    row.replaceChildren(...before);
    if (hadFocus) next.focus();
    if (isWanted) done(field.value);
  };
  field.addEventListener("keydown", (event) => {
    if (!["Enter", "Escape"].includes(event.key)) return;
    // Otherwise the key would also open the menu, whose button gets the focus.
    event.preventDefault();
    finish(event.key === "Enter");
  });
  field.addEventListener("blur", () => finish(!isFilling));
  row.replaceChildren(field, list);
  field.select();
  field.focus();
}

function item(conversation) {
  const row = rows.get(conversation.name) ?? new Row();
  rows.set(conversation.name, row);
  row.show(conversation);
  return row.element;
}

/** A conversation in the list, with its menu. */
class Row {
  constructor() {
    this.label = element("span", { class: "name" });
    this.about = element("span", { class: "quiet" });
    const choose = () => hooks.chosen(this.name);
    this.open = element("button", { type: "button", class: "conversation", onclick: choose }, this.label, this.about);
    this.more = element("summary", { class: "icon", title: "More", onclick: (event) => this.toggle(event) }, icon("more"));
    const act = (does) => () => {
      closeMenus(null);
      this.more.focus();
      does();
    };
    this.pin = action("", act(() => this.turnPin()));
    this.menu = element(
      "details",
      { class: "menu" },
      this.more,
      element(
        "div",
        {},
        this.pin,
        action("Move to a folder", act(() => this.move())),
        action("Rename", act(() => this.rename())),
        action("Export as Markdown", act(() => save(this.name, "markdown", "md"))),
        action("Export as JSON", act(() => save(this.name, "json", "json"))),
        action("Delete", act(() => remove(this.name, this.title))),
      ),
    );
    this.element = element("li", {}, this.open, this.menu);
  }

  /** Shows what is known of the conversation. */
  show({ name, title: saved, written }) {
    const title = begun.get(name) ?? saved;
    Object.assign(this, { name, title });
    const isPinned = places.isPinned(name);
    this.open.dataset.name = name;
    this.open.title = title;
    this.label.textContent = title;
    this.about.textContent = isPinned ? `Pinned · ${moment(written)}` : moment(written);
    this.more.setAttribute("aria-label", `More for ${title}`);
    this.pin.textContent = isPinned ? "Unpin" : "Pin";
  }

  /** Opens or closes the menu; it has its place at once. */
  toggle(event) {
    event.preventDefault();
    this.menu.open = !this.menu.open;
    placeMenus();
  }

  async turnPin() {
    places.pin(this.name, !places.isPinned(this.name));
    await refresh();
  }

  rename() {
    askIn(this.element, { label: "New name", value: asName(this.title) }, this.more, async (text) => {
      const wanted = asName(text);
      if (!wanted || wanted === asName(this.title)) return;
      await attempt(async () => {
        await call(conversationPath(this.name), { method: "PATCH", body: { name: wanted } });
        const old = this.name;
        rows.delete(old);
        rows.set(wanted, this);
        Object.assign(this, { name: wanted, title: wanted });
        places.renamed(old, wanted);
        hooks.renamed(old, wanted);
      });
    });
  }

  move() {
    const label = "Folder, or nothing";
    const asked = { label, value: places.folderOf(this.name), choices: places.folders() };
    askIn(this.element, asked, this.more, async (folder) => {
      places.moveTo(this.name, folder.trim());
      await refresh();
    });
  }
}

function action(text, onclick) {
  return element("button", { type: "button", text, onclick });
}

function closeMenus(except) {
  for (const open of document.querySelectorAll("details.menu[open]")) if (open !== except) open.open = false;
}

/** Shows open menus under their buttons, or above them where there is no room below. They close if the button is out of sight. */
function placeMenus() {
  const list = byId("conversations").getBoundingClientRect();
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    const [button, box] = menu.children;
    const { top, bottom, right } = button.getBoundingClientRect();
    const isBelow = bottom + box.offsetHeight <= innerHeight;
    box.style.top = `${isBelow ? bottom : Math.max(0, top - box.offsetHeight)}px`;
    box.style.left = `${Math.max(0, right - box.offsetWidth)}px`;
    menu.open = bottom > list.top && top < list.bottom;
  }
}

/** A text as a name, which is that of a file. */
function asName(text) {
  const allowed = text.replace(/[\p{Cc}/\\]+/gu, " ").replace(/^[. ]+/, "");
  return allowed.slice(0, 60).trim();
}

async function remove(name, title) {
  const option = "Also forget what is remembered of it";
  const forgets = await confirmedWith("Delete this conversation?", `“${title}” is deleted.`, "Delete", option);
  if (forgets === null) return;
  await attempt(async () => {
    await call(conversationPath(name, forgets ? "?forget=true" : ""), { method: "DELETE" });
    places.removed(name);
    rows.delete(name);
    hooks.removed(name);
  });
}

async function save(name, format, ending) {
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
