// Text files that go with the next question, in the form in which `hone chat -f` sends them.

import { byId, bytes, element, iconButton } from "./elements.js";

/** The largest file, in bytes: more than most contexts hold. */
const LARGEST = 1 << 20;
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
  if (file.size > LARGEST) throw new Error(`it is ${bytes(file.size)}; the limit is ${bytes(LARGEST)}.`);
  const content = new Uint8Array(await file.arrayBuffer());
  if (content.includes(0)) throw new Error("it is not a text file.");
  try {
    return { name: file.name, text: new TextDecoder("utf-8", { fatal: true }).decode(content) };
  } catch {
    throw new Error("it is not a text file in UTF-8.");
  }
}

function draw() {
  const chip = (file) => {
    const discard = iconButton("close", `Do not send ${file.name}`, () => {
      attached = attached.filter((other) => other !== file);
      draw();
      byId("question").focus();
    });
    return element("li", { class: "file" }, element("span", { class: "name", text: file.name }), discard);
  };
  byId("attached").replaceChildren(...attached.map(chip));
  byId("attached").hidden = attached.length === 0;
}

/** Whether files go with the next question. */
export function any() {
  return attached.length > 0;
}

/** Waits until every file that was given has been read. */
export function read() {
  return reading;
}

/** The question of a text that was not answered; its files go with the next question again. */
export function restored(text) {
  const { files, question } = split(text);
  attached = [...files, ...attached];
  draw();
  return question;
}

/** The question with the files before it, which then go with no other. */
export function composed(question) {
  const block = ({ name, text }) => {
    const runs = [...text.matchAll(/`+/g)].map(([run]) => run.length);
    const fence = "`".repeat(Math.max(2, ...runs) + 1);
    return `File: ${name.replace(/\s+/g, " ")}\n${fence}\n${text.trimEnd()}\n${fence}\n\n`;
  };
  const text = attached.map(block).join("") + question;
  attached = [];
  draw();
  return text;
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
