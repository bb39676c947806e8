// hone's own API. If the server needs a key, the person is asked for it once; it is kept until the tab is closed, or in this browser if wanted.

import * as drafts from "./drafts.js";
import { byId } from "./elements.js";

const KEY = "hone-key";

let asking = null;

/** The key of the link that was opened, which `hone serve --new-key` has shown. A person is asked before it is used. */
let keyOfLink = null;
takeKeyFromAddress();
addEventListener("hashchange", takeKeyFromAddress);

/** A request that the server has refused, or that did not reach it. */
export class Refused extends Error {
  constructor(message, status, code) {
    super(message);
    Object.assign(this, { status, code });
  }
}

/** Takes the key out of the address. */
function takeKeyFromAddress() {
  const key = /^#key=(.+)$/.exec(location.hash)?.[1];
  if (!key) return;
  keyOfLink = key;
  history.replaceState(null, "", location.pathname);
  if (byId("key-dialog").open) offerKeyOfLink();
}

function offerKeyOfLink() {
  byId("key").value = keyOfLink;
  byId("key-kept").checked = true;
  byId("key-note").textContent = "This is the key of the link that you opened.";
  keyOfLink = null;
}

/** The key that was right last. */
let accepted = kept();

/** The key that was given: in this tab, or for this browser. */
function kept() {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
}

function keep(key, isForBrowser) {
  for (const storage of [sessionStorage, localStorage]) storage.removeItem(KEY);
  (isForBrowser ? localStorage : sessionStorage).setItem(KEY, key);
}

/** A key is right. Another one may be another person's, who must not see the drafts of the earlier one. */
function accept(key) {
  if (accepted && key && key !== accepted) drafts.forget();
  accepted = key ?? accepted;
}

/** Sends a request, with a key if one is needed. The body is bytes, or an object that is sent as JSON. */
export async function request(path, { method = "GET", body, headers = {}, signal } = {}) {
  for (;;) {
    const key = kept();
    const all = { ...headers };
    if (key) all.Authorization = `Bearer ${key}`;
    const isBytes = body instanceof Uint8Array;
    if (body !== undefined) all["Content-Type"] = isBytes ? "application/octet-stream" : "application/json";
    const options = { method, headers: all, signal, body: isBytes ? body : JSON.stringify(body) };
    const response = await sent(path, options, key);
    if (response.status !== 401) {
      accept(key);
      if (!response.ok) throw await refused(response);
      return response;
    }
    if (kept() === key) {
      asking ??= askForKey(key !== null).finally(() => (asking = null));
      await asking;
    }
  }
}

/** Sends a request once. A key that no header can hold is not accepted. */
async function sent(path, options, key) {
  if (key && !/^[\x21-\x7e]+$/.test(key)) return new Response(null, { status: 401 });
  try {
    return await fetch(path, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("The server cannot be reached: does hone serve still run?");
  }
}

/** Sends a request and returns what came of it. */
export async function call(path, options) {
  return (await request(path, options)).json();
}

/** The server-sent events of a response: objects with `id` and `data`. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const parts = buffer.split("\n\n");
    buffer = parts.pop();
    for (const part of parts) {
      const event = parsed(part);
      if (event.data) yield event;
    }
  }
}

/** The lines of a response, each an object. */
export async function* linesOf(response) {
  let buffer = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (buffer + piece).split("\n");
    buffer = lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
  }
}

/** The path of a conversation. */
export function conversationPath(name, rest = "") {
  return `/hone/v1/conversations/${encodeURIComponent(name)}${rest}`;
}

function parsed(part) {
  const event = { id: null, data: "" };
  for (const line of part.split("\n")) {
    if (line.startsWith("id: ")) event.id = line.slice(4);
    if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event;
}

async function refused(response) {
  try {
    const { error } = await response.json();
    return new Refused(error.message ?? error, response.status, error.code);
  } catch {
    return new Refused(`the server answered with the status ${response.status}`, response.status);
  }
}

function askForKey(wasWrong) {
  const dialog = byId("key-dialog");
  byId("key").value = "";
  if (wasWrong) byId("key-note").textContent = "That key was not accepted. Try another one.";
  if (keyOfLink !== null) offerKeyOfLink();
  let isGiven = false;
  dialog.oncancel = (event) => event.preventDefault();
  // A browser lets a second Escape close it all the same, and every request waits for the key.
  dialog.onclose = () => isGiven || dialog.showModal();
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    byId("key-form").onsubmit = (event) => {
      event.preventDefault();
      keep(byId("key").value.trim(), byId("key-kept").checked);
      isGiven = true;
      dialog.close();
      resolve();
    };
  });
}
