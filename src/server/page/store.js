import { addMessage, merge, parseConversation, pathOf, titleOf } from './conversation.js';

/**
 * Conversations and settings in the browser's local storage. Nothing of it is sent anywhere but to this server, as messages.
 *
 * @typedef {import('./conversation.js').Conversation} Conversation
 * @typedef {import('./conversation.js').Message} Message
 */

/** Several pages of one origin do not share conversations. */
const prefix = `kvasir:${location.pathname}:`;
const conversationPrefix = `${prefix}conversation:`;

/**
 * @template T
 * @param {string} name
 * @param {T} otherwise
 * @returns {T}
 */
export function read(name, otherwise) {
  try {
    const text = localStorage.getItem(prefix + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

/**
 * @param {string} name
 * @param {unknown} value undefined: removes it
 * @returns {boolean} false if the storage is full or forbidden
 */
export function write(name, value) {
  try {
    if (value === undefined) localStorage.removeItem(prefix + name);
    else localStorage.setItem(prefix + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** What a reload of this tab keeps, and no other tab has. */
export const session = {
  /**
   * @param {string} name
   * @returns {string} '' if there is none, or the browser forbids it
   */
  read(name) {
    try {
      return sessionStorage.getItem(name) ?? '';
    } catch {
      return '';
    }
  },
  /**
   * @param {string} name
   * @param {string} text
   */
  write(name, text) {
    try {
      sessionStorage.setItem(name, text);
    } catch {
      // The browser forbids it, or its storage is full.
    }
  },
};

/** The conversation that a reload shows: that of its tab. A new tab shows the one that was open last. */
export const current = {
  /** @returns {string} */
  get id() {
    return session.read(`${prefix}current`) || read('current', '');
  },
  set id(id) {
    session.write(`${prefix}current`, id);
    write('current', id);
  },
};

/** All conversations of this browser. Each has an entry of its own in the storage, which all tabs read and write. */
export class Conversations {
  /** @type {Map<string, Conversation>} */
  #all = new Map();
  /** Messages of this tab: other tabs may have older versions. Removed messages stay here, so that they do not come back. */
  #own = new Set();
  /** Deleted conversations: an answer to one that still runs does not bring it back. */
  #deleted = new Set();
  /** Nothing is written any more. */
  isFrozen = false;

  /**
   * @param {(id: string) => void} changed Another tab has changed or deleted the conversation.
   */
  constructor(changed) {
    this.#splitOldEntry();
    for (const name of storedNames()) this.#put(parseConversation(read(name, undefined)));
    addEventListener('storage', ({ key, newValue }) => {
      if (!key?.startsWith(conversationPrefix)) return;
      const id = key.slice(conversationPrefix.length);
      if (newValue === null) this.#forget(id);
      else this.#take(parseConversation(read(`conversation:${id}`, undefined)));
      changed(id);
    });
  }

  /** The last changed one first. */
  get all() {
    return [...this.#all.values()].sort((a, b) => b.changedMs - a.changedMs);
  }

  /** @param {string} id */
  get(id) {
    return this.#all.get(id);
  }

  /**
   * @param {Conversation} conversation
   * @param {Omit<Message, 'id'>} given
   */
  add(conversation, given) {
    const message = addMessage(conversation, given);
    this.own(message);
    return message;
  }

  /**
   * This tab writes the message from now on.
   * @param {Message} message
   */
  own({ id }) {
    this.#own.add(id);
  }

  /**
   * Removes messages that the server has refused.
   * @param {Conversation} conversation
   * @param {Message[]} messages
   * @param {string} leaf
   */
  drop(conversation, messages, leaf) {
    if (this.isFrozen) return;
    conversation.messages = conversation.messages.filter((message) => !messages.includes(message));
    conversation.leaf = leaf;
    this.save(conversation);
  }

  /**
   * Saves it as the last changed one, together with what other tabs have added to it.
   * @param {Conversation} conversation
   * @returns {boolean} false if the storage is full or forbidden
   */
  touch(conversation) {
    conversation.changedMs = Date.now();
    return this.save(conversation);
  }

  /** @param {Conversation} conversation */
  save(conversation) {
    if (this.isFrozen || this.#deleted.has(conversation.id)) return true;
    const stored = parseConversation(read(`conversation:${conversation.id}`, undefined));
    if (stored !== undefined) merge(conversation, stored, (id) => this.#own.has(id));
    const isEmpty = conversation.messages.length === 0;
    if (isEmpty) this.#all.delete(conversation.id);
    else this.#put(conversation);
    return write(`conversation:${conversation.id}`, isEmpty ? undefined : conversation);
  }

  /** @param {string} id */
  remove(id) {
    this.#forget(id);
    write(`conversation:${id}`, undefined);
    write(`draft:${id}`, undefined);
  }

  /** @param {string} id */
  #forget(id) {
    this.#all.delete(id);
    this.#deleted.add(id);
  }

  /** All of them, as the text of a file. */
  exported() {
    return JSON.stringify({ format: 'kvasir-conversations', version: 1, conversations: this.all }, undefined, 2);
  }

  /**
   * Adds the conversations of a file. Those that are known get the messages that they do not have.
   * @param {string} text
   * @returns {number} how many conversations the file has
   */
  import(text) {
    const value = JSON.parse(text);
    const list = Array.isArray(value) ? value : value?.conversations;
    const read = (Array.isArray(list) ? list : []).map(parseConversation).filter((given) => given !== undefined);
    if (read.length === 0) throw new Error('The file has no conversations that this page can read.');
    for (const given of read) {
      this.#deleted.delete(given.id);
      const known = this.#all.get(given.id);
      if (known !== undefined) merge(known, given, (id) => known.messages.some((message) => message.id === id));
      if (!this.save(known ?? given)) throw new Error('The browser has no room for these conversations.');
    }
    return read.length;
  }

  /** @param {Conversation | undefined} conversation */
  #put(conversation) {
    if (conversation === undefined) return;
    this.#deleted.delete(conversation.id);
    this.#all.set(conversation.id, conversation);
  }

  /** @param {Conversation | undefined} stored */
  #take(stored) {
    const known = stored && this.#all.get(stored.id);
    if (stored === undefined || known === undefined) {
      this.#put(stored);
      return;
    }
    merge(known, stored, (id) => this.#own.has(id));
    const { title, changedMs, settings } = stored;
    Object.assign(known, { title, changedMs, ...(settings && { settings }) });
    // The other tab went on where this one is.
    if (pathOf({ ...known, leaf: stored.leaf }).some(({ id }) => id === known.leaf)) known.leaf = stored.leaf;
  }

  /** Earlier versions of the page kept all conversations in one entry. */
  #splitOldEntry() {
    const old = read('conversations', /** @type {unknown} */ (undefined));
    if (!Array.isArray(old)) return;
    const all = old.map(parseConversation);
    if (all.every((given) => given === undefined || write(`conversation:${given.id}`, given)))
      write('conversations', undefined);
  }
}

function storedNames() {
  try {
    return Object.keys(localStorage)
      .filter((key) => key.startsWith(conversationPrefix))
      .map((key) => key.slice(prefix.length));
  } catch {
    return [];
  }
}

/**
 * Whether the conversation has the text, in capitals or not.
 * @param {Conversation} conversation
 * @param {string} text
 */
export function hasText(conversation, text) {
  const wanted = text.trim().toLowerCase();
  if (wanted === '') return true;
  const texts = [titleOf(conversation), ...conversation.messages.map(({ content }) => content)];
  return texts.some((one) => one.toLowerCase().includes(wanted));
}
