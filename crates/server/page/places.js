// Where conversations are in the list: pinned, or in folders. This browser keeps it.

const PINNED = "hone-pinned";
const FOLDERS = "hone-folders";
const CLOSED = "hone-closed-folders";

/** Whether a conversation is pinned. */
export function isPinned(name) {
  return names(PINNED).has(name);
}

/** Pins a conversation, or no longer. */
export function pin(name, isWanted) {
  change(PINNED, name, isWanted);
}

/** The folder of a conversation; empty without one. */
export function folderOf(name) {
  return assigned().get(name) ?? "";
}

/** Puts a conversation into a folder, or with an empty name out of its folder. */
export function moveTo(name, folder) {
  const all = assigned();
  all.delete(name);
  if (folder) all.set(name, folder);
  keep(FOLDERS, Object.fromEntries(all));
}

/** The folders that hold something. */
export function folders() {
  return [...new Set(assigned().values())].sort((one, other) => one.localeCompare(other));
}

/** Gives a folder another name, which may be that of a folder that is there. */
export function renameFolder(old, name) {
  const [wasOpen, all] = [isOpen(old), assigned()];
  for (const [conversation, folder] of all) if (folder === old) all.set(conversation, name);
  keep(FOLDERS, Object.fromEntries(all));
  toggled(old, true);
  toggled(name, wasOpen);
}

/** Whether the conversations of a folder are shown. */
export function isOpen(folder) {
  return !names(CLOSED).has(folder);
}

/** A folder was opened or closed. */
export function toggled(folder, isOpenNow) {
  change(CLOSED, folder, !isOpenNow);
}

/** A conversation has another name. */
export function renamed(old, name) {
  const [wasPinned, folder] = [isPinned(old), folderOf(old)];
  removed(old);
  pin(name, wasPinned);
  moveTo(name, folder);
}

/** A conversation is gone. */
export function removed(name) {
  pin(name, false);
  moveTo(name, "");
}

/** The folders of conversations, by name. What is not one in a damaged entry is left out. */
function assigned() {
  return new Map(Object.entries(kept(FOLDERS)).filter(([, folder]) => typeof folder === "string" && folder));
}

function names(key) {
  const list = kept(key);
  return new Set(Array.isArray(list) ? list : []);
}

function change(key, name, isIn) {
  const all = names(key);
  if (isIn) all.add(name);
  else all.delete(name);
  keep(key, [...all]);
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
