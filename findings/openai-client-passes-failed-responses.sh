#!/usr/bin/env bash
# A stream of OpenAI's Responses API may end early with the event `response.failed`. OpenAI's client for Node (7.59.0) gives this event to
# the loop as any other and raises nothing, so a program that joins the text deltas takes half a text for the whole one. The event
# `error` of the same API raises, and so does `{"error": ...}` in a stream of chat completions.
# Seen: 2026-11-28, Node 20.20.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{ "type": "module" }' > package.json
npm install --silent --no-audit --no-fund openai@7.59.0 > /dev/null

cat > check.mjs <<'JS'
import { createServer } from 'node:http';
import OpenAI from 'openai';

const response = (status) => ({ id: 'resp_1', object: 'response', status, model: 'm', output: [], error: null });
const failure = { code: 'server_error', message: 'The server is shutting down.' };
const delta = { type: 'response.output_text.delta', item_id: 'i', output_index: 0, content_index: 0, delta: 'Half a' };
const endings = {
  'response.failed': { type: 'response.failed', response: { ...response('failed'), error: failure } },
  error: { type: 'error', param: null, ...failure },
};
let ending;
const server = createServer((request, reply) => {
  request.resume();
  reply.setHeader('content-type', 'text/event-stream');
  const events = request.url.endsWith('/responses')
    ? [{ type: 'response.created', response: response('in_progress') }, delta, endings[ending]]
    : [{ choices: [{ index: 0, delta: { content: 'Half a' }, finish_reason: null }] }, { error: failure }];
  for (const event of events) reply.write(`${event.type ? `event: ${event.type}\n` : ''}data: ${JSON.stringify(event)}\n\n`);
  reply.end();
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const client = new OpenAI({ apiKey: 'none', baseURL: `http://127.0.0.1:${server.address().port}/v1`, maxRetries: 0 });

async function outcome(open, textOf) {
  let text = '';
  try {
    for await (const event of await open()) text += textOf(event) ?? '';
    return `no error, "${text}"`;
  } catch (error) {
    return `raises: ${error.message}`;
  }
}
for (ending of Object.keys(endings)) {
  const open = () => client.responses.create({ model: 'm', input: 'x', stream: true });
  console.log(ending, '-', await outcome(open, (event) => event.type === 'response.output_text.delta' && event.delta ? event.delta : ''));
}
const chat = () => client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'x' }], stream: true });
console.log('chat -', await outcome(chat, (chunk) => chunk.choices[0]?.delta.content));
server.close();
JS
result=$(node check.mjs)
printf '%s\n' "$result"
[ "$result" = 'response.failed - no error, "Half a"
error - raises: The server is shutting down.
chat - raises: The server is shutting down.' ]
