// OpenAI's package for JavaScript against hone.

import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import {
  address,
  checkMeaning,
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

const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: 'none', maxRetries: 0, timeout: 120_000 });
const ask = (options) => ({ model, messages: turns, temperature: 0, max_tokens: 16, ...options });

async function questionsAreAnswered() {
  const answer = await client.chat.completions.create(ask());
  assert.match(answer.choices[0].message.content, /Paris/);
  assert.ok(answer.usage.completion_tokens > 0);
  const response = await client.responses.create({ model, input: question, temperature: 0, max_output_tokens: 16 });
  assert.match(response.output_text, /Paris/);
  assert.ok((await client.models.list()).data.some((known) => known.id === model));
}

async function answersAreStreamed() {
  const stream = await client.chat.completions.create(ask({ stream: true }));
  assert.match(await joined(stream, (chunk) => chunk.choices[0]?.delta.content), /Paris/);
  const runner = client.chat.completions.stream(ask());
  assert.match(await runner.finalContent(), /Paris/);
}

async function toolsAreCalled() {
  const asked = ask({ tools: [clock], tool_choice: 'required', max_tokens: 60 });
  const [call] = (await client.chat.completions.create(asked)).choices[0].message.tool_calls;
  assert.equal(call.function.name, 'clock');
  assert.match(JSON.parse(call.function.arguments).city, /^(Paris|Rome)$/);
  const streamed = (await client.chat.completions.stream(asked).finalMessage()).tool_calls;
  assert.equal(streamed[0].function.arguments, call.function.arguments);
  const result = { role: 'tool', tool_call_id: call.id, content: '12:00' };
  const told = [...turns, { role: 'assistant', tool_calls: [call] }, result];
  assert.ok((await client.chat.completions.create(ask({ messages: told, tools: [clock] }))).choices[0].message.content);
}

async function formsAreKept() {
  const format = zodResponseFormat(z.object({ city: z.string().max(20) }), 'city');
  const answer = await client.chat.completions.parse(ask({ response_format: format, max_tokens: 60 }));
  assert.equal(typeof answer.choices[0].message.parsed.city, 'string');
}

async function textsAreEmbedded() {
  const made = await client.embeddings.create({ model: embedder, input: texts });
  checkMeaning(made.data.map((one) => one.embedding));
}

async function errorsAreTyped() {
  const refused = (options, kind, fields) =>
    assert.rejects(client.chat.completions.create(ask(options)), (error) => {
      assert.ok(error instanceof kind, error);
      for (const [name, value] of Object.entries(fields)) assert.equal(error[name], value);
      return true;
    });
  await refused({ model: 'none' }, OpenAI.NotFoundError, { status: 404, code: 'model_not_found', param: 'model' });
  await refused({ temperature: -1 }, OpenAI.BadRequestError, { status: 400, param: 'temperature' });
  const long = [{ role: 'user', content: 'long '.repeat(20000) }];
  await refused({ messages: long }, OpenAI.BadRequestError, { code: 'context_length_exceeded' });
}

async function anAnswerIsCancelled() {
  await oneCancelled(async () => {
    const messages = [{ role: 'user', content: story }];
    const stream = await client.chat.completions.create(ask({ messages, max_tokens: 4000, stream: true }));
    for await (const _ of stream) break;
  });
}

await run(
  questionsAreAnswered,
  answersAreStreamed,
  toolsAreCalled,
  formsAreKept,
  embedder && textsAreEmbedded,
  errorsAreTyped,
  anAnswerIsCancelled,
);
