import { button, copyButton, el, plural } from './dom.js';
import { MarkdownView } from './markdown.js';

/** @typedef {import('./store.js').Message} Message */
/**
 * What a person can do with a message; absent: not now.
 * @typedef {{ edit?: ((text: string) => void) | undefined, regenerate?: (() => void) | undefined }} TurnActions
 */

/** One message on the page. */
export class Turn {
  /** @type {MarkdownView | undefined} */
  #markdown;
  #frame = 0;

  /**
   * @param {Message} message
   * @param {TurnActions} actions
   */
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    const isUser = message.role === 'user';
    this.body = el('div', { class: isUser ? 'body plain' : 'body' });
    this.thoughts = el('div', { class: 'thoughts' });
    this.reasoning = el('details', { class: 'reasoning', hidden: true }, el('summary', {}, 'Reasoning'), this.thoughts);
    this.calls = el('div', {});
    this.foot = el('div', { class: 'foot' });
    this.element = el(
      'article',
      { class: `turn ${message.role}`, 'aria-label': isUser ? 'You' : 'Answer' },
      ...(isUser ? [this.body] : [this.reasoning, this.body, this.calls]),
      this.foot,
    );
    if (!isUser) this.#markdown = new MarkdownView(this.body);
    this.show();
    this.settle();
  }

  /** The text has grown: shows it at the next frame. */
  grown() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.show();
    });
  }

  show() {
    const { content, reasoning = '', toolCalls = [] } = this.message;
    if (this.#markdown === undefined) this.body.textContent = content;
    else this.#markdown.show(content);
    this.reasoning.hidden = reasoning === '';
    this.thoughts.textContent = reasoning;
    this.calls.replaceChildren(...toolCalls.map(toolCallView));
  }

  /** While the answer grows there is nothing to do with it. */
  grow() {
    this.element.classList.add('growing');
    this.element.setAttribute('aria-busy', 'true');
    this.foot.replaceChildren();
  }

  /** The message is complete: shows what can be done with it. */
  settle() {
    this.element.classList.remove('growing');
    this.element.removeAttribute('aria-busy');
    const { message, actions } = this;
    const children = [copyButton('Copy', () => message.content)];
    const { edit, regenerate } = actions;
    if (edit !== undefined) children.push(button('Edit', () => this.edit(edit)));
    if (regenerate !== undefined) children.push(button('Regenerate', regenerate));
    if (message.error) this.foot.replaceChildren(el('p', { class: 'turn-error' }, message.error), ...children);
    else this.foot.replaceChildren(...children);
    if (message.note) this.foot.append(el('span', { class: 'note' }, message.note));
  }

  /**
   * An editor in the place of the text.
   * @param {(text: string) => void} done
   * @param {string} text
   */
  edit(done, text = this.message.content) {
    const input = el('textarea', {
      'aria-label': 'Edit the message',
      rows: String(Math.min(12, text.split('\n').length + 1)),
    });
    input.value = text;
    const close = () => {
      this.show();
      this.settle();
    };
    const send = () => {
      if (input.value.trim() !== '') done(input.value.trim());
    };
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') close();
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    this.body.replaceChildren(input);
    this.foot.replaceChildren(button('Send', send, { class: 'primary' }), button('Cancel', close));
    input.focus();
  }
}

/** @param {import('./store.js').ToolCall} call */
function toolCallView({ name, arguments: text }) {
  return el(
    'details',
    { class: 'tool-call', open: true },
    el('summary', {}, 'Calls ', el('code', {}, name)),
    el('pre', { tabindex: '0', role: 'region', 'aria-label': `Arguments of ${name}` }, pretty(text)),
  );
}

/** @param {string} text */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text;
  }
}

/**
 * Adds an event of the stream to the message. Returns whether it has changed.
 * @param {Message} message
 * @param {any} event
 */
export function addEvent(message, event) {
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
export function noteOf(usage, startMs, firstMs) {
  if (!usage) return '';
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
