import { createHash } from 'node:crypto';

/**
 * The chat page: one HTML file that loads nothing from other hosts and uses only the public API. It inserts text as text
 * nodes, never as HTML, and its content security policy allows only its own script.
 */
export interface ChatPage {
  readonly html: string;
  readonly headers: Readonly<Record<string, string>>;
}

const style = `
  :root { color-scheme: light dark; --line: #8884; --soft: #8882; --accent: #3b6ea5; }
  * { box-sizing: border-box; }
  body { margin: 0 auto; max-width: 48rem; height: 100dvh; display: flex; flex-direction: column;
    font: 16px/1.5 system-ui, sans-serif; }
  header, form { padding: .75rem 1rem; display: flex; gap: .5rem; align-items: center; }
  header { border-bottom: 1px solid var(--line); }
  header b { flex: 1; }
  header small, .note { opacity: .65; font-size: .8rem; }
  main { flex: 1; overflow-y: auto; padding: 1rem; }
  .turn { margin: 0 0 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
  .user { margin-left: 15%; padding: .5rem .75rem; border-radius: .75rem; background: var(--soft); }
  .error { color: #c33; }
  form { border-top: 1px solid var(--line); }
  textarea { flex: 1; resize: none; padding: .5rem; font: inherit; border: 1px solid var(--line); border-radius: .5rem;
    background: transparent; color: inherit; }
  button, input { font: inherit; padding: .4rem .8rem; border: 1px solid var(--line); border-radius: .5rem;
    background: transparent; color: inherit; }
  input { width: 4.5rem; padding: .2rem .4rem; }
  #send { background: var(--accent); border-color: var(--accent); color: #fff; }
`;

// Runs in the browser. It is a template literal itself, so it must not contain template literals.
const script = `
  'use strict';
  const $ = (id) => document.getElementById(id);
  let messages = [];
  let running = null;
  let key = sessionStorage.getItem('kvasir-key') || '';

  async function call(path, options) {
    for (;;) {
      const headers = { 'content-type': 'application/json' };
      if (key) headers.authorization = 'Bearer ' + key;
      const response = await fetch(path, { ...options, headers });
      if (response.status !== 401) return response;
      key = prompt('This server asks for an API key:') || '';
      if (!key) return response;
      sessionStorage.setItem('kvasir-key', key);
    }
  }

  function add(className, text) {
    const turn = document.createElement('div');
    turn.className = className;
    turn.textContent = text;
    $('turns').append(turn);
    follow();
    return turn;
  }

  function follow() {
    $('turns').scrollTop = $('turns').scrollHeight;
  }

  async function* eventsOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (rest + value).split('\\n\\n');
      rest = events.pop();
      for (const event of events) {
        if (event.startsWith('data: ') && event !== 'data: [DONE]') yield JSON.parse(event.slice(6));
      }
    }
  }

  function noteOf(usage, startMs, firstMs) {
    if (!usage) return '';
    const endMs = performance.now();
    const rate = usage.completion_tokens > 1 ? (1000 * (usage.completion_tokens - 1)) / (endMs - firstMs) : 0;
    return usage.prompt_tokens + ' prompt tokens (' + usage.prompt_tokens_details.cached_tokens + ' cached), first text after '
      + Math.round(firstMs - startMs) + ' ms, ' + usage.completion_tokens + ' tokens'
      + (rate ? ' at ' + rate.toFixed(1) + ' per second' : '');
  }

  async function send() {
    const text = $('text').value.trim();
    if (!text || running) return;
    $('text').value = '';
    add('turn user', text);
    const conversation = messages;
    conversation.push({ role: 'user', content: text });
    const answer = add('turn', '');
    running = new AbortController();
    $('send').textContent = 'Stop';
    const startMs = performance.now();
    let firstMs = 0;
    let usage = null;
    try {
      const response = await call('/v1/chat/completions', {
        method: 'POST',
        signal: running.signal,
        body: JSON.stringify({ messages: conversation, stream: true, stream_options: { include_usage: true },
          temperature: Number($('temperature').value) }),
      });
      if (!response.ok) throw new Error((await response.json()).error.message);
      for await (const event of eventsOf(response)) {
        if (event.error) throw new Error(event.error.message);
        const content = event.choices[0] && event.choices[0].delta.content;
        if (content) {
          firstMs = firstMs || performance.now();
          answer.append(content);
          follow();
        }
        usage = event.usage || usage;
      }
      add('turn note', noteOf(usage, startMs, firstMs));
    } catch (error) {
      if (error.name !== 'AbortError') add('turn error', error.message);
    }
    conversation.push({ role: 'assistant', content: answer.textContent });
    running = null;
    $('send').textContent = 'Send';
    $('text').focus();
  }

  $('form').addEventListener('submit', (event) => {
    event.preventDefault();
    if (running) running.abort();
    else send();
  });
  $('text').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  $('new').addEventListener('click', () => {
    if (running) running.abort();
    messages = [];
    $('turns').replaceChildren();
  });
  call('/v1/models').then((response) => response.json()).then((list) => {
    $('model').textContent = list.data[0].id + ', ' + list.data[0].max_model_len + ' tokens of context';
  }).catch(() => {});
`;

const html = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kvasir</title>
<style>${style}</style>
<header>
  <b>Kvasir</b> <small id="model"></small>
  <label><small>temperature</small> <input id="temperature" type="number" min="0" max="2" step="0.1" value="0.7"></label>
  <button id="new" type="button">New chat</button>
</header>
<main id="turns"></main>
<form id="form">
  <textarea id="text" rows="2" placeholder="Write a message" autofocus></textarea>
  <button id="send">Send</button>
</form>
<script>${script}</script>
</html>
`;

const hashOf = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

export const chatPage: ChatPage = {
  html,
  headers: {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': `default-src 'none'; connect-src 'self'; style-src ${hashOf(style)}; script-src ${hashOf(script)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
    'x-content-type-options': 'nosniff',
  },
};
