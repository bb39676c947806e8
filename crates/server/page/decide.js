// The panel in which a question about a text can be tried: a model answers it with a probability for each option.

import { call } from "./api.js";
import { byId, element } from "./elements.js";

/** What can be asked: the API's word, what people call it, what the options are, and the kind in a model's standing. */
const TYPES = [
  { type: "noul", label: "Yes or no", options: null, kind: "yes_no" },
  { type: "choice", label: "One of several", options: "Options, one per line", kind: "choice" },
  { type: "score", label: "A level", options: "Levels, the lowest first, one per line", kind: "score" },
];

/** Draws the form, which keeps what was typed while another panel is shown. */
export async function draw() {
  if (byId("decide-form")) return;
  const text = element("textarea", { rows: 5, required: true });
  const question = element("input", { type: "text", required: true });
  const types = TYPES.map(({ type, label }) => element("option", { value: type, text: label }));
  const type = element("select", {}, ...types);
  const options = element("textarea", { rows: 4 });
  const optionsName = element("span", {});
  const optionsLabel = element("label", {}, optionsName, options);
  const answer = element("div", { role: "status" });
  const send = element("button", { type: "submit", text: "Decide" });
  const choose = () => {
    const asked = TYPES.find((each) => each.type === type.value);
    optionsLabel.hidden = asked.options === null;
    options.required = asked.options !== null;
    optionsName.textContent = asked.options ?? "";
  };
  choose();
  type.addEventListener("change", choose);
  const form = element(
    "form",
    { id: "decide-form", class: "fields" },
    element("label", {}, element("span", { text: "Text" }), text),
    element("label", {}, element("span", { text: "Question" }), question),
    element("label", {}, element("span", { text: "Answer" }), type),
    optionsLabel,
    send,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    answer.replaceChildren(element("p", { class: "quiet", text: "The model reads the text…" }));
    try {
      answer.replaceChildren(...(await decided(text.value, type.value, question.value, options.value)));
    } catch (error) {
      answer.replaceChildren(element("p", { class: "complaint", text: error.message }));
    } finally {
      send.disabled = false;
    }
  });
  byId("decide").replaceChildren(element("h2", { text: "Decide" }), form, answer);
}

async function decided(state, type, instructions, lines) {
  const options = lines.split("\n").map((line) => line.trim()).filter(Boolean);
  const criteria = { choice: () => Object.fromEntries(options.map((option) => [option, null])), score: () => options };
  if (criteria[type] && new Set(options).size < options.length) throw new Error("Two lines are the same.");
  const question = { type, instructions, criteria: criteria[type]?.() };
  const model = byId("model").value;
  const { answers, hone } = await call("/v1/systemone", { method: "POST", body: { model, state, questions: { question } } });
  const kind = TYPES.find((each) => each.type === type).kind;
  const guesses = hone.no_better_than_chance.includes(kind);
  const rows = rowsOf(answers.question).map(([option, probability]) => row(option, probability, guesses));
  const parts = [element("dl", { class: "options" }, ...rows.flat())];
  if (type === "score") parts.unshift(element("p", { text: `Mean level ${answers.question.score.toFixed(2)}` }));
  if (guesses) {
    parts.push(element("p", { class: "quiet", text: `${model} guessed: it is no better than chance at such questions.` }));
  } else if (!hone.examined) {
    const note = `${model} has not been examined: “hone decide --exam” says how far its answers can be trusted.`;
    parts.push(element("p", { class: "quiet", text: note }));
  }
  return parts;
}

/** Each option with its probability. */
function rowsOf(answer) {
  if (answer.type === "noul") return [["Yes", answer.noul], ["No", 1 - answer.noul]];
  const names = answer.legend ?? {};
  return Object.entries(answer.probabilities).map(([option, probability]) => [names[option] ?? option, probability]);
}

/** A model that guesses has no bars. */
function row(option, probability, guesses) {
  const percent = `${Math.round(100 * probability)} %`;
  const meter = element("meter", { min: 0, max: 1, value: probability, "aria-label": `${option}: ${percent}` });
  return [element("dt", { text: option }), element("dd", {}, ...(guesses ? [] : [meter]), element("span", { text: percent }))];
}
