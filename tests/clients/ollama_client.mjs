// Ollama's package for JavaScript against hone.

import assert from 'node:assert/strict';
import { Ollama } from 'ollama';
import {
  address,
  checkMeaning,
  citySchema,
  clock,
  embedder,
  joined,
  model,
  oneCancelled,
  question,
  run,
  story,
  texts,
  turns,
} from './checking.mjs';

const client = new Ollama({ host: address });
const ask = (options) => ({ model, messages: turns, options: { temperature: 0, num_predict: 16 }, ...options });

async function questionsAreAnswered() {
  const answer = await client.chat(ask());
  assert.match(answer.message.content, /Paris/);
  assert.ok(answer.done && answer.eval_count > 0);
  const { messages: _, ...asked } = ask({ prompt: question });
  assert.match((await client.generate(asked)).response, /Paris/);
  const listed = (await client.list()).models.map((known) => known.model);
  assert.ok(listed.includes(model), listed);
  assert.ok((await client.show({ model })).capabilities.includes('completion'));
}

async function answersAreStreamed() {
  const stream = await client.chat(ask({ stream: true }));
  assert.match(await joined(stream, (part) => part.message.content), /Paris/);
}

async function toolsAreOffered() {
  const answer = await client.chat(ask({ tools: [clock] }));
  assert.ok(answer.message.content || answer.message.tool_calls.length > 0);
  const call = { function: { name: 'clock', arguments: { city: 'Paris' } } };
  const result = { role: 'tool', content: '12:00', tool_name: 'clock' };
  const told = [...turns, { role: 'assistant', content: '', tool_calls: [call] }, result];
  assert.ok((await client.chat(ask({ messages: told, tools: [clock] }))).message.content);
}

async function formsAreKept() {
  const answer = await client.chat(ask({ format: citySchema, options: { temperature: 0, num_predict: 60 } }));
  assert.equal(typeof JSON.parse(answer.message.content).city, 'string');
}

async function textsAreEmbedded() {
  checkMeaning((await client.embed({ model: embedder, input: texts })).embeddings);
}

async function modelsAreCopied() {
  await client.copy({ source: model, destination: 'copied:js' });
  assert.match((await client.chat(ask({ model: 'copied:js' }))).message.content, /Paris/);
}

async function errorsAreTyped() {
  const refused = (asking, status, text) =>
    assert.rejects(asking, (error) => {
      assert.deepEqual([error.name, error.status_code], ['ResponseError', status]);
      assert.match(error.message, text);
      return true;
    });
  await refused(client.chat(ask({ model: 'none' })), 404, /not installed/);
  await refused(client.chat(ask({ format: 'xml' })), 400, /format is/);
  await refused(client.copy({ source: 'none', destination: 'x' }), 404, /not installed/);
  await refused(client.copy({ source: model, destination: '../x' }), 400, /not a name/);
}

async function anAnswerIsCancelled() {
  await oneCancelled(async () => {
    const messages = [{ role: 'user', content: story }];
    const stream = await client.chat(ask({ messages, options: { num_predict: 4000 }, stream: true }));
    const left = assert.rejects(async () => {
      for await (const _ of stream) stream.abort();
    }, { name: 'AbortError' });
    await left;
  });
}

await run(
  questionsAreAnswered,
  answersAreStreamed,
  toolsAreOffered,
  formsAreKept,
  embedder && textsAreEmbedded,
  modelsAreCopied,
  errorsAreTyped,
  anAnswerIsCancelled,
);
