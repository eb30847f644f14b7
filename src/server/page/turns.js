import { button, copyButton, el } from './dom.js';
import { MarkdownView } from './markdown.js';
import { isTouch } from './touch.js';

/** @typedef {import('./conversation.js').Message} Message */
/**
 * What a person can do with a message; absent: not now.
 * @typedef {{ edit?: (text: string) => void, regenerate?: () => void, continue?: () => void, branches?: Branches }} TurnActions
 * @typedef {{ at: number, count: number, go: (at: number) => void }} Branches The messages in this place; `go` shows another one.
 */

/** A paint of a growing answer that takes longer makes it a text while it grows: an answer that loops would stop the page. */
const PAINT_MS = 50;
/** The end of an answer is worth one longer paint. */
const LAST_PAINT_MS = 1000;
/** Shorter texts have taken their time for other things, such as the first formula. */
const LENGTH_MIN = 500;
/** Answers that are shown as texts, and the milliseconds of a paint for each character. @type {WeakMap<Message, number>} */
const asText = new WeakMap();

/** One message on the page. */
export class Turn {
  /** @type {MarkdownView | undefined} */
  #markdown;
  #formatted = false;
  #frame = 0;
  /** The text is not shown again before this time. */
  #nextMs = 0;

  /**
   * @param {Message} message
   * @param {TurnActions} actions
   * @param {boolean} isGrowing
   */
  constructor(message, actions, isGrowing) {
    this.message = message;
    this.actions = actions;
    const isUser = message.role === 'user';
    this.body = isUser ? el('div', { class: 'body plain', dir: 'auto' }) : el('div', { class: 'body' });
    this.thoughts = el('div', { class: 'thoughts', dir: 'auto' });
    this.reasoning = el('details', { class: 'reasoning', hidden: true }, el('summary', {}, 'Reasoning'), this.thoughts);
    this.calls = el('div', {});
    this.files = el('div', {});
    this.foot = el('div', { class: 'foot' });
    this.element = el(
      'article',
      { class: `turn ${message.role}`, 'aria-label': isUser ? 'You' : 'Answer' },
      ...(isUser ? [this.files, this.body] : [this.reasoning, this.body, this.calls]),
      this.foot,
    );
    this.#formatted = !isUser;
    const msPerCharacter = asText.get(message) ?? 0;
    if (!isGrowing && msPerCharacter * message.content.length < LAST_PAINT_MS) asText.delete(message);
    this.show();
    this.settle();
  }

  /** The text has grown: shows it at the next frame, or later if that takes long, so that the page has most of the time for people. */
  grown() {
    this.#frame ||= requestAnimationFrame((nowMs) => {
      this.#frame = 0;
      if (nowMs < this.#nextMs) {
        this.grown();
        return;
      }
      const startMs = performance.now();
      this.show();
      // Reading a size makes the browser lay out the answer now.
      void this.body.offsetHeight;
      const endMs = performance.now();
      if (this.#markdown !== undefined && endMs - startMs > PAINT_MS) {
        asText.set(this.message, (endMs - startMs) / Math.max(LENGTH_MIN, this.message.content.length));
        this.show();
      }
      this.#nextMs = endMs + 4 * (endMs - startMs);
    });
  }

  show() {
    const { files = [], toolCalls = [] } = this.message;
    const content = withShortMarks(this.message.content);
    const reasoning = withShortMarks(this.message.reasoning ?? '');
    const isFormatted = this.#formatted && !asText.has(this.message);
    if (isFormatted !== (this.#markdown !== undefined)) this.body.replaceChildren();
    this.#markdown = isFormatted ? (this.#markdown ?? new MarkdownView(this.body)) : undefined;
    this.body.classList.toggle('plain', !isFormatted);
    if (this.#markdown === undefined) this.body.textContent = content;
    else this.#markdown.show(content);
    this.reasoning.hidden = reasoning === '';
    this.thoughts.textContent = reasoning;
    const calls = toolCalls.map(({ name, arguments: text }) => folded({ kind: 'Calls', name, text: pretty(text) }));
    this.calls.replaceChildren(...calls);
    this.files.replaceChildren(...files.map(({ name, text }) => folded({ kind: 'File', name, text })));
  }

  /**
   * While the answer grows there is nothing to do with it.
   * @param {string} status What happens before the first token.
   */
  grow(status) {
    this.element.classList.add('growing');
    this.element.setAttribute('aria-busy', 'true');
    this.foot.replaceChildren(el('span', { class: 'note' }, status));
  }

  /** The message is complete: shows what can be done with it. */
  settle() {
    const { message, actions } = this;
    const { edit, regenerate, branches } = actions;
    const end = message.end === undefined || message.error ? '' : endNotes[message.end];
    const notes = [end, message.note].filter((note) => note);
    this.foot.replaceChildren(
      ...(message.error ? [el('p', { class: 'turn-error' }, message.error)] : []),
      ...(branches === undefined ? [] : [branchChooser(branches)]),
      ...(actions.continue === undefined ? [] : [button('Continue', actions.continue, { class: 'quiet strong' })]),
      copyButton('Copy', () => message.content),
      ...(asText.has(message) ? [button('Show formatted', () => this.#format())] : []),
      ...(edit === undefined ? [] : [button('Edit', () => this.edit(edit))]),
      ...(regenerate === undefined ? [] : [button('Regenerate', regenerate)]),
      ...(notes.length === 0 ? [] : [el('span', { class: 'note' }, notes.join(' · '))]),
    );
  }

  /** A person wants to wait for it. */
  #format() {
    asText.delete(this.message);
    this.show();
    this.settle();
  }

  /**
   * An editor in the place of the text.
   * @param {(text: string) => void} done
   * @param {string} text
   */
  edit(done, text = this.message.content) {
    const input = el('textarea', {
      'aria-label': 'Edit the message',
      dir: 'auto',
      rows: String(Math.min(12, text.split('\n').length + 1)),
    });
    input.value = text;
    const close = () => {
      this.show();
      this.settle();
    };
    const send = () => {
      const isEmpty = input.value.trim() === '' && !this.message.files?.length;
      if (!isEmpty) done(input.value.trim());
    };
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        event.preventDefault();
        close();
      }
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing || isTouch) return;
      event.preventDefault();
      send();
    });
    this.body.replaceChildren(input);
    this.foot.replaceChildren(button('Send', send, { class: 'primary' }), button('Cancel', close));
    input.focus();
  }
}

/**
 * Thousands of accents on one letter stop a browser for a minute. No language has so many: further ones get a placeholder as their letter.
 * @param {string} text
 */
const withShortMarks = (text) => text.replace(/\p{M}{32}(?=\p{M})/gu, '$&\u25cc');

/** Why an answer is not complete. */
export const endNotes = { length: 'Cut at the limit of tokens', stopped: 'Stopped', open: 'Not complete' };

/** @param {Branches} branches */
function branchChooser({ at, count, go }) {
  return el(
    'span',
    { class: 'branches' },
    button('‹', () => go(at - 1), { 'aria-label': 'Previous version', disabled: at === 0 }),
    `${at + 1} / ${count}`,
    button('›', () => go(at + 1), { 'aria-label': 'Next version', disabled: at === count - 1 }),
  );
}

/**
 * A text below its name. Calls are open: they are the answer.
 * @param {{ kind: 'Calls' | 'File', name: string, text: string }} given
 */
function folded({ kind, name, text }) {
  const label = kind === 'Calls' ? `Arguments of ${name}` : `File ${name}`;
  const body = el('pre', { tabindex: '0', role: 'region', 'aria-label': label }, text);
  return el(
    'details',
    { class: 'folded', open: kind === 'Calls' },
    el('summary', {}, `${kind} `, el('code', {}, name)),
    body,
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
