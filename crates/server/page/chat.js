// The conversation: its turns, the question in progress, and what can be done with an answer.

import { call, conversationPath, eventsOf, request } from "./api.js";
import { badge } from "./badge.js";
import * as attachments from "./attachments.js";
import { Sides, wanted } from "./compare.js";
import * as drafts from "./drafts.js";
import { announce, byId, confirmed, copied, element, fillWithRendered, iconButton, select, selectionIn } from "./elements.js";
import * as settings from "./settings.js";

/** How near to its end a conversation follows what is written, in pixels. */
const NEAR = 80;
/** Whether there is a mouse, and so most likely a keyboard. */
const HAS_KEYBOARD = matchMedia("(hover: hover)");

/** How often a question that waits is looked for in the queue, in milliseconds. */
const QUEUE_INTERVAL = 1500;

/** How often a page tries to follow an answer again after the connection was lost, and the pauses, in milliseconds. */
const TRIES = 60;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;

/** The messages after which more is known about an answer. */
const NEWS = ["response.generation", "response.failed", "critique.result", "pairwise.result"];

// What is said below an answer that did not end by itself.
const endings = new Map([
  [null, "Stopped."],
  ["length", "Cut off at the token limit."],
  ["repetition", "Stopped because it repeated itself."],
]);

const hooks = { changed: () => {}, moved: () => {}, begins: () => {} };
/** How many conversations have been opened: only the latest is shown. */
let opened = 0;
/** `isOpen` says that a conversation is shown, which is so from when the first one was loaded. */
const state = { name: null, isOpen: false, exchanges: [], running: null, grades: true, contexts: new Map() };
/** Models of conversations of which was said that they are not offered. */
const missed = new Set();
/** The place of the grade under each answer and the answer beside it, by the answer's id. */
const judged = new Map();

/** How much of it is done, in whole per cent. */
function percent({ done, total }) {
  return Math.floor((100 * done) / Math.max(total, 1));
}

/** Begins. `changed` is called when a conversation was written, `moved` with the name of the one that is shown, `begins` with that of a new one and its question, and again with null once it is saved. */
export function start(given) {
  Object.assign(hooks, given);
  byId("ask").addEventListener("submit", async (event) => {
    event.preventDefault();
    const turn = opened;
    const isRead = await attachments.read();
    if (state.running || !isRead || turn !== opened) return;
    const question = byId("question").value.trim();
    if (!isWritten(question, attachments.all().length > 0)) return;
    const files = attachments.taken();
    write("");
    answering(new Running(attachments.joined(files, question), state.exchanges.length, { isWritten: true }));
  });
  byId("question").addEventListener("keydown", (event) => {
    if (!sends(event)) return;
    event.preventDefault();
    byId("ask").requestSubmit();
  });
  byId("question").addEventListener("input", written);
  byId("question").enterKeyHint = HAS_KEYBOARD.matches ? "send" : "enter";
  byId("stop").addEventListener("click", stop);
  byId("log").addEventListener("scroll", () => (byId("to-end").hidden = isAtEnd()));
  byId("to-end").addEventListener("click", () => toEnd());
  document.addEventListener("keydown", (event) => {
    const isMeant = event.key === "Escape" && !event.defaultPrevented && !event.isComposing;
    const closes = event.target.closest?.(".grade, dialog, details") ?? document.querySelector("details.menu[open]");
    if (isMeant && state.running && !closes) stop();
  });
}

/** The name of the conversation that is shown. */
export function current() {
  return state.name;
}

/** Whether answers are graded. */
export function expectGrades(grades) {
  state.grades = grades;
}

/** The most tokens of each model's context, by its name. */
export function expectContexts(contexts) {
  state.contexts = contexts;
}

/** Shows a conversation, or an empty one, and follows the answer that is being given in it. */
export async function open(name) {
  if (state.running && name === state.name) return;
  const turn = (opened += 1);
  state.running?.leave();
  let conversation = null;
  try {
    if (name !== null) conversation = await call(conversationPath(name));
  } catch (error) {
    if (turn === opened) throw error;
  }
  if (turn !== opened) return;
  // What was asked meanwhile was asked in another conversation.
  state.running?.leave();
  Object.assign(state, { name, exchanges: conversation?.exchanges ?? [] });
  showDraft();
  byId("turns").replaceChildren();
  settings.show(name, conversation?.system ?? "");
  draw();
  if (conversation) chooseModel(conversation.model);
  hooks.moved(name);
  focusQuestion();
  if (conversation?.is_answering) answering(new Running(null, state.exchanges.length));
}

/** Shows the draft of the conversation. */
function showDraft() {
  const { question, files } = drafts.of(state.name);
  // This was written while the first conversation was loaded.
  const early = state.isOpen ? { question: "", files: [] } : { question: byId("question").value, files: attachments.all() };
  state.isOpen = true;
  attachments.give([...files, ...early.files]);
  write(drafts.joined(question, early.question));
}

/** Other files go with the question that is being written, or one was read. */
export function keepFiles() {
  if (state.isOpen) drafts.keepFiles(state.name, attachments.all());
}

/** The conversation that is shown has another name now, null if it is not saved. Its draft stays with it. */
function nameShown(name) {
  if (state.isOpen) drafts.renamed(state.name, name);
  state.name = name;
}

/** A conversation has another name. */
export function renamed(old, name) {
  drafts.renamed(old, name);
  if (state.name !== old) return;
  state.name = name;
  hooks.moved(name);
}

/** A conversation is gone, and so is its draft. */
export async function removed(name) {
  if (state.name === name) await open(null);
  drafts.removed(name);
}

/** A judge has said something about an answer, or the second respondent has answered. */
export async function heard(envelope) {
  const { subject, correlation_id: id } = envelope;
  if (judged.has(id) && NEWS.includes(subject)) await showGrade(id);
}

/** Looks again for grades that have not come, as after a connection was lost. */
export function lookForGrades() {
  for (const [id, { place }] of judged) if (place.dataset.state === "pending") showGrade(id);
}

/** Draws the conversation around questions that are being edited, and shows its end unless an earlier place is being read. */
function draw(follows = true) {
  const [place, focused] = [byId("log").scrollTop, document.activeElement];
  const edited = [...byId("turns").querySelectorAll(".turn.user:has(.editor)")];
  const shown = (turn) => edited.find(({ dataset }) => dataset.index === turn.dataset.index) ?? turn;
  judged.clear();
  byId("turns").replaceChildren(...state.exchanges.flatMap(turnsOf).map(shown));
  if (focused.isConnected && focused !== document.activeElement) focused.focus();
  byId("welcome").hidden = state.exchanges.length > 0;
  measureContext();
  if (follows) toEnd();
  else byId("log").scrollTop = place;
  byId("to-end").hidden = isAtEnd();
}

/** Shows how much of the model's context the conversation takes. */
function measureContext() {
  const { timings, model } = state.exchanges.at(-1) ?? {};
  const taken = (timings?.prompt_tokens ?? 0) + (timings?.generation_tokens ?? 0);
  const most = state.contexts.get(model);
  const isKnown = taken > 0 && most > 0;
  const sending = HAS_KEYBOARD.matches ? "Enter sends" : "";
  byId("context").classList.toggle("known", isKnown);
  const share = element("span", { class: "narrow", text: `${Math.ceil((100 * taken) / most)} % full` });
  const counts = element("span", { class: "wide", text: `${taken} of ${most} tokens` });
  byId("context").replaceChildren(...(isKnown ? [counts, share] : [sending]));
  byId("context").title = isKnown ? "How much of the model's context the conversation takes" : "Shift + Enter begins a new line";
}

function turnsOf(exchange, index) {
  return [questionOf(exchange.question, index, exchange.branch), answerOf(exchange, index)];
}

function questionOf(question, index, branch) {
  const { files, question: asked } = attachments.split(question);
  const text = element("div", { class: "text", text: asked });
  if (files.length > 0) text.prepend(filesOf(files));
  const actions = element("div", { class: "actions" });
  const turn = element(
    "article",
    { class: "turn user", "data-index": String(index) },
    element("h2", { class: "hidden", text: "You" }),
    text,
    actions,
  );
  if (branch) actions.append(iconButton("edit", "Edit the question", () => edit(turn, question, index)));
  const copy = iconButton("copy", "Copy the question", () => copied(copy, question));
  actions.append(copy);
  if (branch?.count > 1) turn.append(branches(index, branch));
  return turn;
}

/** The files that went with a question, each of which can be opened. */
function filesOf(files) {
  const item = ({ name, text }) =>
    element("details", { class: "file" }, element("summary", { text: name }), element("pre", { text, tabindex: "0" }));
  return element("div", { class: "files" }, ...files.map(item));
}

/** Leads to the other branches that begin in the place of a question. */
function branches(index, { number, count }) {
  const to = (name, label, other) =>
    iconButton(name, label, () => showBranch(index, other), { disabled: other < 1 || other > count });
  return element(
    "div",
    { class: "branches", role: "group", "aria-label": "Branches" },
    to("left", "Earlier branch", number - 1),
    element("span", { class: "quiet", text: `${number}/${count}` }),
    to("right", "Later branch", number + 1),
  );
}

async function showBranch(index, number) {
  if (state.running) return;
  try {
    const path = conversationPath(state.name, "/branch");
    const { exchanges } = await call(path, { method: "POST", body: { index, number } });
    const isLater = number > state.exchanges[index].branch.number;
    state.exchanges = exchanges;
    draw(false);
    announce(`Branch ${number} of ${exchanges[index].branch.count}`);
    focusBranch(index, isLater);
    hooks.changed();
  } catch (error) {
    complain(error.message);
  }
}

/** Keeps the keyboard where it was: at the way that was taken, or the way back at its end. */
function focusBranch(index, isLater) {
  const buttons = [...byId("turns").querySelectorAll(".turn.user")[index].querySelectorAll(".branches button")];
  const wanted = isLater ? buttons.reverse() : buttons;
  wanted.find((button) => !button.disabled)?.focus();
}

function answerOf(exchange, index) {
  const { answer, html, model, thinking, query_id: id } = exchange;
  const content = element("div", { class: "content" });
  fillWithRendered(content, html);
  const copy = iconButton("copy", "Copy the answer", () => copied(copy, answer));
  const redo = iconButton("redo", "Answer again", () => again(index));
  const actions = element("div", { class: "actions" }, copy, redo);
  if (exchange.is_cut_off && index === state.exchanges.length - 1) {
    actions.append(element("button", { type: "button", class: "quiet", text: "Continue", onclick: () => goOn(index) }));
  }
  if (id) actions.append(...thumbs(exchange));
  const foot = element("footer", {}, actions, element("span", { class: "quiet", text: cost(exchange) }));
  const sides = new Sides(content, model);
  if (id) foot.append(sides.note, gradePlace(id, exchange, sides));
  return element(
    "article",
    { class: "turn answer" },
    element("h2", { class: "hidden", text: "hone" }),
    thinking ? thoughts(thinking) : null,
    memories(exchange.recalled),
    sides.verdict,
    sides.box,
    endings.has(exchange.finish_reason)
      ? element("p", { class: "quiet", text: endings.get(exchange.finish_reason) })
      : null,
    foot,
  );
}

/** What was recalled for an answer; each can be forgotten. */
function memories(recalled) {
  if (!recalled?.length) return null;
  const title = `${recalled.length} ${recalled.length === 1 ? "memory" : "memories"} used`;
  const items = recalled.map((engram) => memoryOf(engram, recalled));
  return element(
    "details",
    { class: "thinking memories" },
    element("summary", { text: title }),
    element("ul", {}, ...items),
  );
}

function memoryOf(engram, recalled) {
  const { query_id: id, query } = engram;
  const forget = async () => {
    if (!(await confirmed("Forget this?", `“${query}” is removed from memory.`, "Forget"))) return;
    try {
      await call(`/hone/v1/memory/${id}`, { method: "DELETE" });
      recalled.splice(recalled.indexOf(engram), 1);
      item.replaceChildren(element("span", { class: "quiet", text: "Forgotten" }));
    } catch (error) {
      complain(error.message);
    }
  };
  const button = element("button", { type: "button", class: "quiet", text: "Forget", "aria-label": `Forget: ${query}`, onclick: forget });
  const item = element("li", {}, element("span", { text: query }), " ", button);
  return item;
}

function thoughts(text) {
  const body = element("div", { class: "thoughts", text });
  return element("details", { class: "thinking" }, element("summary", { text: "Thinking" }), body);
}

function cost({ model, timings }) {
  const speed = timings?.generation_tokens_per_second;
  return speed ? `${model} · ${speed.toFixed(speed < 10 ? 1 : 0)} tokens/s` : model;
}

function thumbs(exchange) {
  const buttons = [
    ["up", "Good answer", "good"],
    ["down", "Bad answer", "bad"],
  ].map(([name, label, value]) => {
    const pressed = String(exchange.rating === value);
    return iconButton(name, label, () => rate(exchange, exchange.rating === value ? null : value, buttons), { "aria-pressed": pressed, "data-rating": value });
  });
  return buttons;
}

async function rate(exchange, rating, buttons) {
  try {
    await call("/hone/v1/feedback", { method: "POST", body: { query_id: exchange.query_id, rating } });
    exchange.rating = rating;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.rating === rating));
  } catch (error) {
    complain(error.message);
  }
}

// Grades

function gradePlace(id, exchange, sides) {
  const { grade, isGraded, finish_reason: reason, isCompared } = exchange;
  const place = element("span", { class: "grade-place" });
  judged.set(id, { place, sides, exchange });
  if (isCompared) sides.wait();
  if (grade) sides.update(grade);
  if (grade?.badge || isGraded) settle(place, grade);
  else if (state.grades && reason !== null) pending(place);
  if (place.dataset.state === "pending") showGrade(id);
  return place;
}

function settle(place, grade) {
  const made = badge(grade);
  const reason = grade?.failure ?? grade?.feedback;
  place.dataset.state = "settled";
  if (!made && grade?.failure === undefined && reason) place.replaceChildren(remark("no mark", `The judge cannot tell. ${reason}`));
  else if (!made && reason) place.replaceChildren(remark("not graded", reason));
  else place.replaceChildren(...(made ? [made] : []));
}

/** Words in the place of a badge, with the reason behind them. */
function remark(text, reason) {
  return element("details", { class: "remark" }, element("summary", { class: "quiet", text }), element("span", { class: "quiet", text: reason }));
}

function pending(place, reason) {
  place.dataset.state = "pending";
  const reading = () => element("span", { class: "quiet", text: "grading…", title: "A judge reads the answer" });
  place.replaceChildren(reason ? remark("grading waits", reason) : reading());
}

async function showGrade(id) {
  const { place, sides, exchange } = judged.get(id);
  try {
    const grade = await call(`/hone/v1/critique/${id}`);
    sides.update(grade);
    if (grade.status === "pending") return pending(place, grade.failure);
    // The conversation is drawn again with the next question.
    Object.assign(exchange, { grade, isGraded: true });
    const isNew = place.dataset.state !== "settled" && grade.badge;
    settle(place, grade);
    if (isNew) announce(grade.score === null ? `Answer ${grade.badge.text.slice(2)}` : `Grade ${grade.score} of 5`);
  } catch {
    // Without memory, a grade from before the server was started is not known.
    place.replaceChildren();
  }
}

// Questions

/** Whether a key sends what is written. The keyboard of a phone has no other key than Enter for a new line. */
function sends(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing && HAS_KEYBOARD.matches;
}

/** Whether there is a question; files alone are none. */
function isWritten(question, hasFiles) {
  if (!question && hasFiles) complain("Write a question that goes with the files.");
  return question !== "";
}

/** Asks a question after the first `keep` exchanges; those after it stay as another branch. */
function ask(question, keep, options) {
  return answering(new Running(question, keep, options));
}

/** Shows an answer while it is given. */
async function answering(running) {
  state.running = running;
  setBusy(true);
  try {
    await running.run();
  } catch (error) {
    running.fail(error);
  }
  if (state.running === running) {
    state.running = null;
    setBusy(false);
  }
  hooks.changed();
}

function again(index) {
  if (!state.running) ask(state.exchanges[index].question, index);
}

/** Has the model continue an answer that was cut off. */
function goOn(index) {
  if (!state.running) ask(state.exchanges[index].question, index, { continues: true });
}

function edit(turn, question, index) {
  const field = element("textarea", { class: "editor", "aria-label": "Question", rows: "3" });
  const list = element("ul", { class: "attached", "aria-label": "Files that go with the question" });
  let { files, question: asked } = attachments.split(question);
  field.value = asked;
  const show = (wanted) => {
    files = wanted;
    attachments.show(list, files, show);
    field.focus();
  };
  const cancel = () => {
    const shown = questionOf(question, index, state.exchanges[index].branch);
    turn.replaceWith(shown);
    shown.querySelector(".actions button").focus();
  };
  const send = () => {
    const text = field.value.trim();
    if (!state.running && isWritten(text, files.length > 0)) ask(attachments.joined(files, text), index);
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      cancel();
    }
    if (!sends(event)) return;
    event.preventDefault();
    send();
  });
  const bar = element(
    "div",
    { class: "bar" },
    element("button", { type: "button", text: "Cancel", onclick: cancel }),
    element("button", { type: "button", class: "primary", text: "Ask again", onclick: send }),
  );
  turn.replaceChildren(element("h2", { class: "hidden", text: "You" }), list, field, bar);
  show(files);
}

async function stop() {
  announce("Stopping");
  await state.running?.stop();
}

function setBusy(isBusy) {
  byId("send").hidden = isBusy;
  byId("stop").hidden = !isBusy;
}

/** A question that is being answered; without a question, the one that is being answered in the conversation already. */
class Running {
  /** `isWritten` says that the question comes from the field for it, `continues` that the earlier answer to it is continued. */
  constructor(question, keep, { isWritten = false, continues = false } = {}) {
    Object.assign(this, { question, keep, isWritten, continues, name: state.name, abort: new AbortController(), isShown: true, last: 0 });
    this.model = byId("model").value;
    this.second = wanted();
    this.status = element("p", { class: "quiet waiting", text: "Reading the question…" });
    this.content = element("div", { class: "content" });
    this.thoughts = null;
    this.turn = element(
      "article",
      { class: "turn answer running" },
      element("h2", { class: "hidden", text: "hone" }),
      ...(continues ? [this.content, this.status] : [this.status, this.content]),
    );
    this.before = state.exchanges;
    if (continues) fillWithRendered(this.content, this.before[keep].html);
    if (question !== null) this.show();
    announce("Answering");
  }

  /** Shows the question behind the exchanges that come before it. */
  show() {
    state.exchanges = state.exchanges.slice(0, this.keep);
    draw();
    byId("welcome").hidden = true;
    byId("turns").append(questionOf(this.question, this.keep), this.turn);
    grow();
    toEnd();
  }

  /** Asks, or follows, until the answer has ended or is shown no more. */
  async run() {
    this.watchQueue();
    let response = this.question === null ? await this.rest() : await this.asked();
    while (response && this.isShown) {
      await this.read(response);
      if (this.hasEnded || !this.isShown) return;
      response = await this.rest();
    }
    if (this.isShown) await this.showSaved();
  }

  /** It ended before it could be followed again: shows the answer that was saved, or that there is none. */
  async showSaved() {
    const saved = this.name && (await call(conversationPath(this.name)).catch(() => null));
    if (!this.isShown) return;
    const isSaved = this.question === null || saved?.exchanges.at(this.keep)?.query_id === this.id;
    if (!saved || !isSaved) return this.fail({ message: "The connection was lost, and the question has no answer." });
    this.leave();
    await open(this.name);
  }

  asked() {
    const body = { question: this.question, conversation: this.name, keep: this.keep, ...this.second, ...settings.wanted() };
    const after = this.before[this.continues ? this.keep : this.keep - 1]?.query_id;
    if (after) body.after = after;
    if (this.continues) body.continues = true;
    else if (this.model) body.model = this.model;
    return request("/hone/v1/chat", { method: "POST", body, signal: this.abort.signal });
  }

  /** The events that are still to come; null once nothing is being answered. */
  async rest() {
    for (let tries = 1; this.name; tries += 1) {
      try {
        const headers = { "Last-Event-ID": String(this.last) };
        return await request(conversationPath(this.name, "/answer"), { headers, signal: this.abort.signal });
      } catch (error) {
        if (error.status === 404 || !this.isShown) return null;
        if (tries === TRIES || error.status) throw error;
        this.status.textContent = "The connection was lost. Trying again…";
        const pause = Math.min(FIRST_PAUSE * 2 ** (tries - 1), LONGEST_PAUSE);
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
    throw new Error("The connection was lost.");
  }

  async read(response) {
    try {
      for await (const { id, data } of eventsOf(response)) {
        if (!this.isShown) return;
        this.last = Number(id);
        const follows = isAtEnd();
        this.take(JSON.parse(data));
        if (follows) toEnd();
      }
    } catch {
      // The connection was lost, or given up.
    }
  }

  take(event) {
    switch (event.type) {
      case "begun":
        this.begin(event);
        break;
      case "loading":
        this.status.textContent = `Loading the model… ${percent(event)} %`;
        break;
      case "prefill":
        this.isRead = true;
        this.status.textContent = `Reading… ${percent(event)} %`;
        break;
      case "recalled":
        this.recall(event.engrams);
        break;
      case "thinking":
        this.think(event.text);
        break;
      case "html":
        this.draw(event.html);
        break;
      case "answered":
        this.end(event);
        break;
      case "stopped":
        this.hasEnded = true;
        hooks.begins(this.name, null);
        this.restore();
        break;
      case "failed":
        this.fail(event.error);
        break;
    }
  }

  /** Shows the queue until the question is read. */
  async watchQueue() {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, QUEUE_INTERVAL));
      if (this.isRead || this.hasEnded || !this.status.isConnected) return;
      const { processes } = await call("/hone/v1/ps").catch(() => ({ processes: [] }));
      const queue = processes.flatMap((process) => process.queue).filter(({ lane }) => lane === "interactive");
      if (queue.length === 0 || this.isRead) continue;
      const wait = Math.ceil(Math.max(...queue.map((queued) => queued.wait_seconds)));
      this.status.textContent = `In the queue with ${queue.length} waiting, about ${wait} s`;
    }
  }

  begin({ conversation: name, question, index, query_id: id, continues }) {
    Object.assign(this, { name, id, continues });
    if (this.isUnwanted) this.stop();
    if (this.question === null) {
      Object.assign(this, { question, keep: index });
      this.show();
    }
    if (state.name === name) return;
    nameShown(name);
    settings.named(name);
    hooks.begins(name, attachments.split(this.question).question);
    hooks.moved(name);
    hooks.changed();
  }

  recall(engrams) {
    const used = memories(engrams);
    if (used) this.content.before(used);
  }

  think(text) {
    if (!this.thoughts) {
      const details = thoughts("");
      this.thoughts = details.lastChild;
      this.content.before(details);
    }
    this.status.textContent = "Thinking…";
    this.thoughts.append(text);
  }

  draw(html) {
    // An answer that is continued is shown before it grows.
    if (this.continues && html === this.before[this.keep]?.html) return;
    this.status.remove();
    fillWithRendered(this.content, html);
  }

  end({ index, exchange, is_compared: isCompared, left_out: leftOut, is_remembered: isRemembered, is_saved: isSaved }) {
    this.hasEnded = true;
    hooks.begins(this.name, null);
    settings.saved();
    state.exchanges = [...state.exchanges.slice(0, index), { ...exchange, isCompared }];
    const [selected, earlier] = [selectionIn(this.content), selectionIn(byId("turns"))];
    draw(isAtEnd());
    if (selected) select([...byId("turns").querySelectorAll(".answer .content")].at(-1), selected);
    else if (earlier) select(byId("turns"), earlier);
    if (document.activeElement === document.body) focusQuestion();
    if (leftOut > 0) {
      complain(`The conversation is too long for the model: it did not see the first ${leftOut} exchanges.`);
    }
    if (!isRemembered) complain("This answer could not be remembered, and it is not graded: the server's log says why.");
    if (exchange.branch?.count > 1 && !this.continues && this.before.length === index) {
      complain("Another window has answered in this conversation meanwhile: its answer is the other branch of this question.");
    }
    if (!isSaved) {
      complain("This answer is not saved: its conversation was deleted or renamed elsewhere. The next question begins a new one.");
      nameShown(null);
      showDraft();
      hooks.moved(null);
    }
    announce(exchange.finish_reason === null ? "Stopped" : "Answered");
  }

  fail({ message, code }) {
    this.hasEnded = true;
    hooks.begins(this.name, null);
    if (!this.isShown) return;
    const isGone = this.name && code === "conversation_not_found";
    if (isGone) this.before = [];
    this.restore();
    complain(isGone ? "This conversation was deleted or renamed elsewhere. The next question begins a new one." : message);
  }

  /** Shows what was there before, with the question where it can be asked again. */
  restore() {
    state.exchanges = this.before;
    if (state.exchanges.length === 0) {
      nameShown(null);
      showDraft();
    }
    draw();
    hooks.moved(state.name);
    const draft = byId("question").value;
    const canAsk = this.question !== null && !this.continues;
    if (canAsk && (this.isWritten || !draft)) write(drafts.joined(attachments.restored(this.question), draft));
  }

  async stop() {
    // A new conversation has no name before its answer has begun.
    this.isUnwanted = true;
    if (this.name) await call(conversationPath(this.name, "/stop"), { method: "POST", body: {} });
  }

  /** Another conversation is shown; the answer goes on. */
  leave() {
    this.isShown = false;
    this.abort.abort();
    state.running = null;
    setBusy(false);
  }
}

// What is seen

/** Says at the end of the conversation what went wrong. */
export function complain(message) {
  const text = element("span", { text: message });
  const complaint = element("div", { class: "complaint", role: "alert" }, text);
  complaint.append(iconButton("close", "Dismiss", () => complaint.remove()));
  byId("turns").append(complaint);
  toEnd();
}

function chooseModel(name) {
  const models = byId("model");
  if ([...models.options].some((option) => option.value === name)) models.value = name;
  else if (name && !missed.has(name)) {
    missed.add(name);
    complain(`${name} is not offered here: ${models.value} answers from here on.`);
  }
}

/** Makes ready for the next question; a phone would show its keyboard. */
function focusQuestion() {
  if (HAS_KEYBOARD.matches) byId("question").focus();
}

function isAtEnd() {
  const log = byId("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < NEAR;
}

function toEnd() {
  const log = byId("log");
  log.scrollTop = log.scrollHeight;
}

/** Puts a text into the field for the question. */
function write(text) {
  byId("question").value = text;
  written();
}

/** The question that is being written has changed. */
function written() {
  grow();
  if (state.isOpen) drafts.keepQuestion(state.name, byId("question").value);
}

function grow() {
  const field = byId("question");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}
