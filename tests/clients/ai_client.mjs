// Vercel's package `ai` against hone, with its provider for servers that speak OpenAI's API.

import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, Output, embedMany, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import {
  address,
  checkMeaning,
  clockParameters,
  embedder,
  joined,
  model,
  oneCancelled,
  question,
  run,
  story,
  texts,
} from './checking.mjs';

const hone = createOpenAICompatible({
  name: 'hone',
  baseURL: `${address}/v1`,
  apiKey: 'none',
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const limits = { temperature: 0, maxOutputTokens: 16, maxRetries: 0 };
const ask = (options) => ({ model: hone(model), prompt: question, ...limits, ...options });
const clock = tool({
  description: 'Tells the time in a city',
  inputSchema: jsonSchema(clockParameters),
  execute: async ({ city }) => `12:00 in ${city}`,
});

async function questionsAreAnswered() {
  const answer = await generateText(ask());
  assert.match(answer.text, /Paris/);
  assert.ok(answer.usage.outputTokens > 0);
}

async function answersAreStreamed() {
  const stream = streamText(ask());
  assert.match(await joined(stream.textStream, (text) => text), /Paris/);
  assert.ok((await stream.usage).outputTokens > 0);
}

async function toolsAreCalled() {
  const first = { tools: { clock }, toolChoice: 'required', maxOutputTokens: 60 };
  const { toolCalls, toolResults } = await generateText(ask(first));
  assert.equal(toolCalls[0].toolName, 'clock');
  assert.equal(toolResults[0].output, `12:00 in ${toolCalls[0].input.city}`);
  // The model is told the result, and answers or calls again.
  const answer = await generateText(ask({ ...first, stopWhen: stepCountIs(2) }));
  assert.equal(answer.steps.length, 2);
}

async function formsAreKept() {
  const output = Output.object({ schema: z.object({ city: z.string().max(20) }) });
  const answer = await generateText(ask({ output, maxOutputTokens: 60 }));
  assert.equal(typeof answer.output.city, 'string');
}

async function textsAreEmbedded() {
  checkMeaning((await embedMany({ model: hone.textEmbeddingModel(embedder), values: texts })).embeddings);
}

async function errorsAreTyped() {
  const refused = (options, status, text) =>
    assert.rejects(generateText(ask(options)), (error) => {
      assert.ok(APICallError.isInstance(error), error);
      assert.equal(error.statusCode, status);
      assert.match(error.message, text);
      return true;
    });
  await refused({ model: hone('none') }, 404, /not installed/);
  await refused({ temperature: -1 }, 400, /temperature is -1/);
  await refused({ prompt: 'long '.repeat(20000) }, 400, /shorten it by/);
}

async function anAnswerIsCancelled() {
  await oneCancelled(async () => {
    const left = new AbortController();
    const { textStream } = streamText(ask({ prompt: story, maxOutputTokens: 4000, abortSignal: left.signal }));
    for await (const _ of textStream) left.abort();
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
