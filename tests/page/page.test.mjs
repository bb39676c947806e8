// The page as a person uses it: Chromium, the real binary, and the real built-in model.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { chromium } from "playwright-core";

import { Home, startNats } from "./server.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PICTURES = process.env.PAGE_PICTURES;
const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
/** The widths at which every state of the page is looked at. */
const WIDTHS = { phone: PHONE.width, tablet: 820, desktop: DESKTOP.width };
/** How long an answer or its grade may take, in milliseconds. */
const PATIENCE = 60_000;

const given = { hone: process.env.HONE, model: process.env.HONE_TEST_MODEL };
let home, served, browser, context, page, problems;

before(async () => {
  home = new Home(given);
  served = await home.serve();
  const options = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: options });
});

after(async () => {
  await browser?.close();
  await served?.stop();
  home?.remove();
});

beforeEach(async () => open(DESKTOP));

afterEach(async () => {
  await context.close();
  assert.deepEqual(problems, [], "the console shows no errors");
});

/** Opens the page in a window of its own. */
async function open(viewport, { address = served.address, ...options } = {}) {
  await context?.close();
  problems = [];
  context = await browser.newContext({ viewport, ...options });
  context.setDefaultTimeout(PATIENCE);
  page = await context.newPage();
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(address) && !/^(data|blob):/.test(url)) problems.push(`a request to ${url}`);
  });
  await page.goto(address);
  await page.locator("#model option").first().waitFor({ state: "attached" });
}

async function ask(question) {
  await page.getByLabel("Question", { exact: true }).fill(question);
  await page.keyboard.press("Enter");
}

/** Waits until nothing is being answered. */
async function answered() {
  await page.locator("#stop").waitFor({ state: "hidden" });
  return page.locator(".turn.answer").last();
}

/** Looks at a state of the page at every width: nothing is cut off. With a folder for pictures, they are kept, light and dark. */
async function picture(name) {
  const viewport = page.viewportSize();
  for (const [size, width] of Object.entries(WIDTHS)) {
    await page.setViewportSize({ width, height: viewport.height });
    await page.evaluate(() => {
      const ending = document.getAnimations().filter(({ effect }) => effect.getTiming().iterations !== Infinity);
      return Promise.allSettled(ending.map(({ finished }) => finished));
    });
    const { scrollWidth, clientWidth } = await page.evaluate(() => {
      const { scrollWidth, clientWidth } = document.documentElement;
      return { scrollWidth, clientWidth };
    });
    assert.ok(scrollWidth <= clientWidth, `${name} at ${width} pixels is ${scrollWidth} wide`);
    if (PICTURES) await keepPictures(`${name}-${size}`);
  }
  await page.setViewportSize(viewport);
}

async function keepPictures(name) {
  mkdirSync(PICTURES, { recursive: true });
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: join(PICTURES, `${name}-${colorScheme}.png`) });
  }
  await page.emulateMedia({ colorScheme: null });
}

async function checkAccessibility(where) {
  // The policy of the page lets no script in, so it comes through the debugger.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  const found = violations.flatMap(({ id, nodes }) =>
    nodes.map((node) => `${id}: ${node.html} ${node.failureSummary}`),
  );
  assert.deepEqual(found, [], `axe-core finds nothing in ${where}`);
}

const tones = { good: "rgb(34, 197, 94)", fair: "rgb(245, 158, 11)", poor: "rgb(239, 68, 68)" };

test("a question is answered and graded, and a reload and a restart keep it", async () => {
  await checkAccessibility("an empty page");
  await picture("empty");
  await ask("What is the capital of Norway?");
  const answer = await answered();
  await assert.match(await answer.locator(".content").innerText(), /\w+/);
  const badge = answer.locator(".badge");
  await badge.waitFor();
  assert.match(await badge.innerText(), /◇\s*likely (right|wrong)/);
  const tone = (await badge.getAttribute("class")).split(" ")[1];
  const color = await badge.locator(".mark").evaluate((mark) => getComputedStyle(mark).color);
  assert.equal(color, tones[tone]);
  const tip = answer.getByRole("tooltip", { includeHidden: true });
  assert.equal(await tip.isVisible(), false);
  await badge.hover();
  assert.equal(await tip.isVisible(), true, "hovering shows the tooltip");
  assert.match(await tip.innerText(), /likelihood with smollm2:135m/);
  assert.match(await tip.innerText(), /\d+ % likely to be right/);
  await picture("graded");
  await checkAccessibility("a conversation with a grade");
  await page.mouse.move(5, 5);
  await badge.focus();
  assert.equal(await tip.isVisible(), true, "the keyboard shows the tooltip");
  const right = await badge.evaluate((it) => it.getBoundingClientRect().right);
  const middle = await answer.evaluate((it) => it.getBoundingClientRect().left + it.getBoundingClientRect().width / 2);
  assert.ok(right > middle, "the badge is on the right");
  const text = await answer.locator(".content").innerText();

  await page.reload();
  await page.locator(".badge").waitFor();
  assert.equal(await page.locator(".turn.answer .content").innerText(), text, "a reload keeps the conversation");
  const place = new URL(page.url()).hash;
  await page.goto("about:blank");
  await served.stop();
  served = await home.serve();
  await page.goto(served.address + place);
  await page.locator(".badge").waitFor();
  assert.equal(await page.locator(".turn.answer .content").innerText(), text, "a restart keeps the conversation");
  problems = problems.filter((problem) => !problem.startsWith("a request to"));
});

test("what an answer holds stays text", async () => {
  const markdown =
    "<script>document.title = 'x'</script> <img src=x onerror=\"document.title = 'x'\">\n\n[l](javascript:x)\n\n" +
    "```html\n<img src=x onerror=\"document.title = 'x'\">\n```\n\n$\\text{<img src=x onerror=alert(1)>}$";
  const html = await page.evaluate(async (text) => {
    const body = JSON.stringify({ markdown: text });
    const headers = { "Content-Type": "application/json" };
    const response = await fetch("/hone/v1/render", { method: "POST", body, headers });
    const { html } = await response.json();
    const { fillWithRendered } = await import("/page/elements.js");
    fillWithRendered(document.getElementById("turns"), html);
    return document.getElementById("turns").innerHTML;
  }, markdown);
  assert.ok(html.includes("&lt;script&gt;") && !html.includes("<script") && !html.includes("<img"), html);
  await ask("<img src=x onerror=alert(1)>");
  await answered();
  assert.equal(await page.locator(".turn.user .text").last().innerText(), "<img src=x onerror=alert(1)>");
  assert.equal(await page.locator("#turns img, #turns script").count(), 0);
  assert.equal(await page.locator("#conversations img").count(), 0);
  assert.notEqual(await page.title(), "x");
});

/** Stops an answer before it ends, and returns it. One that ended too soon, as a model that answers at random may do, is asked for again. */
async function askAndStop(question) {
  for (let attempt = 1; ; attempt++) {
    await ask(question);
    await page.locator(".turn.answer .content p").first().waitFor();
    await picture("answering");
    const stop = page.getByRole("button", { name: "Stop" });
    // At once: waiting until the button stands still would take as long as a short answer.
    await stop.click({ force: true, timeout: 1_000 }).catch(() => {});
    const answer = await answered();
    if (await answer.getByText("Stopped.").isVisible()) return answer;
    assert.ok(attempt < 10, "every answer ended before it could be stopped");
    await open(DESKTOP);
  }
}

test("an answer is stopped in the middle, and what there is of it stays and can go on", async () => {
  const answer = await askAndStop("Write a very long story about a lighthouse keeper, with many chapters.");
  const text = await answer.locator(".content").innerText();
  assert.ok(text.length > 0);
  await page.reload();
  await page.getByText("Stopped.").waitFor();
  const content = page.locator(".turn.answer .content");
  assert.equal(await content.innerText(), text);
  await page.getByRole("button", { name: "Continue", exact: true }).click();
  // Its last word and formatting may still be incomplete.
  const begins = async () => (await content.innerText()).startsWith(text.slice(0, text.length / 2));
  assert.ok(await begins(), "it stays while it goes on");
  await picture("continuing");
  await page.locator("#stop").click({ force: true, timeout: 1_000 }).catch(() => {});
  await answered();
  assert.ok(await begins());
  assert.equal(await page.locator(".turn.user").count(), 1);
});

test("what is selected in an answer stays so while it grows, and once it has ended", async () => {
  await ask("Write a very long story about a lighthouse keeper, with many chapters.");
  const blocks = page.locator(".running .content > *");
  await blocks.nth(1).waitFor();
  const selected = () => page.evaluate(() => String(getSelection()));
  await blocks.first().evaluate((block) => getSelection().selectAllChildren(block));
  const text = await selected();
  assert.match(text, /\w/);
  const before = await page.locator(".running .content").innerText();
  await page.waitForFunction((before) => document.querySelector(".running .content")?.innerText !== before, before);
  assert.equal(await selected(), text, "it is selected while the answer grows");
  await page.keyboard.press("Escape");
  await answered();
  assert.equal(await selected(), text, "it is selected once the answer has ended");

  await ask("Write a very long story about a seal, with many chapters.");
  await page.getByRole("button", { name: "Edit the question" }).first().click();
  await page.keyboard.press("End");
  await page.keyboard.type("!");
  // A click would take the focus.
  await page.locator("#stop").dispatchEvent("click");
  await answered();
  await page.keyboard.type("?");
  assert.match(await page.locator(".turn.user .editor").inputValue(), /chapters\.!\?$/, "an edit goes on when an answer ends");
});

test("a question is edited and answered again in branches, and answers are rated", async () => {
  const questions = () => page.locator(".turn.user .text").allInnerTexts();
  const place = page.locator(".branches .quiet");
  await ask("What is 2 + 2?");
  await answered();
  assert.equal(await place.count(), 0, "one branch needs no way to others");
  await page.getByRole("button", { name: "Answer again" }).click();
  await answered();
  assert.equal(await page.locator(".turn.answer").count(), 1);
  assert.equal(await place.innerText(), "2/2");
  await ask("Why?");
  await answered();
  await page.getByRole("button", { name: "Edit the question" }).first().click();
  await page.locator(".editor").fill("What is 3 + 3?");
  await page.keyboard.press("Enter");
  await answered();
  assert.deepEqual(await questions(), ["What is 3 + 3?"]);
  assert.equal(await place.innerText(), "3/3");
  await page.getByRole("button", { name: "Earlier branch" }).click();
  await place.getByText("2/3").waitFor();
  assert.deepEqual(await questions(), ["What is 2 + 2?", "Why?"], "the branch has everything that belongs to it");
  await checkAccessibility("a conversation with branches");
  await picture("branches");
  await page.reload();
  await place.getByText("2/3").waitFor();
  assert.deepEqual(await questions(), ["What is 2 + 2?", "Why?"], "a reload keeps the branch that was shown");
  await page.getByRole("button", { name: "Later branch" }).focus();
  await page.keyboard.press("Enter");
  await place.getByText("3/3").waitFor();
  assert.equal(
    await page.evaluate(() => document.activeElement.getAttribute("aria-label")),
    "Earlier branch",
    "the keyboard stays at the branches",
  );
  const good = page.getByRole("button", { name: "Good answer" });
  await good.click();
  await page.locator('[data-rating="good"][aria-pressed="true"]').waitFor();
  await ask("Why?");
  await answered();
  assert.equal(await page.locator('[data-rating="good"][aria-pressed="true"]').count(), 1, "the next question keeps it");
  await page.reload();
  await page.locator('[data-rating="good"][aria-pressed="true"]').click();
  await page.locator('[data-rating="good"][aria-pressed="false"]').first().waitFor();
  await page.reload();
  await good.first().waitFor();
  assert.equal(await page.locator('[data-rating][aria-pressed="true"]').count(), 0, "a rating can be taken back");
});

test("conversations are searched, renamed, exported and deleted", async () => {
  await ask("Name a colour, please: which one?");
  await answered();
  await page.locator("#conversations .name").getByText("Name a colour, please: which one?").waitFor();
  await page.waitForFunction(() => document.getElementById("title").textContent === "Name a colour, please: which one?");
  const entries = page.locator("#conversations li");
  await page.getByLabel("More for Name a colour, please: which one?").click();
  await page.getByRole("button", { name: "Rename", exact: true }).click();
  await page.getByLabel("New name").fill("Rainbow");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Rainbow", exact: false }).first().waitFor();
  assert.equal(await page.locator("#title").innerText(), "Rainbow");
  await page.getByLabel("Search conversations").fill("a colour");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 1);
  await page.getByLabel("More for Rainbow").click();
  await picture("menu");
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export as Markdown" }).click();
  const file = await (await download).path();
  assert.match(readFileSync(file, "utf8"), /^# Rainbow\n\n## You\n\nName a colour, please: which one\?\n/);
  await page.getByLabel("More for Rainbow").click();
  await page.getByRole("button", { name: "Delete" }).click();
  await checkAccessibility("a dialog");
  await page.getByLabel("Also forget what is remembered of it").check();
  const removal = page.waitForResponse((response) => response.url().includes("?forget=true"));
  await page.locator("#confirm-yes").click();
  assert.equal((await (await removal).json()).forgotten > 0, true, "what came of it is forgotten");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 0);
  assert.equal(await page.locator("#title").innerText(), "New conversation");
  assert.equal(await entries.count(), 0);
});

test("a second answer stays out of the conversation and opens beside the first", async () => {
  await page.getByLabel("Second respondent").selectOption("*");
  await ask("What is the capital of Portugal?");
  const answer = await answered();
  const second = answer.getByRole("button", { name: "Second answer" });
  await second.waitFor();
  assert.equal(await page.locator(".turn.answer .content").count(), 1, "the conversation holds the first answer only");
  await second.getByText(/A is better|B is better|a tie/).waitFor();
  await second.click();
  const sides = answer.locator(".side");
  assert.equal(await sides.count(), 2);
  assert.match(await sides.nth(0).locator("h3").innerText(), /^A\s+smollm2:135m/);
  assert.match(await sides.nth(1).locator("h3").innerText(), /^B\s+smollm2:135m, temperature 0\.5/);
  for (const side of [0, 1]) {
    assert.match(await sides.nth(side).locator(".head").innerText(), /likely (right|wrong)|no grade/);
    assert.match(await sides.nth(side).locator(".content").innerText(), /\w/);
  }
  const boxes = await Promise.all([0, 1].map((side) => sides.nth(side).boundingBox()));
  assert.ok(boxes[0].x + boxes[0].width <= boxes[1].x, "they stand side by side");
  const verdict = answer.locator(".verdict");
  assert.match(await verdict.innerText(), /(A is better|B is better|A tie) · (the same verdict in both|the verdict depends)/);
  await checkAccessibility("two answers side by side");
  await picture("comparison");
  const shown = await verdict.innerText();
  await ask("And of Spain?");
  await answered();
  await page.reload();
  await page.getByRole("button", { name: "Second answer" }).first().click();
  assert.equal(await page.locator(".verdict").first().innerText(), shown, "a reload keeps the comparison");
  await open(PHONE, { hasTouch: true, isMobile: true });
  await page.getByRole("button", { name: "Conversations", exact: true }).tap();
  await page.getByRole("button", { name: "What is the capital of Portugal?" }).first().tap();
  await page.getByRole("button", { name: "Second answer" }).first().tap();
  const stacked = await Promise.all([0, 1].map((side) => page.locator(".side").nth(side).boundingBox()));
  assert.ok(stacked[0].y + stacked[0].height <= stacked[1].y, "a phone shows one below the other");
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  await picture("phone-comparison");
  await page.evaluate(() => localStorage.clear());
});

test("code is coloured and formulas are drawn, in light and dark", async () => {
  const markdown = [
    "Newton's method for $f(x) = x^2 - a$ repeats",
    "\\[ x_{n+1} = x_n - \\frac{f(x_n)}{f'(x_n)} = \\frac12 \\left( x_n + \\frac{a}{x_n} \\right) \\]",
    "```python\ndef root(a: float, x: float = 1.0) -> float:\n    # Newton's method\n    for _ in range(20):\n" +
      '        x = (x + a / x) / 2\n    return x\n\n\nprint(f"{root(2):.6f}")\n```',
    "so that $\\boxed{\\sqrt 2 \\approx 1.414214}$. In matrices, and in cases:",
    "$$A = \\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}, \\quad " +
      "|x| = \\begin{cases} x & \\text{if } x \\ge 0 \\\\ -x & \\text{otherwise} \\end{cases}, \\quad " +
      "\\sum_{k=1}^{n} k = \\frac{n(n+1)}{2}$$",
  ].join("\n\n");
  for (const colorScheme of ["light", "dark"]) {
    await open(DESKTOP, { colorScheme });
    await page.evaluate(async (text) => {
      const { call } = await import("/page/api.js");
      const { element, fillWithRendered } = await import("/page/elements.js");
      const { html } = await call("/hone/v1/render", { method: "POST", body: { markdown: text } });
      const content = element("div", { class: "content" });
      fillWithRendered(content, html);
      document.getElementById("welcome").hidden = true;
      document.getElementById("turns").replaceChildren(element("article", { class: "turn answer" }, content));
    }, markdown);
    assert.equal(await page.locator("math").count(), 4);
    const color = (selector) => page.locator(selector).first().evaluate((it) => getComputedStyle(it).color);
    assert.notEqual(await color(".code-keyword"), await color("pre"));
    assert.notEqual(await color(".code-string"), await color(".code-keyword"));
    const height = await page.locator("mfrac").first().evaluate((it) => it.getBoundingClientRect().height);
    assert.ok(height > 25, "a fraction has two lines");
    await checkAccessibility(`code and formulas in ${colorScheme}`);
    if (colorScheme === "light") await picture("code");
  }
});

test("the panels show quality, memory, models, decisions and events", async () => {
  await ask("What is the capital of Italy?");
  await (await answered()).locator(".badge").waitFor();
  await page.getByRole("button", { name: "Details" }).click();
  await page.locator("#quality svg").first().waitFor();
  const marked = page.locator("#quality dt", { hasText: /^Likely (right|wrong)$/ }).locator("+ dd");
  const counts = (await marked.allInnerTexts()).map(Number);
  assert.ok(counts.length === 2 && counts[0] + counts[1] > 0, `what is marked is counted: ${counts}`);
  await checkAccessibility("the panel of the quality");
  await picture("quality");
  await page.getByRole("tab", { name: "Memory" }).click();
  await page.locator("#memory input").fill("capital of Italy");
  await page.keyboard.press("Enter");
  const found = page.locator(".engrams > li").first();
  await found.getByText("What is the capital of Italy?").waitFor();
  await found.locator("summary").click();
  await page.getByRole("button", { name: "Forget" }).waitFor();
  await checkAccessibility("the panel of the memory");
  await picture("memory");
  await page.getByRole("button", { name: "Forget" }).click();
  await page.locator("#confirm-yes").click();
  await found.getByText("What is the capital of Italy?").waitFor({ state: "detached" });
  await page.getByRole("tab", { name: "Models" }).click();
  await page.locator("#models dl").first().waitFor();
  await page.getByRole("button", { name: "Load smollm2:135m" }).click();
  await page.locator("#models dd").getByText(/^ready/).waitFor();
  await page.getByLabel("Model to download").fill("nothing-like-this");
  await page.keyboard.press("Enter");
  await page.locator("#models").getByRole("alert").getByText("nothing-like-this").first().waitFor();
  problems = problems.filter((problem) => !problem.includes("status of 404"));
  await page.getByText("Models to download").click();
  await page.getByRole("button", { name: "Download qwen3:0.6b" }).waitFor();
  await picture("models");
  await page.locator("#models").getByRole("button", { name: "Dismiss" }).click();
  await page.locator("#models").getByRole("alert").waitFor({ state: "detached" });
  assert.equal(await page.getByRole("button", { name: "Download smollm2:135m" }).count(), 0, "it is installed");
  assert.equal(await page.getByText("The best one for this machine").count(), 1);
  await page.locator("#catalog-list").getByText(/tokens\/s/).first().waitFor();
  await checkAccessibility("the panel of the models");
  await page.getByRole("tab", { name: "Decide" }).click();
  const panel = page.locator("#decide");
  await panel.getByLabel("Text").fill("The parcel has not arrived after three weeks.");
  await panel.getByLabel("Question").fill("Is this a complaint?");
  await page.keyboard.press("Enter");
  await panel.locator("dt").getByText("Yes", { exact: true }).waitFor();
  assert.equal(await panel.locator("dt").count(), 2);
  await panel.getByLabel("Answer").selectOption("choice");
  await panel.getByLabel("Options, one per line").fill("delivery\npayment\nreturns");
  await panel.getByRole("button", { name: "Decide" }).click();
  await panel.locator("dt").getByText("payment").waitFor();
  await panel.getByText("has not been examined").waitFor();
  await checkAccessibility("the panel of decisions");
  const [edge, close] = await page.evaluate(() =>
    ["panel", "close-panel"].map((id) => document.getElementById(id).getBoundingClientRect().right),
  );
  assert.ok(close <= edge && edge <= 1280, `the button that closes the panel ends at ${close}, the panel at ${edge}`);
  await picture("decide");
  await page.getByRole("tab", { name: "Events" }).click();
  await page.locator(".events li").first().waitFor();
  await page.getByLabel("Filter the events").fill("critique.result");
  assert.deepEqual([...new Set(await page.locator(".events .subject").allInnerTexts())], ["critique.result"]);
  await page.getByRole("button", { name: "Pause" }).click();
  await checkAccessibility("the panel of the events");
  await picture("events");
});

test("a phone has room for everything", async () => {
  await open(PHONE, { hasTouch: true, isMobile: true });
  await ask("What is the capital of Japan?");
  const field = page.getByLabel("Question", { exact: true });
  assert.equal(await field.inputValue(), "What is the capital of Japan?\n", "Enter begins a new line");
  await page.locator("#send").tap();
  const badge = (await answered()).locator(".badge");
  await badge.waitFor();
  const isTooWide = () => document.documentElement.scrollWidth > innerWidth;
  assert.equal(await page.evaluate(isTooWide), false);
  await badge.tap();
  await page.getByRole("tooltip").waitFor();
  await picture("phone");
  await checkAccessibility("a phone");
  await page.locator("#title").tap();
  await page.getByRole("button", { name: "Conversations", exact: true }).tap();
  await page.getByRole("button", { name: "New conversation" }).waitFor();
  await picture("phone-conversations");
  await page.getByRole("button", { name: "Close conversations" }).tap();
  await page.getByRole("button", { name: "Details" }).tap();
  await page.locator("#quality svg").first().waitFor();
  await picture("phone-quality");
  assert.equal(await page.evaluate(isTooWide), false);
});

test("the dark page is as accessible", async () => {
  await open(DESKTOP, { colorScheme: "dark" });
  await ask("Name three European countries as a list.");
  await (await answered()).locator(".badge").waitFor();
  await page.locator(".badge").hover();
  await checkAccessibility("the dark page");
  await picture("list");
});

test("everything is reached with the keyboard alone", async () => {
  await page.keyboard.press("Tab");
  await page.locator("#question").focus();
  await page.keyboard.type("What is the plural of mouse?");
  await page.keyboard.press("Enter");
  await (await answered()).locator(".badge").waitFor();
  const wanted = ["new", "search", "log", "model", "second", "question", "send", "open-panel"];
  const reached = new Set();
  await page.locator("body").press("Home");
  for (let step = 0; step < 80; step += 1) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.className));
  }
  for (const id of wanted) assert.ok(reached.has(id), `${id} is not among ${[...reached]}`);
  assert.ok(
    [...reached].some((name) => name.startsWith("badge")),
    "the badge is reached",
  );
  await page.locator("#open-panel").focus();
  await page.keyboard.press("Enter");
  await page.locator("#tab-quality").focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.evaluate(() => document.activeElement.id), "tab-memory");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#panel").isVisible(), false);
});

test("what was recalled stands at the answer and is forgotten there", async () => {
  const recalling = await home.serve({ HONE_MEMORY_EMBEDDER: process.env.HONE_TEST_EMBEDDER });
  try {
    const { address } = recalling;
    await open(DESKTOP, { address });
    await ask("My name is Mario and I live in Turin.");
    await (await answered()).locator(".content").waitFor();
    await page.goto("about:blank");
    await page.goto(address);
    await ask("In which city do I live?");
    const used = (await answered()).locator(".memories");
    await used.getByText(/^\d memor(y|ies) used$/).click();
    await picture("recalled");
    await checkAccessibility("an answer with what was recalled");
    await page.reload();
    const kept = page.locator(".turn.answer .memories");
    await kept.getByText(/^\d memor(y|ies) used$/).click();
    const count = await kept.locator("li").count();
    const item = kept.locator("li").first();
    assert.match(await item.innerText(), /Turin/);
    await item.getByRole("button", { name: /^Forget/ }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Forget" }).click();
    await item.getByText("Forgotten").waitFor();
    await page.reload();
    await page.locator(".turn.answer .content").waitFor();
    assert.equal(await kept.locator("li").count(), count - 1, "a reload does not bring it back");
  } finally {
    // A page that is open when its server goes reports refused connections.
    await page.goto("about:blank");
    await recalling.stop();
  }
});

test("what the critic has blocked is reviewed on the page", async () => {
  const critique = { at: Date.now(), mode: "hard", content_type: "research", level: "block", validity_score: 0.1, challenges: [] };
  const said = { suggested_improvements: [], strongest_counterargument: "", should_block: true, reasoning: "Rome is older." };
  const judging = { judge: "j", self_graded: false, tokens: 1, seconds: 1, queue_seconds: 0 };
  const id = "01990000-0000-7000-8000-00000000b10c";
  const engram = {
    query_id: id, type: "research", query: "How old is Rome?", answer: "Two years.", at: Date.now(),
    session_id: id, respondent_id: "A", model: "m", sampling: {}, finish_reason: "stop", intent: null,
    pairwise_winner: null, user_feedback: null, correlation_id: id,
    vetting: { state: "blocked", critique: { ...critique, ...said, ...judging } },
  };
  const file = join(home.folder, "blocked.jsonl");
  writeFileSync(file, JSON.stringify({ engram }));
  home.run("memory", "import", file);
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("tab", { name: "Memory" }).click();
  const block = page.locator("#blocked li").first();
  await block.getByText("Rome is older.").waitFor();
  await checkAccessibility("a block");
  await picture("blocked");
  await block.getByRole("button", { name: "Wrongly blocked" }).click();
  await block.getByText("reviewed, wrongly blocked").waitFor();
  const blocks = JSON.parse(home.run("critic", "blocks", "--json"));
  assert.equal(blocks.right, false);
  // Another process changes the mode, and the page says so.
  home.run("critic", "soft");
  await page.locator("#blocked").getByText("Every gate is soft").waitFor();
  home.run("critic", "configured");
});

test("a server that needs a key asks for it once", async () => {
  const [key] = home.run("serve", "--new-key").split("\n");
  const { createHash } = await import("node:crypto");
  const hash = createHash("sha256").update(key).digest("hex");
  const locked = await home.serve({ HONE_SERVER_KEY_HASHES: JSON.stringify([hash]), HONE_MEMORY_REMEMBER: "false" });
  try {
    await context.close();
    context = await browser.newContext({ viewport: DESKTOP });
    page = await context.newPage();
    await page.goto(locked.address);
    await page.getByRole("textbox", { name: "Key" }).fill("wrong");
    await page.keyboard.press("Enter");
    await page.getByText("That key was not accepted").waitFor();
    // Without a key nothing can be done, so the question for it stays.
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await picture("key");
    await page.getByRole("textbox", { name: "Key" }).fill(key);
    await page.getByLabel(/Keep it in this browser/).check();
    await page.keyboard.press("Enter");
    await page.locator("#model option").first().waitFor({ state: "attached" });
    // Another tab has no key of its own.
    page = await context.newPage();
    await page.goto(locked.address);
    await page.locator("#model option").first().waitFor({ state: "attached" });
    assert.equal(await page.locator("#key-dialog").isVisible(), false, "the key is kept");
    // The next person in this tab has another key.
    await page.getByLabel("Question", { exact: true }).fill("A private draft");
    await page.evaluate(() => localStorage.setItem("hone-key", "other"));
    await page.reload();
    await page.getByRole("textbox", { name: "Key" }).fill(key);
    await page.keyboard.press("Enter");
    await page.locator("#model option").first().waitFor({ state: "attached" });
    await page.locator("#key-dialog").waitFor({ state: "hidden" });
    await page.waitForFunction(() => document.title.startsWith("hone"));
    assert.equal(await page.getByLabel("Question", { exact: true }).inputValue(), "");
    // Another device opens the link of the QR code.
    await context.close();
    context = await browser.newContext({ viewport: DESKTOP });
    page = await context.newPage();
    await page.goto(locked.address);
    await page.getByRole("textbox", { name: "Key" }).fill("old");
    await page.getByLabel(/Keep it in this browser/).check();
    await page.keyboard.press("Enter");
    await page.getByText("That key was not accepted").waitFor();
    await page.evaluate((key) => (location.hash = `key=${key}`), key);
    await page.getByText("This is the key of the link that you opened.").waitFor();
    assert.equal(new URL(page.url()).hash, "", "the key is hidden");
    await page.keyboard.press("Enter");
    await page.locator("#model option").first().waitFor({ state: "attached" });
    await context.close();
    context = await browser.newContext({ viewport: DESKTOP });
    page = await context.newPage();
    await page.goto(`${locked.address}/#key=${key}`);
    await page.getByText("This is the key of the link that you opened.").waitFor();
    await page.getByRole("button", { name: "Continue", exact: true }).click();
    await page.locator("#model option").first().waitFor({ state: "attached" });
  } finally {
    await page.goto("about:blank");
    await locked.stop();
  }
});

test("a new conversation has the title of its question at once", async () => {
  await page.locator("#new").click();
  await ask("Write a very long story about a lighthouse.");
  await page.locator(".turn.running .content p").first().waitFor();
  assert.equal(await page.locator("#title").innerText(), "Write a very long story about a lighthouse.");
  await page.locator("#stop").click();
  await answered();
});

test("an answer goes on while another conversation is open, and after a reload", async () => {
  const begun = "Write a long story about a lighthouse, a mill and a fox.";
  await ask(begun);
  await page.locator(".turn.running .content p").first().waitFor();
  const place = new URL(page.url()).hash;
  await page.locator("#new").click();
  await page.locator("#welcome").waitFor();
  assert.equal(await page.locator("#stop").isVisible(), false);
  await page.goBack();
  await page.locator(".turn.running").waitFor();
  await page.getByRole("button", { name: "Details", exact: true }).click();
  await page.locator("#tab-quality").focus();
  await page.keyboard.press("Escape");
  await page.locator("#panel").waitFor({ state: "hidden" });
  await page.locator("#conversations summary").first().click();
  await page.keyboard.press("Escape");
  await page.locator("details.menu[open]").waitFor({ state: "detached" });
  assert.equal(await page.locator(".turn.running").count(), 1, "the key that closes something does not stop the answer");
  await page.locator(".turn.running").waitFor();
  assert.equal(new URL(page.url()).hash, place);
  assert.equal(await page.locator(".turn.user .text").innerText(), begun, "the question is told with the answer");
  await page.reload();
  await page.locator(".turn.running .content p").first().waitFor();
  await page.locator("#stop").click();
  const answer = await answered();
  assert.match(await answer.innerText(), /Stopped\./);
  await page.reload();
  await page.locator(".turn.answer .content p").first().waitFor();
  assert.equal(await page.locator(".turn.user").count(), 1);
});

test("a question that cannot be sent comes back before what is being written", async () => {
  let fail;
  const written = new Promise((resolve) => (fail = resolve));
  await page.route("**/hone/v1/chat", async (route) => {
    await written;
    await route.abort();
  });
  await ask("What is the tide?");
  await page.locator(".turn.running").waitFor();
  await page.getByLabel("Question", { exact: true }).fill("And the ebb?");
  fail();
  await page.getByText("The server cannot be reached").waitFor();
  assert.equal(await page.getByLabel("Question", { exact: true }).inputValue(), "What is the tide?\n\nAnd the ebb?");
  problems = problems.filter((problem) => !problem.includes("ERR_FAILED"));
});

test("files go with a question: chosen, dropped and pasted", async () => {
  const chosen = { name: "tides.txt", mimeType: "text/plain", buffer: Buffer.from("The tide is high at noon.\n```\ncode\n```") };
  await page.locator("#files").setInputFiles([chosen, { ...chosen, name: "moon.txt" }]);
  await page.getByRole("button", { name: "Do not send moon.txt" }).click();
  await page.locator("#files").setInputFiles(new URL("../data/mill.pdf", import.meta.url).pathname);
  await page.getByRole("button", { name: "Do not send mill.pdf" }).waitFor();
  const hand = (kind) =>
    page.evaluate((kind) => {
      const data = new DataTransfer();
      data.items.add(new File([kind], `${kind}.md`, { type: "text/markdown" }));
      const field = document.getElementById("question");
      const options = { bubbles: true, cancelable: true };
      if (kind === "paste") field.dispatchEvent(new ClipboardEvent("paste", { ...options, clipboardData: data }));
      else field.dispatchEvent(new DragEvent("drop", { ...options, dataTransfer: data }));
    }, kind);
  await hand("drop");
  await hand("paste");
  await page.getByRole("button", { name: "Do not send paste.md" }).waitFor();
  await picture("files");
  await checkAccessibility("a question with files");
  // A question waits for its files, and for those that cannot be read it is not sent.
  let isHeld;
  const held = new Promise((resolve) => (isHeld = resolve));
  await page.route("**/hone/v1/text", async (route) => {
    await held;
    await route.fulfill({ status: 400, json: { error: { message: "the file is a PDF without text" } } });
  });
  await page.locator("#files").setInputFiles({ name: "scan.pdf", mimeType: "application/pdf", buffer: Buffer.from("%PDF-") });
  await page.locator("#attached li", { hasText: "reading…" }).waitFor();
  await page.getByLabel("Question", { exact: true }).fill("When is the tide high?");
  await page.keyboard.press("Enter");
  isHeld();
  await page.locator(".complaint", { hasText: "scan.pdf: the file is a PDF without text" }).waitFor();
  assert.deepEqual(await page.locator("#attached li").allInnerTexts(), ["tides.txt", "mill.pdf", "drop.md", "paste.md"]);
  assert.equal(await page.locator(".turn").count(), 0, "nothing was asked");
  await page.locator(".complaint").getByRole("button", { name: "Dismiss" }).click();
  await page.unroute("**/hone/v1/text");
  problems = problems.filter((problem) => !problem.includes("status of 400"));
  const picked = { name: "cat.png", mimeType: "image/png", buffer: Buffer.from([0x89, 0x50, 0, 1]) };
  await page.locator("#files").setInputFiles(picked);
  const complaint = page.locator(".complaint");
  assert.match(await complaint.innerText(), /cat\.png: it is neither a text file nor a PDF/);
  await complaint.getByRole("button", { name: "Dismiss" }).click();
  assert.equal(await complaint.count(), 0);
  await ask("When is the tide high?");
  await answered();
  const files = page.locator(".turn.user details.file summary");
  assert.deepEqual(await files.allInnerTexts(), ["tides.txt", "mill.pdf", "drop.md", "paste.md"]);
  await files.nth(1).click();
  const pages = "The mill was built in 1792.\n\nIt burned down in 1871.";
  assert.equal(await page.locator(".turn.user details.file pre").nth(1).innerText(), pages);
  await files.first().click();
  assert.match(await page.locator(".turn.user details.file pre").first().innerText(), /high at noon\.\n```\ncode\n```/);
  assert.equal(await page.locator("#attached li").count(), 0, "they go with one question");
  assert.match(await page.locator("#context").innerText(), /^\d+ of \d+ tokens$/);
  assert.equal(await page.locator("#title").innerText(), "When is the tide high?", "files are no title");
  await page.reload();
  await files.first().waitFor();
  assert.deepEqual(await files.allInnerTexts(), ["tides.txt", "mill.pdf", "drop.md", "paste.md"]);
  await page.getByRole("button", { name: "Edit the question" }).click();
  const editor = page.locator(".turn.user .editor");
  assert.equal(await editor.inputValue(), "When is the tide high?", "the field holds the text alone");
  await page.getByRole("button", { name: "Do not send drop.md" }).click();
  assert.deepEqual(await page.locator(".turn.user .attached li").allInnerTexts(), ["tides.txt", "mill.pdf", "paste.md"]);
  await checkAccessibility("the editor of a question with files");
  await picture("edit-files");
  await editor.focus();
  await page.keyboard.press("Enter");
  await answered();
  assert.deepEqual(await files.allInnerTexts(), ["tides.txt", "mill.pdf", "paste.md"]);
  await files.first().click();
  assert.match(await page.locator(".turn.user details.file pre").first().innerText(), /high at noon\.\n```\ncode\n```/);
});

test("a draft and its files stay with their conversation", async () => {
  const field = page.getByLabel("Question", { exact: true });
  const attached = () => page.locator("#attached li").allInnerTexts();
  const first = page.locator("#conversations button.conversation").first();
  await field.fill("A new one");
  await page.locator("#files").setInputFiles({ name: "draft.txt", mimeType: "text/plain", buffer: Buffer.from("Ebb") });
  await first.click();
  await page.locator(".turn.user").first().waitFor();
  assert.deepEqual([await field.inputValue(), await attached()], ["", []]);
  await field.fill("A later one");
  await page.locator("#new").click();
  await page.locator("#welcome").waitFor();
  assert.deepEqual([await field.inputValue(), await attached()], ["A new one", ["draft.txt"]]);
  await first.click();
  await page.locator(".turn.user").first().waitFor();
  assert.deepEqual([await field.inputValue(), await attached()], ["A later one", []]);
});

test("drafts survive a reload, with the files that there is room for", async () => {
  const field = page.getByLabel("Question", { exact: true });
  const attached = () => page.locator("#attached li").allInnerTexts();
  const shows = (text) => page.waitForFunction((text) => document.getElementById("question").value === text, text);
  const attach = async (files) => {
    await page.locator("#files").setInputFiles(files.map(([name, buffer]) => ({ name, mimeType: "text/plain", buffer })));
    await page.locator("#attached li", { hasText: files.at(-1)[0] }).waitFor();
    await page.locator("#attached li", { hasText: "reading…" }).first().waitFor({ state: "detached" });
  };
  const first = page.locator("#conversations button.conversation").first();
  await field.fill("When is the ebb?");
  await attach([["ebb.txt", Buffer.from("The ebb is at six.")]]);
  await first.click();
  await page.locator(".turn.user").first().waitFor();
  await field.fill("A later one");
  await page.reload();
  await shows("A later one");
  assert.deepEqual(await attached(), []);
  await page.locator("#new").click();
  await shows("When is the ebb?");
  assert.deepEqual(await attached(), ["ebb.txt"]);

  const large = Buffer.alloc(1 << 20, "a");
  await attach(Array.from({ length: 11 }, (_, index) => [`large-${index}.txt`, large]));
  await page.reload();
  await shows("When is the ebb?");
  const left = await attached();
  assert.ok(left.includes("ebb.txt") && left.length > 1 && left.length < 12, `the largest files are left out: ${left}`);
  for (const name of left.slice(1)) await page.getByRole("button", { name: `Do not send ${name}` }).click();
  await ask("When is the ebb?");
  await answered();
  assert.deepEqual(await page.locator(".turn.user details.file summary").allInnerTexts(), ["ebb.txt"]);
  await page.reload();
  await page.locator(".turn.answer").waitFor();
  assert.equal(await field.inputValue(), "", "what was sent is no draft");

  await attach([["flood.txt", Buffer.from("The flood is at noon.")]]);
  await page.evaluate(() => {
    for (let piece = "x".repeat(1 << 20), n = 0; piece; n += 1) {
      try {
        sessionStorage.setItem(`full-${n}`, piece);
      } catch {
        piece = piece.slice(Math.ceil(piece.length / 2));
      }
    }
  });
  await field.fill("And when is the flood?");
  await page.reload();
  await shows("And when is the flood?");
  assert.deepEqual(await attached(), [], "the file made way");
  await field.fill("");
  const drafts = () => page.evaluate(() => Object.keys(sessionStorage).filter((key) => key.startsWith("hone-draft")));
  assert.deepEqual(await drafts(), ["hone-draft-questions"]);
  await page.locator("#conversations button.conversation").nth(1).click();
  await shows("A later one");
  await field.fill("");
  assert.deepEqual(await drafts(), []);
});

test("a conversation has settings of its own", async () => {
  await page.getByRole("button", { name: "Settings of this conversation" }).click();
  await page.getByLabel("Instructions").fill("You are a pirate.");
  await page.getByLabel("Longest answer, in tokens").fill("3");
  await page.getByLabel("Temperature").fill("0");
  await picture("settings");
  await checkAccessibility("the settings of a conversation");
  await page.getByRole("button", { name: "Save" }).click();
  const [request] = await Promise.all([
    page.waitForRequest((request) => request.url().endsWith("/hone/v1/chat")),
    ask("Who are you?"),
  ]);
  const { system, temperature, max_tokens: most } = request.postDataJSON();
  assert.deepEqual([system, temperature, most], ["You are a pirate.", 0, 3]);
  await answered();
  await page.reload();
  await page.locator(".turn.answer .content").waitFor();
  assert.match(await page.locator("#open-settings").getAttribute("class"), /active/);
  const [next] = await Promise.all([
    page.waitForRequest((request) => request.url().endsWith("/hone/v1/chat")),
    ask("And where?"),
  ]);
  assert.deepEqual([next.postDataJSON().system, next.postDataJSON().max_tokens], [undefined, 3], "instructions are saved");
  await answered();
  await page.getByRole("button", { name: "Settings of this conversation" }).click();
  assert.equal(await page.getByLabel("Instructions").inputValue(), "You are a pirate.");
  await page.getByLabel("Instructions").fill("You are a poet.");
  await page.getByRole("button", { name: "Save" }).click();
  await page.reload();
  await page.locator(".turn.answer .content").first().waitFor();
  await page.getByRole("button", { name: "Settings of this conversation" }).click();
  assert.equal(await page.getByLabel("Instructions").inputValue(), "You are a poet.", "what is not saved yet is kept");
  await page.keyboard.press("Escape");
});

test("a lost connection is found again, and a conversation that opens late stays closed", async () => {
  let isCut = false;
  await page.route("**/hone/v1/chat", async (route) => {
    // The answer is asked for, and its stream is cut at once.
    const request = route.request();
    fetch(request.url(), { method: "POST", headers: { "content-type": "application/json" }, body: request.postData() });
    isCut = true;
    await route.abort();
  });
  await ask("What is the capital of Peru?");
  await page.locator(".complaint").waitFor();
  assert.ok(isCut);
  assert.match(await page.locator("#question").inputValue(), /Peru/, "the question can be asked again");
  await page.unroute("**/hone/v1/chat");
  problems = problems.filter((problem) => !problem.includes("Failed to load resource"));
  await page.reload();
  const begun = "Write a long story about a lighthouse, a mill and a goose.";
  await ask(begun);
  await page.locator(".turn.running .content p").first().waitFor();
  const place = new URL(page.url()).hash;
  await page.locator("#new").click();
  // The first of two conversations answers late: the second one is shown.
  await page.route(`**/hone/v1/conversations/${place.slice(4)}`, async (route) => {
    await new Promise((resolve) => setTimeout(resolve, 500));
    await route.continue();
  });
  const long = page.locator(`#conversations button[data-name="${decodeURIComponent(place.slice(4))}"]`);
  const row = (text) => page.locator("#conversations button.conversation", { hasText: text }).first();
  await long.click();
  const late = page.waitForResponse((response) => response.url().endsWith(place.slice(4)));
  await row("When is the tide high?").click();
  await late;
  await page.locator("#title", { hasText: "When is the tide high?" }).waitFor();
  await page.locator(".turn.user details.file").first().waitFor();
  assert.equal(await page.locator(".turn.running").count(), 0);
  await page.unroute(`**/hone/v1/conversations/${place.slice(4)}`);
  await long.click();
  await page.locator(".turn.running").waitFor();
  await page.locator("#stop").click();
  await answered();
});

test("an answer that was cut goes on, presets fill the settings, and conversations are pinned", async () => {
  home.run("preset", "create", "pirate", "--system", "You are a pirate.", "--max-tokens", "4");
  const settings = page.getByRole("button", { name: "Settings of this conversation" });
  await settings.click();
  await page.locator("#set-preset").selectOption("pirate");
  assert.equal(await page.getByLabel("Instructions").inputValue(), "You are a pirate.");
  assert.equal(await page.getByLabel("Longest answer, in tokens").inputValue(), "4");
  await page.getByRole("button", { name: "Save" }).click();
  await ask("Tell me about the sea.");
  await page.getByText("Cut off at the token limit.").waitFor();
  const content = page.locator(".turn.answer .content");
  const cut = await content.innerText();
  await picture("cut");
  await page.getByRole("button", { name: "Continue", exact: true }).click();
  const whole = await (await answered()).locator(".content").innerText();
  assert.ok(whole.startsWith(cut) && whole.length > cut.length, `${whole} continues ${cut}`);
  await picture("continued");
  assert.deepEqual(await page.locator(".turn.user .text").allInnerTexts(), ["Tell me about the sea."]);
  await page.getByRole("button", { name: "Earlier branch" }).click();
  await page.locator(".branches .quiet").getByText("1/2").waitFor();
  assert.equal(await content.innerText(), cut, "the shorter answer stays as another branch");
  await ask("Tell me about ships.");
  const ofShips = await (await answered()).locator(".content").last().innerText();
  await page.getByRole("button", { name: "Continue", exact: true }).last().click();
  const ofShipsWhole = await (await answered()).locator(".content").last().innerText();
  assert.ok(ofShipsWhole.startsWith(ofShips) && ofShipsWhole.length > ofShips.length, `${ofShipsWhole} continues ${ofShips}`);

  // The preset is shown as long as the settings are its own; others become a new one.
  const chosen = (name) => page.waitForFunction((name) => document.getElementById("set-preset").value === name, name);
  await page.reload();
  await page.locator(".turn.answer").first().waitFor();
  await settings.click();
  await chosen("pirate");
  await page.getByLabel("Temperature").fill("0.3");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await settings.click();
  await page.getByText("Save as a preset").click();
  await chosen("");
  await page.getByLabel("Name of the preset").fill("pirate");
  await page.keyboard.press("Enter");
  await page.getByText("A preset pirate exists already.").waitFor();
  await page.locator("#confirm-no").click();
  await page.getByText("The preset pirate is as it was.").waitFor();
  problems = problems.filter((problem) => !problem.includes("status of 409"));
  await picture("preset");
  await checkAccessibility("the settings with a new preset");
  await page.getByLabel("Name of the preset").fill("calm-pirate");
  await page.getByRole("button", { name: "Save the preset" }).click();
  await chosen("calm-pirate");
  assert.match(home.run("preset", "show", "calm-pirate"), /system = "You are a pirate\."[^]*max_tokens = 4\ntemperature = 0\.3/);
  await page.getByLabel("Temperature").fill("0.4");
  await page.getByText("Save as a preset").click();
  assert.equal(await page.getByLabel("Name of the preset").inputValue(), "calm-pirate", "the chosen one is changed");
  await page.getByRole("button", { name: "Save the preset" }).click();
  await page.locator("#confirm-yes").click();
  await page.getByText("The preset calm-pirate is saved.").waitFor();
  problems = problems.filter((problem) => !problem.includes("status of 409"));
  assert.match(home.run("preset", "show", "calm-pirate"), /temperature = 0\.4/);
  await page.locator("#set-preset").selectOption("pirate");
  await page.getByRole("button", { name: "Delete the preset" }).click();
  await page.locator("#confirm-yes").click();
  await page.locator("#settings-note").getByText("The preset pirate is deleted.").waitFor();
  assert.deepEqual(await page.locator("#set-preset option").allInnerTexts(), ["none", "calm-pirate"]);
  await page.locator("#set-preset").selectOption("calm-pirate");
  await page.getByLabel("Temperature").fill("0.3");

  await page.getByLabel("Use as defaults of new conversations").check();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.locator("#new").click();
  const [request] = await Promise.all([
    page.waitForRequest((request) => request.url().endsWith("/hone/v1/chat")),
    ask("What is 1 + 1?"),
  ]);
  const { system, temperature, max_tokens: most } = request.postDataJSON();
  assert.deepEqual([system, temperature, most], ["You are a pirate.", 0.3, 4], "a new conversation has the defaults");
  await answered();
  await settings.click();
  assert.equal(await page.getByLabel("Temperature").inputValue(), "0.3", "and keeps them");
  await page.getByRole("button", { name: "Remove the defaults" }).click();
  await page.getByText("New conversations begin without settings.").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("#new").click();
  await page.locator("#welcome").waitFor();
  await settings.click();
  assert.equal(await page.getByLabel("Temperature").inputValue(), "");
  assert.equal(await page.getByLabel("Instructions").inputValue(), "");
  await page.getByLabel("Temperature").fill("0.2");
  await page.getByLabel("Use as defaults of new conversations").check();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await settings.click();
  assert.equal(await page.getByLabel("Temperature").inputValue(), "0.2");
  await page.getByRole("button", { name: "Remove the defaults" }).click();
  assert.equal(await page.getByLabel("Temperature").inputValue(), "");
  await page.keyboard.press("Escape");

  const first = page.locator("#conversations li").first();
  assert.match(await first.innerText(), /1 \+ 1/);
  await page.getByLabel("More for Tell me about the sea.").click();
  await page.getByRole("button", { name: "Pin", exact: true }).click();
  await page.getByText("Pinned ·").waitFor();
  assert.match(await first.innerText(), /the sea/);
  await picture("pinned");
});

test("a downloaded model can be chosen at once, and a failed download says why", async () => {
  const { models, ...listed } = await (await page.request.get(`${served.address}/hone/v1/models`)).json();
  const before = await page.locator("#model").inputValue();
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("tab", { name: "Models" }).click();
  await page.getByText("Models to download").click();
  const download = page.getByRole("button", { name: "Download qwen3:0.6b" });
  await download.waitFor();
  // There is no hub to download from here: these stand in for the server's words.
  const says = (...lines) =>
    page.route("**/api/pull", (route) => route.fulfill({ body: lines.map((line) => JSON.stringify(line) + "\n").join("") }));
  await says({ status: "pulling qwen3", completed: 1, total: 2 }, { error: "the disk is full" });
  await download.click();
  await page.locator("#models").getByRole("alert").getByText("qwen3:0.6b: the disk is full").waitFor();
  await page.unroute("**/api/pull");
  await says({ status: "pulling qwen3", completed: 1, total: 2 }, { status: "success" });
  const added = { name: "qwen3:0.6b", bytes: 2, installed: 0, answers: true, context: 4096, elsewhere: false };
  const embedder = { ...added, name: "all-minilm:l6-v2", answers: false };
  const all = { ...listed, models: [...models, added, embedder] };
  await page.route("**/hone/v1/models", (route) => route.fulfill({ json: all }));
  await download.click();
  await page.locator("#model option[value='qwen3:0.6b']").waitFor({ state: "attached" });
  assert.equal(await page.locator("#model").inputValue(), before, "the chosen model stays chosen");
  assert.equal(await page.locator("#models").getByRole("alert").count(), 0, "the failure is over");
  await page.getByRole("button", { name: "Remove all-minilm:l6-v2" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Load all-minilm:l6-v2", exact: true }).count(), 0, "it does not chat");

  await page.unroute("**/api/pull");
  await page.route("**/api/pull", () => {});
  await page.getByRole("button", { name: "Download qwen3:1.7b" }).click();
  const asked = page.waitForEvent("dialog");
  const reloaded = page.reload();
  const dialog = await asked;
  assert.equal(dialog.type(), "beforeunload", "a reload would end the download");
  await dialog.accept();
  await reloaded;
});

test("conversations are put into folders, which stay closed if a person has closed them", async () => {
  await ask("What is 2 + 2?");
  await answered();
  const title = "What is 2 + 2?";
  const conversation = page.locator("#conversations button.conversation", { hasText: title });
  const move = async (folder) => {
    await page.getByLabel(`More for ${title}`).click();
    await page.getByRole("button", { name: "Move to a folder" }).click();
    await page.getByLabel("Folder, or nothing").fill(folder);
    await page.keyboard.press("Enter");
  };
  await move("Sums");
  await page.locator(".folder", { hasText: "Sums" }).getByText(title).waitFor();
  await checkAccessibility("a folder of conversations");
  await picture("folder");
  await page.locator(".folder summary .name", { hasText: "Sums" }).click();
  await conversation.waitFor({ state: "hidden" });
  await page.reload();
  await page.locator(".folder").waitFor();
  assert.equal(await conversation.isVisible(), false, "a reload keeps it closed");
  await page.getByLabel("Search conversations").fill("2 + 2");
  await conversation.waitFor();
  assert.equal(await page.locator(".folder").count(), 0, "what is found is one list");
  await page.getByLabel("Search conversations").fill("");
  await page.locator(".folder summary .name").click();
  await page.getByLabel(`More for ${title}`).click();
  await page.getByRole("button", { name: "Rename", exact: true }).click();
  await page.getByLabel("New name").fill("Four");
  await page.keyboard.press("Enter");
  await page.locator(".folder", { hasText: "Sums" }).getByText("Four").waitFor();
  await page.getByRole("button", { name: "Rename the folder Sums" }).click();
  await page.getByLabel("New name of the folder").fill("Additions");
  await page.keyboard.press("Enter");
  await page.locator(".folder", { hasText: "Additions" }).getByText("Four").waitFor();
  await page.getByLabel("More for Four").click();
  await page.getByRole("button", { name: "Move to a folder" }).click();
  await page.keyboard.press("Delete");
  await page.keyboard.press("Enter");
  await page.locator(".folder").waitFor({ state: "detached" });
  await page.locator("#conversations").getByText("Four").waitFor();
});

test("a menu at the end of the list is wholly visible, and the keyboard has it", async () => {
  await page.setViewportSize({ width: DESKTOP.width, height: 420 });
  const open = () => page.locator("details.menu[open] > div");
  const whole = () =>
    open().evaluate((box) =>
      [...box.children].every((button) => {
        const { left, right, top, bottom } = button.getBoundingClientRect();
        return button === document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
      }),
    );
  for (const summary of [page.locator("#conversations summary.icon").last(), page.locator("#conversations summary.icon").first()]) {
    await summary.scrollIntoViewIfNeeded();
    await summary.focus();
    await page.keyboard.press("Enter");
    await open().waitFor();
    assert.ok(await whole(), "nothing of the menu is cut off");
    if (await summary.evaluate((it) => it.closest("li").nextElementSibling === null)) await picture("last-menu");
    await page.keyboard.press("Tab");
    assert.match(await page.evaluate(() => document.activeElement.textContent), /^(Pin|Unpin)$/);
    await page.keyboard.press("Escape");
    await open().waitFor({ state: "detached" });
    assert.ok(await summary.evaluate((it) => it === document.activeElement), "the focus is at its button again");
  }
});

test("a refresh of the list keeps the focus, and a name that is being written", async () => {
  const at = (index) => page.locator("#conversations > li").nth(index);
  const refresh = () => page.evaluate(async () => (await import("/page/sidebar.js")).refresh());
  const focused = () => page.evaluate(() => [document.activeElement.tagName, document.activeElement.closest("li")?.textContent]);
  await at(1).locator("button.conversation").waitFor();
  const order = await page.locator("#conversations .conversation").evaluateAll((all) => all.map((it) => it.dataset.name));
  const chosen = page.locator(`#conversations [data-name="${order[1]}"]`);
  await chosen.focus();
  const before = await focused();
  // Another order, as after an answer elsewhere.
  await page.route("**/hone/v1/conversations?search=", async (route) => {
    const response = await route.fetch();
    const { conversations } = await response.json();
    await route.fulfill({ response, json: { conversations: conversations.reverse() } });
  });
  await refresh();
  assert.deepEqual(await focused(), before);
  const names = await page.locator("#conversations .conversation").evaluateAll((all) => all.map((it) => it.dataset.name));
  assert.deepEqual(names, order.toReversed());
  await page.unroute("**/hone/v1/conversations?search=");

  await chosen.locator("xpath=..").locator("summary").click();
  await page.getByRole("button", { name: "Rename", exact: true }).click();
  const field = page.getByLabel("New name");
  await field.fill("Half a na");
  await refresh();
  await page.keyboard.type("me");
  assert.equal(await field.inputValue(), "Half a name");
  await page.keyboard.press("Escape");
  await chosen.waitFor();
  assert.equal((await focused())[0], "SUMMARY", "the focus goes back to the menu");
});

test("the page can be installed", async () => {
  const session = await context.newCDPSession(page);
  const { url, errors, data } = await session.send("Page.getAppManifest");
  assert.deepEqual(errors, []);
  assert.equal(url, `${served.address}/page/hone.webmanifest`);
  const { start_url: start, display, icons } = JSON.parse(data);
  assert.deepEqual([start, display], ["/", "standalone"]);
  assert.equal((await page.request.get(new URL(icons[0].src, served.address).href)).status(), 200);
  const { installabilityErrors: others } = await session.send("Page.getInstallabilityErrors");
  assert.deepEqual(others.map(({ errorId }) => errorId), ["in-incognito"], "only the test's window cannot keep it");
});

test("themes are switched and keys do what buttons do", async () => {
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await paper();
  await page.getByRole("button", { name: "Theme: as the system" }).click();
  await page.getByRole("button", { name: "Theme: light" }).click();
  assert.notEqual(await paper(), light);
  await page.reload();
  await page.getByRole("button", { name: "Theme: dark" }).waitFor();
  assert.notEqual(await paper(), light, "a reload keeps the theme");
  await page.locator("#log").focus();
  await page.keyboard.press("?");
  await page.getByRole("heading", { name: "Keys" }).waitFor();
  await picture("keys");
  await checkAccessibility("the sheet of keys in the dark");
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "question");
  await page.keyboard.type("a/b?");
  assert.equal(await page.locator("#question").inputValue(), "a/b?", "in a text they are letters");
  await page.keyboard.press("Control+k");
  assert.equal(await page.evaluate(() => document.activeElement.id), "search");
  await page.keyboard.press("Control+Shift+S");
  await page.getByLabel("Instructions").waitFor();
});

test("tables keep their alignment, lists their boxes, code its language, and addresses are links", async () => {
  const markdown = "| a | b |\n|:-:|--:|\n| one | two |\n\n- [x] done\n- [ ] open\n\n```rust\nfn main() {}\n```\n\nSee https://a.example/b_c.";
  const { html } = await (
    await page.request.post(`${served.address}/hone/v1/render`, { data: { markdown } })
  ).json();
  await page.evaluate(async (html) => {
    const { fillWithRendered, element } = await import("/page/elements.js");
    const content = element("div", { class: "content" });
    fillWithRendered(content, html);
    document.getElementById("turns").append(content);
  }, html);
  const align = (at) => page.locator(`.content td:nth-child(${at})`).evaluate((cell) => getComputedStyle(cell).textAlign);
  assert.deepEqual([await align(1), await align(2)], ["center", "right"]);
  assert.match(await page.locator(".content ul").innerText(), /☑ done\s+☐ open/);
  assert.equal(await page.locator(".code .language").innerText(), "rust");
  assert.equal(await page.locator(".content a").getAttribute("href"), "https://a.example/b_c");
  await checkAccessibility("a table, a list, code and a link");
});

test("what another window does in a conversation is said, and one that it deletes is no dead end", async () => {
  await page.locator("#new").click();
  await ask("What is the capital of Norway?");
  await answered();
  const other = await context.newPage();
  await other.goto(page.url());
  await other.locator(".turn.answer").first().waitFor();
  await other.getByLabel("Question", { exact: true }).fill("And of Sweden?");
  await other.keyboard.press("Enter");
  await other.locator(".turn.answer").nth(1).waitFor();
  await other.locator("#stop").waitFor({ state: "hidden" });
  await ask("And of Denmark?");
  await answered();
  await page.getByText("Another window has answered in this conversation meanwhile").waitFor();

  await ask("Write a very long story about the sea.");
  await page.locator(".turn.running .content p").first().waitFor();
  const path = `/hone/v1/conversations/${new URL(page.url()).hash.slice(4)}`;
  const status = await other.evaluate(async (path) => (await fetch(path, { method: "DELETE" })).status, path);
  assert.equal(status, 200, "the answer is stopped, and the conversation deleted");
  await answered();
  await ask("What is the capital of Iceland?");
  await page.getByText("This conversation was deleted or renamed elsewhere. The next question begins a new one.").waitFor();
  assert.equal(await page.locator("#question").inputValue(), "What is the capital of Iceland?");
  await page.keyboard.press("Enter");
  await page.locator(".turn.answer").first().waitFor();
  await answered();
  assert.equal(await page.locator(".turn.answer").count(), 1);
  await other.close();
  problems = problems.filter((problem) => !problem.includes("404"));
});

test("models that cannot answer are not offered for it", async () => {
  const { models } = await (await page.request.get(`${served.address}/hone/v1/models`)).json();
  const offered = await page.locator("#model option").evaluateAll((options) => options.map((option) => option.value));
  for (const { name, answers } of models) assert.equal(offered.includes(name), answers, name);
  assert.ok(models.some(({ answers }) => answers));
});

test("a page without a model of its own answers with that of a worker, and shows the workers", async () => {
  const nats = await startNats(process.env.NATS_SERVER);
  const worker = await home.work(nats.address);
  const bare = new Home({ hone: given.hone });
  const other = await bare.serve({ HONE_BUS_URL: nats.address });
  try {
    await open(DESKTOP, { address: other.address });
    assert.equal(await page.locator("#model").inputValue(), "smollm2:135m");
    await ask("In which city is the Eiffel Tower?");
    assert.match(await (await answered()).innerText(), /Paris/);
    await page.getByRole("button", { name: "Details" }).click();
    await page.getByRole("tab", { name: "Models" }).click();
    await page.locator("#models").getByText("answers with smollm2:135m").waitFor();
    await page.locator("#models .models").getByText("on a worker").waitFor();
    assert.equal(await page.locator("#models .models button").count(), 0, "nothing can be done with it here");
    await checkAccessibility("the workers");
    await picture("workers");
  } finally {
    await page.goto("about:blank");
    for (const running of [other, worker, nats]) await running.stop();
    bare.remove();
  }
});
