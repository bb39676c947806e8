// The messages between the agents, as they come.

import { eventsOf, request } from "./api.js";
import { byId, element, icon } from "./elements.js";

/** The most messages that are shown. */
const MOST = 300;

/** How long after a lost connection the page connects again, in milliseconds. */
const PAUSE = 2000;

const shown = [];
let last = null;
let isPaused = false;
let isConnected = true;

/** Follows the bus as long as the page is open. `heard` is called with every message, `connected` when that changes. */
export async function follow({ heard, connected }) {
  for (;;) {
    try {
      const headers = last ? { "Last-Event-ID": last } : {};
      const response = await request("/hone/v1/events?last=50", { headers });
      tell(true, connected);
      for await (const { id, data } of eventsOf(response)) {
        last = id;
        take(JSON.parse(data), heard);
      }
    } catch {
      tell(false, connected);
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

/** Fills the panel. */
export function draw() {
  const filter = element("input", { type: "search", id: "filter", placeholder: "Filter", oninput: list });
  const pause = element("button", { type: "button", "aria-pressed": String(isPaused), onclick: () => toggle(pause) });
  label(pause);
  byId("events").replaceChildren(
    element(
      "div",
      { class: "bar" },
      element("label", { class: "grow" }, element("span", { class: "hidden", text: "Filter the events" }), filter),
      pause,
    ),
    element("ol", { id: "event-list", class: "events" }),
  );
  list();
}

function take(envelope, heard) {
  shown.push(envelope);
  if (shown.length > MOST) shown.shift();
  if (!isPaused && !byId("events").hidden) list();
  heard(envelope);
}

function tell(now, connected) {
  if (now !== isConnected) connected(now);
  isConnected = now;
}

function toggle(button) {
  isPaused = !isPaused;
  button.setAttribute("aria-pressed", String(isPaused));
  label(button);
  if (!isPaused) list();
}

function label(button) {
  button.replaceChildren(icon(isPaused ? "play" : "pause"), isPaused ? "Continue" : "Pause");
}

function list() {
  const target = byId("event-list");
  if (!target) return;
  const text = byId("filter").value.trim().toLowerCase();
  const wanted = shown.filter((envelope) => JSON.stringify(envelope).toLowerCase().includes(text));
  target.replaceChildren(...wanted.reverse().map(row));
}

function row({ subject, at, sender, payload }) {
  const summary = element(
    "summary",
    {},
    element("span", { class: "subject", text: subject }),
    element("time", { class: "quiet", text: new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" }) }),
    element("span", { class: "quiet brief", text: brief(subject, payload) || sender }),
  );
  const whole = element("pre", { tabindex: "0", text: JSON.stringify(payload, null, 2) });
  return element("li", {}, element("details", {}, summary, whole));
}

function brief(subject, payload) {
  switch (subject) {
    case "query.received":
      return payload.query;
    case "response.generation":
      return payload.answer;
    case "critique.result":
      if (payload.failure) return `not graded: ${payload.failure}`;
      if (payload.score === null) return [payload.likely ? `likely ${payload.likely}` : "no mark", payload.feedback].filter(Boolean).join(" · ");
      return [`${payload.score}/5`, payload.feedback].filter(Boolean).join(" · ");
    case "memory.recalled":
      return `${payload.engrams.length} recalled`;
    case "memory.stored":
      return `engram ${payload.sequence}`;
    case "user.feedback":
      return payload.rating;
    case "critic.passed":
    case "critic.blocked":
    case "critic.abstained":
      return `${payload.content_type}: ${payload.reason}`;
    case "pairwise.result":
      return payload.failure ?? (payload.winner ? `${payload.winner} is better` : "a tie");
    default:
      return "";
  }
}
