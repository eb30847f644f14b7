import { call, eventsOf, isAbort, messageOf } from './api.js';
import { announce, button, byId, el } from './dom.js';
import { requestSettings, systemMessages } from './settings.js';
import { newConversation, titleOf } from './store.js';
import { addEvent, noteOf, Turn } from './turns.js';

/** @typedef {import('./store.js').Message} Message */
/** @typedef {import('./store.js').Conversation} Conversation */

const turnsElement = byId('turns', HTMLElement);
const text = byId('text', HTMLTextAreaElement);
const send = byId('send', HTMLButtonElement);
const error = byId('error', HTMLElement);

/** The conversation on the page, and the answer that is being written. */
export class Chat {
  /** @type {Conversation} */
  conversation = newConversation();
  /** @type {Turn[]} */
  #turns = [];
  /** @type {AbortController | undefined} */
  #running;

  /** @param {(conversation: Conversation) => void} save Called when the conversation has changed. */
  constructor(save) {
    this.save = save;
    byId('composer', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.#running !== undefined) this.stop();
      else this.#sendTyped();
    });
    text.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (this.#running === undefined) this.#sendTyped();
    });
    text.addEventListener('input', fitHeight);
    this.#render();
  }

  get isRunning() {
    return this.#running !== undefined;
  }

  stop() {
    this.#running?.abort();
  }

  /** @param {Conversation} conversation */
  open(conversation) {
    this.stop();
    this.conversation = conversation;
    hideError();
    this.#render();
    text.focus();
  }

  #sendTyped() {
    const typed = text.value.trim();
    if (typed === '') return;
    text.value = '';
    fitHeight();
    const { messages } = this.conversation;
    void this.#ask(messages.length, { role: 'user', content: typed }, () => {
      // The text that was typed meanwhile stays too.
      text.value = text.value === '' ? typed : `${typed}\n${text.value}`;
      fitHeight();
      text.focus();
    });
  }

  /**
   * Another text for a message: the messages after it go, unless the server refuses the new one.
   * @param {number} at
   * @param {string} content
   */
  #edit(at, content) {
    void this.#ask(at, { role: 'user', content }, () => {
      const turn = this.#turns[at];
      turn?.edit((again) => this.#edit(at, again), content);
    });
  }

  /** @param {number} at The index of the answer. */
  #regenerate(at) {
    const question = this.conversation.messages[at - 1];
    if (question !== undefined) void this.#ask(at - 1, question, () => undefined);
  }

  /**
   * Replaces the messages from `at` on by the question and its answer. If the server refuses it, the messages are as before.
   * @param {number} at
   * @param {Message} question
   * @param {() => void} refused Puts the typed text back.
   */
  async #ask(at, question, refused) {
    const { conversation } = this;
    const before = conversation.messages;
    /** @type {Message} */
    const answer = { role: 'assistant', content: '' };
    conversation.messages = [...before.slice(0, at), question, answer];
    const running = new AbortController();
    this.#running = running;
    hideError();
    this.#render();
    const turn = /** @type {Turn} */ (this.#turns.at(-1));
    turn.grow();
    announce('The answer begins.');
    let isStarted = false;
    const startMs = performance.now();
    try {
      const response = await call('v1/chat/completions', {
        method: 'POST',
        signal: running.signal,
        body: {
          messages: [...systemMessages(), ...conversation.messages.slice(0, -1).map(asRequest)],
          stream: true,
          stream_options: { include_usage: true },
          ...requestSettings(),
        },
      });
      let firstMs = 0;
      for await (const event of eventsOf(response)) {
        // Only now the message is part of the conversation.
        if (!isStarted && conversation.title === '') conversation.title = titleOf(question.content);
        isStarted = true;
        if (addEvent(answer, event)) {
          firstMs ||= performance.now();
          this.#follow(() => turn.grown());
        }
        if (event.usage) answer.note = noteOf(event.usage, startMs, firstMs || startMs);
      }
      announce('The answer is complete.');
    } catch (problem) {
      if (isAbort(problem)) {
        isStarted ||= answer.content !== '';
        answer.note = 'Stopped';
        announce('Stopped.');
      } else if (isStarted) {
        answer.error = messageOf(problem);
        announce(`The answer broke off. ${answer.error}`);
      } else showError(messageOf(problem), () => this.#retry(at, question, refused));
    } finally {
      if (this.#running === running) this.#running = undefined;
      if (isStarted) this.save(conversation);
      else conversation.messages = before;
      if (this.conversation === conversation) {
        this.#render();
        if (!isStarted) refused();
      }
    }
  }

  /**
   * @param {number} at
   * @param {Message} question
   * @param {() => void} refused
   */
  #retry(at, question, refused) {
    const isTyped = at === this.conversation.messages.length;
    // The text may have been changed since.
    if (isTyped && text.value.trim() !== '') this.#sendTyped();
    else void this.#ask(at, question, refused);
  }

  #render() {
    const { messages } = this.conversation;
    const isIdle = this.#running === undefined;
    this.#turns = messages.map((message, at) => new Turn(message, this.#actionsOf(message, at, isIdle)));
    if (messages.length === 0) turnsElement.replaceChildren(welcome());
    else turnsElement.replaceChildren(...this.#turns.map(({ element }) => element));
    turnsElement.scrollTop = turnsElement.scrollHeight;
    send.textContent = isIdle ? 'Send' : 'Stop';
    send.classList.toggle('stop', !isIdle);
  }

  /**
   * @param {Message} message
   * @param {number} at
   * @param {boolean} isIdle
   */
  #actionsOf({ role }, at, isIdle) {
    if (!isIdle) return {};
    return role === 'user'
      ? { edit: (/** @type {string} */ content) => this.#edit(at, content) }
      : { regenerate: () => this.#regenerate(at) };
  }

  /**
   * Scrolls with the text, unless the reader has scrolled up.
   * @param {() => void} change
   */
  #follow(change) {
    const isAtEnd = turnsElement.scrollHeight - turnsElement.scrollTop - turnsElement.clientHeight < 80;
    change();
    if (isAtEnd) requestAnimationFrame(() => turnsElement.scrollTo({ top: turnsElement.scrollHeight }));
  }
}

/** @param {Message} message */
function asRequest({ role, content, toolCalls }) {
  if (!toolCalls?.length) return { role, content };
  // The page runs no tools, so the next request repeats the calls as text.
  const calls = toolCalls.map(({ name, arguments: given }) => `${name}(${given})`).join('\n');
  return { role, content: [content, calls].filter((part) => part !== '').join('\n') };
}

function welcome() {
  return el(
    'div',
    { class: 'welcome' },
    el('h2', {}, 'What shall we talk about?'),
    el('p', { class: 'hint' }, 'Enter sends a message, Shift and Enter begin a new line.'),
  );
}

/** The field is as high as its text, up to a limit. */
function fitHeight() {
  text.style.height = 'auto';
  text.style.height = `${Math.min(text.scrollHeight + 2, 220)}px`;
}

/**
 * @param {string} message
 * @param {() => void} retry
 */
function showError(message, retry) {
  error.replaceChildren(
    el('span', {}, message),
    button('Try again', () => {
      hideError();
      retry();
    }),
    button('Dismiss', hideError),
  );
  error.hidden = false;
}

function hideError() {
  error.hidden = true;
  error.replaceChildren();
}
