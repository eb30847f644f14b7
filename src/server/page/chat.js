import { Answer } from './answer.js';
import { Composer } from './composer.js';
import { branchesOf, newConversation, openBranch, pathOf, toRequest } from './conversation.js';
import { announce, byId, el } from './dom.js';
import { aboutModel, chooseModel, onModelChoice, requestModel } from './models.js';
import { Problems } from './problems.js';
import { followReading } from './reading.js';
import { keepForNew, openSettings, requestSettings, settingsNow, showSettings, systemMessages } from './settings.js';
import { isTouch } from './touch.js';
import { endNotes, Turn } from './turns.js';

/**
 * @typedef {import('./conversation.js').Message} Message
 * @typedef {import('./conversation.js').Conversation} Conversation
 * @typedef {import('./composer.js').Draft} Draft
 */

const turnsElement = byId('turns', HTMLElement);
const latest = byId('latest', HTMLButtonElement);
const notStored =
  'The browser has no room for this conversation, or keeps nothing of this page. Delete others, or export it.';
/** How often a growing answer is saved. */
const SAVE_MS = 500;

/** The conversation on the page, and the answers that are being written. */
export class Chat {
  /** @type {Conversation} */
  conversation = newConversation();
  /** @type {Turn[]} */
  #turns = [];
  /** By the id of the conversation. @type {Map<string, Answer>} */
  #running = new Map();
  #problems = new Problems(() => this.conversation);
  #savedMs = 0;
  #isAtEnd = true;
  /** Sees each change of a height: text, formulas that are loaded later, the keyboard of a phone. A reader at the end stays there. */
  #heights = new ResizeObserver(() => {
    if (this.#isAtEnd) toEnd();
  });

  /**
   * @param {import('./store.js').Conversations} conversations
   * @param {() => void} changed The list of conversations has changed.
   */
  constructor(conversations, changed) {
    this.conversations = conversations;
    this.changed = changed;
    this.composer = new Composer(() => this.conversation, {
      send: () => (this.#answer === undefined ? this.#sendTyped() : this.stop()),
      say: (text) => this.#problems.tell(this.conversation, { text }),
    });
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !event.defaultPrevented && !hasOwnEscape(event.target)) this.stop();
    });
    onModelChoice((model) => {
      this.conversation.model = model;
      if (this.conversation.messages.length > 0) this.conversations.save(this.conversation);
    });
    openSettings((settings) => {
      const { conversation } = this;
      if (conversation.messages.length === 0) {
        keepForNew(settings);
        return;
      }
      conversation.settings = settings;
      this.conversations.save(conversation);
    });
    addEventListener('pagehide', () => {
      for (const id of this.#running.keys()) this.#save(this.conversations.get(id));
      // Requests end with the page, and their errors say nothing about the conversations.
      this.conversations.isFrozen = true;
    });
    addEventListener('pageshow', () => {
      this.conversations.isFrozen = false;
    });
    turnsElement.addEventListener('scroll', () => {
      this.#isAtEnd = isAtEnd();
      latest.hidden = this.#isAtEnd;
    });
    latest.addEventListener('click', () => {
      toEnd();
      if (!isTouch) byId('text', HTMLElement).focus();
    });
    this.open(this.conversation);
  }

  /** The answer that is being written in this conversation. */
  get #answer() {
    return this.#running.get(this.conversation.id);
  }

  /** @param {string} id */
  isRunning(id) {
    return this.#running.has(id);
  }

  /** Stops the answer in the conversation that is open, or in another one. */
  stop(id = this.conversation.id) {
    this.#running.get(id)?.stop();
  }

  /** @param {Conversation} conversation */
  open(conversation) {
    this.conversation = conversation;
    chooseModel(conversation.model);
    showSettings(conversation.settings);
    this.#isAtEnd = true;
    this.#render();
    this.composer.open();
  }

  /** Another tab has changed this conversation. An open editor stays. */
  refresh() {
    if (turnsElement.querySelector('textarea') === null) this.#render();
  }

  #sendTyped() {
    if (this.composer.isEmpty) return;
    const { conversation } = this;
    const draft = this.composer.take();
    const putBack = () => this.composer.putBack(conversation, draft);
    void this.#ask({ parent: conversation.leaf, question: draft, putBack, again: () => this.#sendTyped() });
  }

  /**
   * Another text for a message: it is a branch beside the first one.
   * @param {Message} message
   * @param {string} content
   */
  #edit(message, content) {
    const again = () => this.#edit(message, content);
    const putBack = () => this.#turnOf(message)?.edit((text) => this.#edit(message, text), content);
    void this.#ask({ parent: message.parent, question: { content, files: message.files ?? [] }, putBack, again });
  }

  /** @param {Message} answer */
  #regenerate(answer) {
    void this.#ask({ parent: answer.parent, again: () => this.#regenerate(answer) });
  }

  /**
   * Adds the question and its answer. If the server refuses the request, the conversation is as before.
   * @param {{ parent: string, question?: Draft, putBack?: () => void, again: () => void }} request `putBack`: gives a person the typed text
   * back.
   */
  async #ask({ parent, question, putBack, again }) {
    const { conversation, conversations } = this;
    const { leaf } = conversation;
    this.#problems.hide();
    /** @type {Message[]} */
    const added = [];
    if (question !== undefined) {
      const { content, files } = question;
      const more = files.length > 0 ? { files } : {};
      added.push(conversations.add(conversation, { role: 'user', parent, content, ...more }));
    }
    const answer = conversations.add(conversation, {
      role: 'assistant',
      parent: added[0]?.id ?? parent,
      content: '',
      end: 'open',
    });
    added.push(answer);
    const isAccepted = await this.#write(conversation, answer);
    if (isAccepted) return;
    conversations.drop(conversation, added, leaf);
    this.#show(conversation);
    putBack?.();
    if (answer.error) this.#problems.tell(conversation, { text: answer.error, retry: again });
  }

  /**
   * The model goes on where the answer ends.
   * @param {Message} answer
   */
  #continue(answer) {
    this.#problems.hide();
    this.conversations.own(answer);
    void this.#write(this.conversation, answer);
  }

  /**
   * Shows the answer while it grows, and saves it.
   * @param {Conversation} conversation Its leaf is the answer.
   * @param {Message} answer
   * @returns {Promise<boolean>} Whether the server has accepted the request.
   */
  async #write(conversation, answer) {
    const path = pathOf(conversation);
    const { model } = requestModel();
    if (model !== undefined) conversation.model = model;
    conversation.settings = settingsNow();
    const isContinued = answer.content !== '';
    const body = () => ({
      messages: [...systemMessages(), ...(isContinued ? path : path.slice(0, -1)).map(toRequest)],
      stream: true,
      stream_options: { include_usage: true },
      ...requestModel(),
      ...requestSettings(),
      ...(isContinued ? { continue_final_message: true, add_generation_prompt: false } : {}),
    });
    const running = new Answer(answer);
    this.#running.set(conversation.id, running);
    this.#save(conversation);
    this.#show(conversation);
    announce('The answer begins.');
    const reading = new AbortController();
    void followReading(reading.signal, (text) => {
      if (reading.signal.aborted) return;
      running.status = text;
      this.#turnOf(answer)?.grow(text);
    });
    await running.run(body, () => {
      if (!reading.signal.aborted) {
        reading.abort();
        running.status = '';
        this.#turnOf(answer)?.grow('');
      }
      this.#turnOf(answer)?.grown();
      if (performance.now() - this.#savedMs > SAVE_MS) this.#save(conversation);
    });
    reading.abort();
    this.#running.delete(conversation.id);
    this.#save(conversation);
    this.#show(conversation);
    const end = answer.end === undefined ? 'The answer is complete.' : `${endNotes[answer.end]}.`;
    announce(answer.error ? `The answer broke off. ${answer.error}` : end);
    return running.isStarted;
  }

  /** @param {Conversation | undefined} conversation */
  #save(conversation) {
    this.#savedMs = performance.now();
    if (conversation === undefined || this.conversations.touch(conversation)) return;
    if (!this.#problems.has(conversation)) this.#problems.tell(conversation, { text: notStored });
  }

  /**
   * Shows what has changed in a conversation: in the list, and in the messages if it is open.
   * @param {Conversation} conversation
   */
  #show(conversation) {
    if (conversation === this.conversation) this.#render();
    this.changed();
  }

  #render() {
    const { scrollTop } = turnsElement;
    const answer = this.#answer;
    const path = pathOf(this.conversation);
    this.#turns = path.map(
      (message) => new Turn(message, answer === undefined ? this.#actionsOf(message) : {}, message === answer?.message),
    );
    if (path.length === 0) turnsElement.replaceChildren(welcome());
    else turnsElement.replaceChildren(...this.#turns.map(({ element }) => element));
    if (answer !== undefined) this.#turnOf(answer.message)?.grow(answer.status);
    if (this.#isAtEnd) toEnd();
    else turnsElement.scrollTop = scrollTop;
    this.#heights.disconnect();
    for (const element of [turnsElement, ...turnsElement.children]) this.#heights.observe(element);
    this.composer.show(answer !== undefined);
    this.#problems.render();
  }

  /** @param {Message} message */
  #turnOf(message) {
    return this.#turns.find((turn) => turn.message === message);
  }

  /**
   * @param {Message} message
   * @returns {import('./turns.js').TurnActions}
   */
  #actionsOf(message) {
    const { conversation } = this;
    const all = branchesOf(conversation, message);
    const at = all.indexOf(message);
    /** @param {number} to */
    const go = (to) => {
      openBranch(conversation, /** @type {Message} */ (all[to]));
      this.conversations.save(conversation);
      this.#render();
    };
    const branches = all.length > 1 ? { branches: { at, count: all.length, go } } : {};
    if (message.role === 'user') return { ...branches, edit: (text) => this.#edit(message, text) };
    const isLast = message.id === conversation.leaf;
    const isCut = isLast && message.end !== undefined && message.content !== '';
    return {
      ...branches,
      regenerate: () => this.#regenerate(message),
      ...(isCut ? { continue: () => this.#continue(message) } : {}),
    };
  }
}

/**
 * Whether Escape has another meaning there: it closes a list, a dialog or an editor, or empties the search.
 * @param {EventTarget | null} target
 */
const hasOwnEscape = (target) =>
  target instanceof Element && target.closest('dialog, select, #sidebar, #cache-view') !== null;

const isAtEnd = () => turnsElement.scrollHeight - turnsElement.scrollTop - turnsElement.clientHeight < 80;

function toEnd() {
  turnsElement.scrollTop = turnsElement.scrollHeight;
}

function welcome() {
  const hint = isTouch ? 'Send sends a message.' : 'Enter sends a message, Shift and Enter begin a new line.';
  return el(
    'div',
    { class: 'welcome' },
    el('h2', {}, 'What shall we talk about?'),
    aboutModel,
    el('p', { class: 'hint' }, hint),
  );
}
