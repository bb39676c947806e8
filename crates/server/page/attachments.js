// Texts and PDFs that go with the next question, in the form in which `hone chat -f` sends them.

import { call } from "./api.js";
import { byId, bytes, element, iconButton } from "./elements.js";

/** The largest text, in bytes: more than most contexts hold. */
const LARGEST = 1 << 20;
/** The largest PDF, in bytes: `server.most_body` is the same. */
const LARGEST_PDF = 8 << 20;
/** The bytes with which a PDF begins. */
const PDF = "%PDF-";
/** The bytes within which it does. */
const MOST_BEFORE = 1024;
/** A file before a question: its name, a fence, its text, and the same fence. */
const BLOCK = /^File: ([^\n]+)\n(`{3,})\n([\s\S]*?)\n\2\n\n/;

/**
 * What goes with the next question: objects with `name` and `text`, which is null until the file is read, or if it cannot be.
 * `isRead` then says, once that is known, whether it could be, and `isUnreadable` is true if it could not.
 */
let attached = [];
const hooks = { failed: () => {}, changed: () => {} };

/** Begins. `failed` is called with what is wrong with a file, `changed` when other files go with the next question or one was read. */
export function start({ failed, changed }) {
  Object.assign(hooks, { failed, changed });
  const input = byId("files");
  byId("attach").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    add([...input.files]);
    input.value = "";
  });
  byId("question").addEventListener("paste", (event) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    add([...event.clipboardData.files]);
  });
  const holds = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!holds(event)) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("dropping"));
  addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!holds(event)) return;
    event.preventDefault();
    add([...event.dataTransfer.files]);
  });
}

function add(files) {
  give([...attached, ...files.map(begun)]);
  byId("question").focus();
}

/** A file that is being read. */
function begun(file) {
  const item = { name: file.name, text: null };
  item.isRead = textOf(file).then(
    (text) => ((item.text = text), true),
    (error) => ((item.isUnreadable = true), hooks.failed(`${file.name}: ${error.message}`), false),
  );
  item.isRead.then(() => give(attached));
  return item;
}

/** Whether a file is a PDF, by its first bytes. Others may come before it, if they are not those of a text. */
function begins(beginning) {
  return beginning.startsWith(PDF) || (beginning.includes(PDF) && /[\0\ufffd]/.test(beginning));
}

async function textOf(file) {
  const isPdf = begins(await file.slice(0, MOST_BEFORE).text());
  within(isPdf ? LARGEST_PDF : LARGEST, file.size, "it");
  const content = new Uint8Array(await file.arrayBuffer());
  if (isPdf) return textOfPdf(content);
  if (content.includes(0)) throw new Error("it is neither a text file nor a PDF.");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    throw new Error("it is not a text file in UTF-8.");
  }
}

async function textOfPdf(body) {
  const { text } = await call("/hone/v1/text", { method: "POST", body });
  within(LARGEST, new Blob([text]).size, "its text");
  return text;
}

function within(limit, size, what) {
  if (size > limit) throw new Error(`${what} is ${bytes(size)}; the limit is ${bytes(limit)}.`);
}

/** Shows files in a list, where each can be discarded: `changed` is called with the others. */
export function show(list, files, changed) {
  const chip = (file) => {
    const others = () => files.filter((other) => other !== file);
    const discard = iconButton("close", `Do not send ${file.name}`, () => changed(others()));
    const reading = file.text === null ? [element("span", { class: "quiet", text: "reading…" })] : [];
    return element("li", { class: "file" }, element("span", { class: "name", text: file.name }), ...reading, discard);
  };
  list.replaceChildren(...files.map(chip));
  list.hidden = files.length === 0;
}

/** Waits until every file has been read, and says whether all could be. */
export async function read() {
  const read = await Promise.all(attached.map(({ isRead }) => isRead ?? true));
  return read.every(Boolean);
}

/** The question of a text; its files go with the next question again. */
export function restored(text) {
  const { files, question } = split(text);
  give([...files, ...attached]);
  return question;
}

/** The files that go with the next question. */
export function all() {
  return attached;
}

/** The files, which then go with no question. */
export function taken() {
  const files = attached;
  give([]);
  return files;
}

/** These files go with the next question, except for those that have turned out to be no text. */
export function give(files) {
  attached = files.filter(({ isUnreadable }) => !isUnreadable);
  show(byId("attached"), attached, (others) => {
    give(others);
    byId("question").focus();
  });
  hooks.changed();
}

/** A question with files before it. */
export function joined(files, question) {
  const block = ({ name, text }) => {
    const runs = [...text.matchAll(/`+/g)].map(([run]) => run.length);
    const fence = "`".repeat(Math.max(2, ...runs) + 1);
    return `File: ${name.replace(/\s+/g, " ")}\n${fence}\n${text.trimEnd()}\n${fence}\n\n`;
  };
  return files.map(block).join("") + question;
}

/** The files before a question, and the question itself. */
export function split(text) {
  const files = [];
  for (let found = BLOCK.exec(text); found; found = BLOCK.exec(text)) {
    files.push({ name: found[1], text: found[3] });
    text = text.slice(found[0].length);
  }
  return { files, question: text };
}
