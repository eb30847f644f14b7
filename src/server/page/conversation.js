/**
 * A conversation is a tree of messages: an edited message and another answer are branches beside the first ones. The page shows the path
 * to `leaf`.
 *
 * @typedef {{ name: string, arguments: string }} ToolCall
 * @typedef {{ name: string, text: string }} TextFile
 * @typedef {'open' | 'stopped' | 'length'} End Why an answer is not complete: it is being written (or the page was closed meanwhile), a
 * person stopped it, or it reached the limit of tokens.
 * @typedef {{ id: string, parent: string, role: 'user' | 'assistant', content: string, files?: TextFile[], reasoning?: string, toolCalls?: ToolCall[], note?: string, error?: string, end?: End }} Message
 * @typedef {{ id: string, title: string, changedMs: number, leaf: string, messages: Message[], model?: string, settings?: Record<string, string> }} Conversation `title`: what a person
 * has named it, or ''. `model`: the one that answers, if the server has several. `settings`: of `settings.js`. Every message comes after its parent; the parent of the first one is ''.
 */

/** `randomUUID` is absent in pages that came over HTTP from another machine. */
const newId = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;

/** @returns {Conversation} */
export const newConversation = () => ({ id: newId(), title: '', changedMs: 0, leaf: '', messages: [] });

/**
 * Adds a message below `parent`, and shows it.
 * @param {Conversation} conversation
 * @param {Omit<Message, 'id'>} given
 * @returns {Message}
 */
export function addMessage(conversation, given) {
  const message = { ...given, id: newId() };
  conversation.messages.push(message);
  conversation.leaf = message.id;
  return message;
}

/**
 * The messages from the first one to the leaf.
 * @param {Conversation} conversation
 * @returns {Message[]}
 */
export function pathOf({ messages, leaf }) {
  const byId = new Map(messages.map((message) => [message.id, message]));
  /** @type {Message[]} */
  const path = [];
  for (let at = byId.get(leaf); at !== undefined; at = byId.get(at.parent)) path.push(at);
  return path.reverse();
}

/**
 * The message and those in its place in other branches, oldest first.
 * @param {Conversation} conversation
 * @param {Message} message
 */
export const branchesOf = ({ messages }, { parent }) => messages.filter((other) => other.parent === parent);

/**
 * Shows the newest messages below `message`.
 * @param {Conversation} conversation
 * @param {Message} message
 */
export function openBranch(conversation, message) {
  /** @type {Message | undefined} */
  let next = message;
  for (; next !== undefined; next = conversation.messages.findLast(({ parent }) => parent === conversation.leaf))
    conversation.leaf = next.id;
}

/** @param {Conversation} conversation */
export function titleOf(conversation) {
  if (conversation.title !== '') return conversation.title;
  const [first] = pathOf(conversation);
  const line = (first?.content || first?.files?.[0]?.name || '').trim().replace(/\s+/g, ' ');
  // Without a half of an emoji at its end.
  return line.length <= 48 ? line : `${line.slice(0, 47).replace(/[\uD800-\uDBFF]$/, '')}…`;
}

/**
 * Takes over what another tab has stored of the conversation. A message has one writer: the tab that asked for it.
 * @param {Conversation} known
 * @param {Conversation} stored
 * @param {(id: string) => boolean} keepsOwn Whether this tab has a newer version of the message, or has removed it.
 */
export function merge(known, stored, keepsOwn) {
  const byId = new Map(known.messages.map((message) => [message.id, message]));
  for (const message of stored.messages) {
    if (keepsOwn(message.id)) continue;
    const mine = byId.get(message.id);
    if (mine === undefined) known.messages.push(message);
    else {
      for (const name of /** @type {(keyof Message)[]} */ (Object.keys(mine))) delete mine[name];
      Object.assign(mine, message);
    }
  }
}

/**
 * A conversation of the storage or of a file. Older ones are lists of messages without branches.
 * @param {unknown} value
 * @returns {Conversation | undefined} undefined: it is not a conversation
 */
export function parseConversation(value) {
  const { id, title, changedMs, leaf, messages, model, settings } = /** @type {Partial<Conversation>} */ (value ?? {});
  if (typeof id !== 'string' || id === '' || !Array.isArray(messages)) return undefined;
  /** @type {Conversation} */
  const read = { id, title: '', changedMs: Number(changedMs) || 0, leaf: '', messages: [] };
  const ids = new Set(['']);
  let before = '';
  for (const given of messages) {
    const message = parseMessage(given, before);
    if (message === undefined || ids.has(message.id) || !ids.has(message.parent)) continue;
    read.messages.push(message);
    ids.add(message.id);
    before = message.id;
  }
  if (read.messages.length === 0) return undefined;
  read.leaf = typeof leaf === 'string' && leaf !== '' && ids.has(leaf) ? leaf : before;
  if (typeof title === 'string' && title !== titleOf(read)) read.title = title;
  if (typeof model === 'string') read.model = model;
  if (typeof settings === 'object' && settings !== null)
    read.settings = Object.fromEntries(Object.entries(settings).filter(([, text]) => typeof text === 'string'));
  return read;
}

/**
 * @param {any} value
 * @param {string} before The id of the message before it.
 * @returns {Message | undefined}
 */
function parseMessage(value, before) {
  const { id = newId(), parent = before, role, content, files, toolCalls, end } = value ?? {};
  const isMessage = (role === 'user' || role === 'assistant') && areTexts(id, parent, content);
  if (!isMessage) return undefined;
  /** @type {Message} */
  const message = { id, parent, role, content };
  for (const name of /** @type {const} */ (['reasoning', 'note', 'error']))
    if (typeof value[name] === 'string') message[name] = value[name];
  if (end === 'open' || end === 'stopped' || end === 'length') message.end = end;
  if (Array.isArray(files)) message.files = files.filter((file) => areTexts(file?.name, file?.text));
  if (Array.isArray(toolCalls)) message.toolCalls = toolCalls.filter((call) => areTexts(call?.name, call?.arguments));
  return message;
}

/** @param {unknown[]} values */
const areTexts = (...values) => values.every((value) => typeof value === 'string');

/**
 * A message as the model reads it.
 * @param {Message} message
 */
export function toRequest({ role, content, files = [], toolCalls = [] }) {
  // The page runs no tools, so the next request repeats the calls as text.
  const calls = toolCalls.map(({ name, arguments: given }) => `${name}(${given})`).join('\n');
  return { role, content: [...files.map(quote), content, calls].filter((part) => part !== '').join('\n\n') };
}

/** @param {TextFile} file */
function quote({ name, text }) {
  let longest = 2;
  for (const [run] of text.matchAll(/`+/g)) longest = Math.max(longest, run.length);
  const fence = '`'.repeat(longest + 1);
  return `File ${name}:\n${fence}\n${text}${text.endsWith('\n') ? '' : '\n'}${fence}`;
}
