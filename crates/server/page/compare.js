// The second respondent: which model it is, and its answer beside the first one's.

import { badge } from "./badge.js";
import { byId, element, fillWithRendered } from "./elements.js";

const CHOSEN = "hone-second";
/** The choice of the respondent that the server is configured with. */
const AS_CONFIGURED = "*";

/** Fills the choice of the second respondent; what was chosen before stays chosen. */
export function offer(models, { is_on: isOn, model, temperature }) {
  const option = (value, text) => element("option", { value, text });
  const usual = `Compare: ${model || "same model"}`;
  const own = model || (models.length === 1 && models[0]);
  const others = models.filter((name) => name !== own).map((name) => option(name, `Compare: ${name}`));
  const choice = byId("second");
  choice.title = `A second respondent answers at temperature ${temperature.toFixed(1)}, for comparison`;
  choice.replaceChildren(option("", "No comparison"), option(AS_CONFIGURED, usual), ...others);
  choice.value = localStorage.getItem(CHOSEN) ?? (isOn ? AS_CONFIGURED : "");
  if (choice.selectedIndex < 0) choice.value = "";
  choice.onchange = () => localStorage.setItem(CHOSEN, choice.value);
}

/** What a question says of the second respondent. */
export function wanted() {
  const chosen = byId("second").value;
  if (chosen === "" || chosen === AS_CONFIGURED) return { compare: chosen !== "" };
  return { compare: true, model_b: chosen };
}

/** An answer, beside which that of the second respondent can be opened. */
export class Sides {
  constructor(content, model) {
    this.verdict = element("div", { class: "verdict", hidden: true });
    this.first = element("div", { class: "side" }, content);
    this.second = element("div", { class: "side", hidden: true });
    this.box = element("div", { class: "sides" }, this.first, this.second);
    this.note = element("span", { class: "second" });
    this.model = model;
    this.isOpen = false;
  }

  /** The second answer is awaited. */
  wait() {
    this.note.replaceChildren(element("span", { class: "quiet", text: "second answer…" }));
  }

  /** Shows what is known of the second answer and of the comparison. */
  update(judged) {
    const { other, other_failure: failure, comparison, is_comparing: isComparing } = judged;
    if (failure) this.note.replaceChildren(element("span", { class: "quiet", text: "no second answer", title: failure }));
    if (!other) return;
    this.judged = judged;
    const state = isComparing ? "comparing…" : outcome(comparison);
    this.button ??= element("button", { type: "button", class: "compare", onclick: () => this.toggle() });
    this.button.replaceChildren("Second answer", ...(state ? [element("span", { class: "quiet", text: state })] : []));
    this.button.setAttribute("aria-expanded", String(this.isOpen));
    if (!this.button.isConnected) this.note.replaceChildren(this.button);
    if (this.isOpen) this.draw();
  }

  toggle() {
    this.isOpen = !this.isOpen;
    this.button.setAttribute("aria-expanded", String(this.isOpen));
    this.box.classList.toggle("open", this.isOpen);
    this.box.closest(".turn").classList.toggle("compared", this.isOpen);
    for (const part of [this.verdict, this.second]) part.hidden = !this.isOpen;
    if (this.isOpen) this.draw();
    else this.name?.remove();
  }

  draw() {
    const { other, comparison, is_comparing: isComparing } = this.judged;
    this.name?.remove();
    this.name = head("A", this.model, this.judged);
    this.first.prepend(this.name);
    const content = element("div", { class: "content" });
    fillWithRendered(content, other.html);
    const about = `${other.model}, temperature ${other.temperature.toFixed(1)}`;
    this.second.replaceChildren(head("B", about, other.grade), content);
    this.verdict.replaceChildren(...verdict(comparison, isComparing));
  }
}

function head(letter, about, grade) {
  const name = element("h3", {}, element("span", { text: letter }), element("span", { class: "quiet", text: about }));
  const made = badge(grade);
  return element("div", { class: "head" }, name, made ?? element("span", { class: "quiet", text: "no grade" }));
}

/** Who won, in a few words. */
function outcome(comparison) {
  if (!comparison) return "";
  if (comparison.failure) return "not compared";
  return comparison.winner ? `${comparison.winner} is better` : "a tie";
}

function verdict(comparison, isComparing) {
  if (isComparing) return [element("p", { class: "quiet", text: "A judge compares the two answers…" })];
  if (!comparison) return [element("p", { class: "quiet", text: "The answers are not compared yet." })];
  const { winner, failure, consistent, reason, by } = comparison;
  if (failure) return [element("p", { class: "quiet", text: `The answers could not be compared: ${failure}` })];
  const result = winner ? `${winner} is better` : "A tie";
  const orders = consistent ? "the same verdict in both orders" : "the verdict depends on their order";
  const parts = [
    element("p", {}, element("strong", { text: result }), element("span", { class: "quiet", text: ` · ${orders} · ${by}` })),
  ];
  if (reason) parts.push(element("p", { text: reason }));
  return parts;
}
