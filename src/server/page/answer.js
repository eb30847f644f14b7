import { call, eventsOf, isAbort, messageOf } from './api.js';
import { plural } from './dom.js';
import { withLabels } from './settings.js';

/** @typedef {import('./conversation.js').Message} Message */

/** An answer that is being written. It goes on while the page shows another conversation. */
export class Answer {
  #abort = new AbortController();
  /** The server has accepted the request. */
  isStarted = false;
  /** What happens before the first token. */
  status = '';

  /** @param {Message} message */
  constructor(message) {
    this.message = message;
  }

  stop() {
    this.#abort.abort();
  }

  /**
   * Adds the answer of the server to the message. Afterwards `end` and `error` say whether it is complete.
   * @param {() => object} body
   * @param {() => void} changed
   */
  async run(body, changed) {
    const { message } = this;
    message.end = 'open';
    delete message.error;
    const startMs = performance.now();
    let firstMs = 0;
    try {
      const { signal } = this.#abort;
      for await (const event of eventsOf(await call('v1/chat/completions', { method: 'POST', signal, body: body() }))) {
        this.isStarted = true;
        if (addEvent(message, event)) {
          firstMs ||= performance.now();
          changed();
        }
        const finish = event.choices?.[0]?.finish_reason;
        if (finish === 'length') message.end = 'length';
        else if (finish) delete message.end;
        if (event.usage) message.note = noteOf(event.usage, startMs, firstMs || startMs);
      }
      if (message.end === 'open') throw new Error('The connection ended before the answer was complete.');
    } catch (problem) {
      message.end = 'stopped';
      if (!isAbort(problem)) message.error = withLabels(messageOf(problem));
    }
  }
}

/**
 * Adds an event of the stream to the message. Returns whether it has changed.
 * @param {Message} message
 * @param {any} event
 */
function addEvent(message, event) {
  const delta = event.choices?.[0]?.delta;
  if (!delta) return false;
  if (delta.content) message.content += delta.content;
  if (delta.reasoning_content) message.reasoning = (message.reasoning ?? '') + delta.reasoning_content;
  for (const { index, function: call = {} } of delta.tool_calls ?? []) {
    message.toolCalls ??= [];
    message.toolCalls[index] ??= { name: '', arguments: '' };
    const known = message.toolCalls[index];
    known.name += call.name ?? '';
    known.arguments += call.arguments ?? '';
  }
  return Boolean(delta.content || delta.reasoning_content || delta.tool_calls);
}

/**
 * @param {any} usage
 * @param {number} startMs
 * @param {number} firstMs
 */
function noteOf(usage, startMs, firstMs) {
  const seconds = (performance.now() - firstMs) / 1000;
  const rate = usage.completion_tokens > 1 && seconds > 0 ? (usage.completion_tokens - 1) / seconds : 0;
  const details = usage.prompt_tokens_details ?? {};
  const parts = [
    plural(usage.completion_tokens, 'token'),
    ...(rate > 0 ? [`${rate.toFixed(1)} per second`] : []),
    `first after ${Math.round(firstMs - startMs)} ms`,
    `prompt ${usage.prompt_tokens} (${details.cached_tokens ?? 0} cached)`,
    ...(details.recomputed_tokens ? [`${details.recomputed_tokens} computed again`] : []),
  ];
  return parts.join(' · ');
}
