// The page: puts its parts together. It holds no answers of its own; all of them come from hone's API.

import { call } from "./api.js";
import * as chat from "./chat.js";
import { offer } from "./compare.js";
import { byId, element, icon } from "./elements.js";
import * as appearance from "./appearance.js";
import * as attachments from "./attachments.js";
import * as models from "./models.js";
import * as monitor from "./monitor.js";
import * as panels from "./panels.js";
import * as settings from "./settings.js";
import * as sidebar from "./sidebar.js";

const PLACE = "#/c/";
const NARROW = matchMedia("(max-width: 800px)");

for (const [id, name, text] of [
  ["close-sidebar", "close"],
  ["open-sidebar", "menu"],
  ["open-panel", "panel"],
  ["open-settings", "settings"],
  ["show-keys", "keys"],
  ["attach", "clip"],
  ["close-panel", "close"],
  ["to-end", "end"],
  ["new", "plus", "New conversation"],
  ["send", "send", "Send"],
  ["stop", "stop", "Stop"],
]) {
  byId(id).append(icon(name), ...(text ? [element("span", { text })] : []));
}

byId("open-sidebar").addEventListener("click", () => showSidebar(true));
byId("close-sidebar").addEventListener("click", () => showSidebar(false));
byId("log").addEventListener("click", () => document.body.classList.remove("with-sidebar"));
addEventListener("hashchange", openPlace);

appearance.start();
attachments.start({ failed: (message) => chat.complain(message), changed: () => chat.keepFiles() });
settings.start();
chat.start({ changed, moved, begins: sidebar.begins });
sidebar.start({
  chosen: (name) => {
    if (NARROW.matches) showSidebar(false);
    if (name === place()) openPlace();
    else location.hash = name === null ? "" : PLACE + encodeURIComponent(name);
  },
  renamed: (old, name) => {
    settings.moved(old, name);
    chat.renamed(old, name);
  },
  removed: (name) => {
    settings.removed(name);
    chat.removed(name);
  },
  failed: (message) => chat.complain(message),
});
models.start(() => offerModels().catch((error) => chat.complain(error.message)));
panels.start();

await begin();

async function begin() {
  try {
    const [{ grades }] = await Promise.all([call("/hone/v1/ps"), offerModels()]);
    chat.expectGrades(grades);
  } catch (error) {
    chat.complain(error.message);
  }
  monitor.follow({ heard, connected });
  await Promise.all([openPlace(), changed()]);
  entitle(chat.current());
}

/** Offers the installed models that answer; the chosen one stays chosen. */
async function offerModels() {
  const listed = await call("/hone/v1/models");
  const answering = listed.models.filter((model) => model.answers);
  const names = [...new Set([listed.default, ...answering.map((model) => model.name)])];
  const chosen = byId("model").value;
  chat.expectContexts(new Map(answering.map((model) => [model.name, model.context])));
  byId("model").replaceChildren(...names.map((name) => element("option", { value: name, text: short(name) })));
  if (names.includes(chosen)) byId("model").value = chosen;
  offer(names, listed.respondent_b);
}

/** The conversation that the address names. */
function place() {
  return location.hash.startsWith(PLACE) ? decodeURIComponent(location.hash.slice(PLACE.length)) : null;
}

async function openPlace() {
  try {
    await chat.open(place());
  } catch (error) {
    history.replaceState(null, "", "#");
    await chat.open(null);
    chat.complain(error.message);
  }
}

function moved(name) {
  entitle(name);
  if (name !== place()) history.replaceState(null, "", name === null ? "#" : PLACE + encodeURIComponent(name));
  sidebar.mark(name);
}

async function changed() {
  await sidebar.refresh();
  entitle(chat.current());
}

function entitle(name) {
  const title = name === null ? "New conversation" : sidebar.titleOf(name);
  byId("title").textContent = title;
  document.title = name === null ? "hone" : `${title} – hone`;
}

function heard(envelope) {
  chat.heard(envelope);
  if (envelope.subject === "critique.result") panels.refresh();
  if (envelope.subject.startsWith("critic.")) panels.refreshBlocks();
}

function connected(isConnected) {
  byId("state").textContent = isConnected ? "" : "The server does not answer. Trying again…";
  if (isConnected) chat.lookForGrades();
}

function showSidebar(isOpen) {
  document.body.classList.toggle("with-sidebar", isOpen);
  byId(isOpen ? "close-sidebar" : "open-sidebar").focus();
}

/** A model's name without the folders of its file. */
function short(name) {
  return name.split("/").pop();
}
