/**
 * Conversations and settings in the browser's local storage. Nothing of it is sent anywhere but to this server, as messages.
 *
 * @typedef {{ name: string, arguments: string }} ToolCall
 * @typedef {{ role: 'user' | 'assistant', content: string, reasoning?: string, toolCalls?: ToolCall[], note?: string, error?: string }} Message
 * @typedef {{ id: string, title: string, changedMs: number, messages: Message[] }} Conversation
 * @typedef {{ system: string, temperature: string, maxTokens: string, seed: string }} Settings
 */

/** Several pages of one origin do not share conversations. */
const prefix = `kvasir:${location.pathname}:`;

/** @type {Settings} */
export const settingDefaults = { system: '', temperature: '0.7', maxTokens: '', seed: '' };

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
 * @param {unknown} value
 * @returns {boolean} false if the storage is full or forbidden
 */
export function write(name, value) {
  try {
    localStorage.setItem(prefix + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export class Conversations {
  constructor() {
    /** @type {Conversation[]} */
    this.all = read('conversations', []).filter(isConversation);
  }

  /**
   * Puts the conversation first, and saves.
   * @param {Conversation} conversation
   */
  put(conversation) {
    conversation.changedMs = Date.now();
    this.all = [conversation, ...this.all.filter(({ id }) => id !== conversation.id)];
    return this.save();
  }

  /** @param {string} id */
  remove(id) {
    this.all = this.all.filter((conversation) => conversation.id !== id);
    return this.save();
  }

  save() {
    return write('conversations', this.all);
  }
}

/** @returns {Conversation} */
export const newConversation = () => ({
  id: crypto.randomUUID?.() ?? String(Math.random()),
  title: '',
  changedMs: 0,
  messages: [],
});

/** @param {unknown} value */
function isConversation(value) {
  const { id, title, messages } = /** @type {Conversation} */ (value ?? {});
  return typeof id === 'string' && typeof title === 'string' && Array.isArray(messages);
}

/** @param {string} text */
export function titleOf(text) {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length <= 48 ? line : `${line.slice(0, 47)}…`;
}
