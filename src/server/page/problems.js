import { draftKey } from './composer.js';
import { button, byId, el } from './dom.js';

/**
 * @typedef {import('./conversation.js').Conversation} Conversation
 * @typedef {{ text: string, retry?: () => void }} Problem
 */

const element = byId('error', HTMLElement);

/** What went wrong with a message of each conversation, above its draft. */
export class Problems {
  /** By the key of the draft. @type {Map<string, Problem>} */
  #all = new Map();
  /** @type {() => Conversation} */
  #current;

  /** @param {() => Conversation} current */
  constructor(current) {
    this.#current = current;
  }

  /** @param {Conversation} conversation */
  has(conversation) {
    return this.#all.has(draftKey(conversation));
  }

  /**
   * @param {Conversation} conversation
   * @param {Problem} problem
   */
  tell(conversation, problem) {
    this.#all.set(draftKey(conversation), problem);
    this.render();
  }

  /** Removes the problem of the conversation that is open. */
  hide() {
    this.#all.delete(draftKey(this.#current()));
    this.render();
  }

  /** Shows the problem of the conversation that is open. */
  render() {
    const { text = '', retry } = this.#all.get(draftKey(this.#current())) ?? {};
    element.hidden = text === '';
    const again = () => {
      this.hide();
      retry?.();
    };
    const buttons = [
      ...(retry === undefined ? [] : [button('Try again', again)]),
      button('Dismiss', () => this.hide()),
    ];
    element.replaceChildren(...(text === '' ? [] : [el('span', {}, text), ...buttons]));
  }
}
