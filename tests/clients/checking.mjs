// What the scripts of all JavaScript clients share. Arguments of each: the server's address, a model, and the embedder if
// there is one.

import assert from 'node:assert/strict';

export const [address, model, embedder] = process.argv.slice(2);
export const question = 'In which city is the Eiffel Tower?';
export const story = 'Tell me a very long story.';
export const turns = [{ role: 'user', content: question }];
export const texts = ['The cat sits on the mat.', 'A kitten rests on a rug.', 'Interest rates rose again.'];
export const clockParameters = {
  type: 'object',
  properties: { city: { enum: ['Paris', 'Rome'] } },
  required: ['city'],
};
export const clock = {
  type: 'function',
  function: { name: 'clock', description: 'Tells the time in a city', parameters: clockParameters },
};
export const citySchema = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 20 } },
  required: ['city'],
};

// Checks that the first two of three vectors say the same.
export function checkMeaning(vectors) {
  const cosine = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
  const [same, other] = [vectors[1], vectors[2]].map((vector) => cosine(vectors[0], vector));
  assert.ok(vectors.length === 3 && same > other + 0.2, `${same} ${other}`);
}

// The sum of a figure of /metrics over the lines with a label.
async function figures(name, label = '') {
  const lines = (await (await fetch(`${address}/metrics`)).text()).split('\n');
  const found = lines.filter((line) => line.startsWith(name) && line.includes(label));
  return found.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

// Checks that the client goes away from exactly one answer, which ends by that, and that nothing runs then.
export async function oneCancelled(leaveEarly) {
  const cancelled = () => figures('hone_answers_total', 'outcome="cancelled"');
  const before = await cancelled();
  await leaveEarly();
  const deadline = Date.now() + 60_000;
  while ((await figures('hone_questions_in_progress')) > 0 || (await cancelled()) === before) {
    assert.ok(Date.now() < deadline, 'the answer goes on, or has ended by itself');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.equal(await cancelled(), before + 1);
}

// The text of a stream's pieces.
export async function joined(stream, textOf) {
  const pieces = [];
  for await (const piece of stream) pieces.push(textOf(piece) ?? '');
  return pieces.join('');
}

// Runs the checks, and prints a line for each. Functions without a check (no embedder) are undefined.
export async function run(...checks) {
  for (const check of checks.filter(Boolean)) {
    await check();
    console.log(`ok ${check.name}`);
  }
}
