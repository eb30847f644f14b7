/**
 * A server of Kvasir whose answers are scripted, which keeps each request that it gets. Requests are read, rendered and tokenized, and answers
 * are parsed and streamed, as for a real model. Only the model's words come from here. Used by `record.mjs`.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer as createHttp } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeTinyModel } from '../../dist/bench/make-model/model-maker.js';
import { tooManyTokens } from '../../dist/src/core/errors.js';
import { createEngine } from '../../dist/src/index.js';
import { createServer } from '../../dist/src/server/create-server.js';

/**
 * `answerTo(path, body)` gives the text of the model for a request. `kept` gets `{ method, path, headers, body, status }` of each request, and the
 * prompt of each chat.
 */
export async function scriptedServer({ answerTo, kept, chatTemplate, servedModelName = 'letters', maxModelLen = 400_000, port = 0 }) {
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-agents-'));
  const model = join(folder, 'letters.gguf');
  // A token of this vocabulary is about a character, so that the context has room for the prompts of agents.
  await writeTinyModel(model, { architecture: 'llama', type: 'Q8_0', layers: 1, heads: 1, headsKv: 1, context: maxModelLen });
  const engine = await createEngine({
    model,
    servedModelName,
    threads: 1,
    kvCacheMemory: maxModelLen * 300,
    ...(chatTemplate === undefined ? {} : { chatTemplate }),
  });
  const current = new AsyncLocalStorage();
  engine.generate = (request, { signal } = {}) => speak(engine, request, current.getStore(), signal);
  const server = createServer(engine, { logLevel: 'silent', allowedHosts: ['*'] });
  const http = createHttp((request, response) => {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString();
      const entry = { method: request.method, path: request.url, headers: request.headers };
      try {
        entry.body = JSON.parse(text);
      } catch {
        entry.text = text;
      }
      kept.push(entry);
      response.on('finish', () => {
        entry.status = response.statusCode;
      });
      keepErrors(response, entry);
      entry.answer = entry.body === undefined ? '' : answerTo(entry.path, entry.body);
      request.body = entry.body ?? text;
      current.run(entry, () => server.handler(request, response));
    });
  });
  await new Promise((resolve) => http.listen(port, '127.0.0.1', resolve));
  const close = async () => {
    http.closeAllConnections();
    await new Promise((resolve) => http.close(resolve));
    await engine.close();
    rmSync(folder, { recursive: true });
  };
  return { origin: `http://127.0.0.1:${http.address().port}`, engine, close };
}

/** The body of an answer that is no success. */
function keepErrors(response, entry) {
  const { write, end } = response;
  const keep = (chunk) => {
    if (response.statusCode >= 400 && chunk != null && typeof chunk !== 'function') entry.error = (entry.error ?? '') + chunk;
  };
  response.write = (chunk, ...rest) => {
    keep(chunk);
    return write.call(response, chunk, ...rest);
  };
  response.end = (chunk, ...rest) => {
    keep(chunk);
    return end.call(response, chunk, ...rest);
  };
}

const deltaLength = 7;

async function* speak(engine, request, entry, signal) {
  const { maxModelLen } = engine.model;
  const { prompt } = request;
  entry.tokens = prompt.length;
  entry.prompt = engine.detokenize(prompt, { skipSpecialTokens: false });
  if (prompt.length >= maxModelLen) throw tooManyTokens({ promptTokens: prompt.length, maxModelLen });
  const maxTokens = request.params?.maxTokens ?? maxModelLen - prompt.length;
  const text = entry.answer.slice(0, maxTokens);
  const nothing = { cachedTokens: 0, computedTokens: prompt.length, recomputedTokens: 0, preemptions: 0 };
  for (let i = 0; i < Math.max(1, text.length); i += deltaLength) {
    const piece = text.slice(i, i + deltaLength);
    const stats = { ...nothing, promptTokens: prompt.length, outputTokens: Math.min(text.length, i + deltaLength) };
    const isLast = i + deltaLength >= text.length;
    const reason = text.length < entry.answer.length ? 'length' : 'stop';
    yield { index: 0, text: piece, tokenIds: [...piece].map(() => 97), stats, ...(isLast ? { finish: { reason } } : {}) };
  }
}
