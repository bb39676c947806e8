// Texts and PDFs that go with the next question, in the form in which `hone chat -f` sends them.

import { call } from "./api.js";
import { byId, bytes, element, iconButton } from "./elements.js";

/** The largest text, in bytes: more than most contexts hold. */
const LARGEST = 1 << 20;
/** The largest PDF, in bytes: `server.most_body` is the same. */
const LARGEST_PDF = 8 << 20;
/** The bytes with which a PDF begins. */
const PDF = "%PDF-";
/** A file before a question: its name, a fence, its text, and the same fence. */
const BLOCK = /^File: ([^\n]+)\n(`{3,})\n([\s\S]*?)\n\2\n\n/;

/** What goes with the next question: objects with `name` and `text`. */
let attached = [];
/** Settled once every file that was given has been read. */
let reading = Promise.resolve();

/** Begins. `failed` is called with what is wrong with a file. */
export function start(failed) {
  const input = byId("files");
  byId("attach").addEventListener("click", () => input.click());
  input.addEventListener("change", async () => {
    await add([...input.files], failed);
    input.value = "";
  });
  byId("question").addEventListener("paste", (event) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    add([...event.clipboardData.files], failed);
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
    add([...event.dataTransfer.files], failed);
  });
}

function add(files, failed) {
  reading = reading.then(() => addAll(files, failed));
  return reading;
}

async function addAll(files, failed) {
  for (const file of files) {
    try {
      attached.push(await textOf(file));
    } catch (error) {
      failed(`${file.name}: ${error.message}`);
    }
  }
  draw();
  byId("question").focus();
}

async function textOf(file) {
  const isPdf = (await file.slice(0, PDF.length).text()) === PDF;
  within(isPdf ? LARGEST_PDF : LARGEST, file.size, "it");
  const content = new Uint8Array(await file.arrayBuffer());
  if (isPdf) return { name: file.name, text: await textOfPdf(content) };
  if (content.includes(0)) throw new Error("it is not a text file.");
  try {
    return { name: file.name, text: new TextDecoder("utf-8", { fatal: true }).decode(content) };
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

function draw() {
  show(byId("attached"), attached, (others) => {
    attached = others;
    draw();
    byId("question").focus();
  });
}

/** Shows files in a list, where each can be discarded: `changed` is called with the others. */
export function show(list, files, changed) {
  const chip = (file) => {
    const others = () => files.filter((other) => other !== file);
    const discard = iconButton("close", `Do not send ${file.name}`, () => changed(others()));
    return element("li", { class: "file" }, element("span", { class: "name", text: file.name }), discard);
  };
  list.replaceChildren(...files.map(chip));
  list.hidden = files.length === 0;
}

/** Whether files go with the next question. */
export function any() {
  return attached.length > 0;
}

/** Waits until every file that was given has been read. */
export function read() {
  return reading;
}

/** The question of a text; its files go with the next question again. */
export function restored(text) {
  const { files, question } = split(text);
  attached = [...files, ...attached];
  draw();
  return question;
}

/** The question with the attached files before it, which then go with no other. */
export function composed(question) {
  const text = joined(attached, question);
  attached = [];
  draw();
  return text;
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
