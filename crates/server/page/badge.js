// The badge of a grade, with a tooltip that hovering, the keyboard and touching reach.

import { call } from "./api.js";
import { announce, element } from "./elements.js";

/** Milliseconds after which a wait is explained. */
const PATIENCE = 300;

let count = 0;

/** The badge; nothing for an answer of which no judge says anything. */
export function badge(grade) {
  if (!grade?.badge) return null;
  const { mark, text, tone } = grade.badge;
  const tip = element("span", { class: "tip", role: "tooltip", id: `tip-${(count += 1)}` }, ...explanation(grade));
  const button = element(
    "button",
    { type: "button", class: `badge ${tone}`, "aria-describedby": tip.id },
    element("span", { class: "hidden", text: grade.score === null ? "Answer " : "Grade " }),
    element("span", { class: "mark", "aria-hidden": "true", text: mark }),
    element("span", { text: text.slice(mark.length) }),
  );
  const box = element("span", { class: "grade" }, button, tip);
  box.addEventListener("pointerenter", () => place(button, tip, box));
  button.addEventListener("focus", () => place(button, tip, box));
  // Not every browser focuses a button that is touched.
  button.addEventListener("click", () => {
    const isOpen = box.classList.toggle("open");
    if (isOpen && !isExplained(grade)) explain(grade, tip).then(() => place(button, tip, box));
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    box.classList.remove("open");
    button.blur();
  });
  button.addEventListener("blur", () => box.classList.remove("open"));
  return box;
}

/** Whether the judge has given a score without any reasons, which it can be asked for. */
function lacksReasons(grade) {
  return Boolean(grade.query_id) && grade.score !== null && !grade.feedback;
}

/** Whether nothing can be added to a grade: neither reasons nor remarks. */
function isExplained(grade) {
  return !grade.query_id || grade.isExplained || (!lacksReasons(grade) && grade.remarked !== "");
}

/** Has the judge write its reasons, and others their remarks, once, and shows them. */
async function explain(grade, tip) {
  if (tip.ariaBusy === "true") return;
  tip.ariaBusy = "true";
  const isNew = lacksReasons(grade);
  const told = element("span", { text: isNew ? "The judge writes its reasons…" : "" });
  tip.replaceChildren(told, ...explanation(grade));
  if (isNew) announce(told.textContent);
  // Mostly there is nothing to wait for.
  const wait = setTimeout(() => (told.textContent ||= "Other models check the answer…"), PATIENCE);
  try {
    Object.assign(grade, await call(`/hone/v1/critique/${grade.query_id}/reasons`, { method: "POST", body: {} }));
    grade.isExplained = true;
    tip.replaceChildren(...explanation(grade));
    announce([isNew ? grade.feedback : "", grade.remarked].filter(Boolean).join(" "));
  } catch (error) {
    told.textContent = error.message;
    announce(error.message);
  } finally {
    clearTimeout(wait);
    tip.ariaBusy = "false";
  }
}

/** Shows the tip under the badge where there is no room above it. */
function place(button, tip, box) {
  const scrolled = box.closest('[role="log"], [role="tabpanel"]');
  const room = button.getBoundingClientRect().top - (scrolled?.getBoundingClientRect().top ?? 0);
  box.classList.toggle("below", tip.scrollHeight > room);
}

function explanation(grade) {
  const facts = [grade.by];
  if (grade.expected_score !== null && grade.expected_score !== undefined) {
    facts.push(`expected score ${grade.expected_score.toFixed(2)}`);
  }
  if (typeof grade.probability === "number") facts.push(`${Math.round(100 * grade.probability)} % likely to be right`);
  if (grade.seconds) facts.push(`${grade.seconds.toFixed(1)} s`);
  if (grade.concluded_early) facts.push("concluded early");
  const lines = [element("span", { class: "facts", text: facts.filter(Boolean).join(" · ") })];
  if (grade.warning) lines.unshift(element("span", { class: "warning", text: grade.warning }));
  if (grade.remarked) lines.unshift(element("span", { text: `The answer ${grade.remarked}.` }));
  if (grade.feedback) lines.unshift(element("span", { text: grade.feedback }));
  if (lacksReasons(grade)) lines.push(element("span", { class: "facts", text: "Click for the reasons." }));
  for (const juror of grade.jury ?? []) {
    lines.push(element("span", { text: `${juror.name}: ${juror.score ?? "no vote"} ${juror.feedback}` }));
  }
  return lines;
}
