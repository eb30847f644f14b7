import { announce, button, byId, el } from './dom.js';
import { read, write } from './store.js';
import { isTouch } from './touch.js';

/**
 * @typedef {import('./conversation.js').Conversation} Conversation
 * @typedef {import('./conversation.js').TextFile} TextFile
 * @typedef {{ content: string, files: TextFile[] }} Draft
 */

const FILE_BYTES_MAX = 1 << 20;
/** A longer text becomes a file: a field of a browser with many lines takes seconds for each letter. */
const PASTED_CHARS_MAX = 100_000;
const field = byId('text', HTMLTextAreaElement);
const send = byId('send', HTMLButtonElement);
const picker = byId('attach-files', HTMLInputElement);
const list = byId('files', HTMLElement);

/** All conversations without messages share one draft, because a reload begins another one. @param {Conversation} conversation */
export const draftKey = ({ id, messages }) => (messages.length === 0 ? 'new' : id);

/** The field for the next message, and its files. What is not sent yet stays over a reload and a look at other conversations. */
export class Composer {
  /** @type {TextFile[]} */
  #files = [];
  /** Drafts for which the browser has no room, by their keys. @type {Map<string, Draft>} */
  #unstored = new Map();
  /** @type {() => Conversation} */
  #current;

  /**
   * @param {() => Conversation} current
   * @param {{ send: () => void, say: (problem: string) => void }} actions
   */
  constructor(current, actions) {
    this.#current = current;
    this.say = actions.say;
    byId('composer', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      actions.send();
    });
    field.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing || isTouch) return;
      event.preventDefault();
      if (!this.#isRunning) actions.send();
    });
    field.addEventListener('input', () => this.#changed());
    byId('attach', HTMLButtonElement).addEventListener('click', () => picker.click());
    picker.addEventListener('change', () => {
      void this.#attach([...(picker.files ?? [])]);
      picker.value = '';
    });
    field.addEventListener('beforeinput', (event) => {
      const text = event.data ?? event.dataTransfer?.getData('text/plain') ?? '';
      if (text.length <= PASTED_CHARS_MAX) return;
      event.preventDefault();
      void this.#attach([new File([text], 'pasted.txt', { type: 'text/plain' })]);
    });
    field.addEventListener('paste', (event) => this.#takeFiles(event, event.clipboardData));
    const chat = byId('chat-view', HTMLElement);
    chat.addEventListener('dragover', (event) => event.preventDefault());
    chat.addEventListener('drop', (event) => this.#takeFiles(event, event.dataTransfer));
  }

  #isRunning = false;

  /** @param {boolean} isRunning The button stops the answer. */
  show(isRunning) {
    this.#isRunning = isRunning;
    send.textContent = isRunning ? 'Stop' : 'Send';
    send.classList.toggle('stop', isRunning);
  }

  /** Shows the draft of the conversation that is open now. */
  open() {
    const { content, files } = this.#stored(draftKey(this.#current()));
    field.value = content;
    this.#files = files;
    this.#showFiles();
    fitHeight();
    if (!isTouch) field.focus();
  }

  get isEmpty() {
    return field.value.trim() === '' && this.#files.length === 0;
  }

  /** @returns {Draft} What the field has; it is empty then. */
  take() {
    const draft = { content: field.value.trim(), files: this.#files };
    field.value = '';
    this.#files = [];
    this.#changed();
    return draft;
  }

  /**
   * The message was refused: its text comes back. A text that was typed meanwhile stays too.
   * @param {Conversation} conversation
   * @param {Draft} draft
   */
  putBack(conversation, { content, files }) {
    const key = draftKey(conversation);
    const later = key === draftKey(this.#current()) ? this.#draft() : this.#stored(key);
    const parts = [content, later.content].filter((part) => part !== '');
    this.#store(key, { content: parts.join('\n'), files: [...files, ...later.files] });
    if (key === draftKey(this.#current())) this.open();
  }

  #draft() {
    return { content: field.value, files: this.#files };
  }

  #changed() {
    fitHeight();
    this.#showFiles();
    this.#store(draftKey(this.#current()), this.isEmpty ? undefined : this.#draft());
  }

  /**
   * @param {string} key
   * @param {Draft | undefined} draft
   */
  #store(key, draft) {
    this.#unstored.delete(key);
    if (write(`draft:${key}`, draft) || draft === undefined) return;
    this.#unstored.set(key, draft);
    // What was stored before is older.
    write(`draft:${key}`, undefined);
  }

  /**
   * @param {string} key
   * @returns {Draft}
   */
  #stored(key) {
    const draft = this.#unstored.get(key) ?? read(`draft:${key}`, /** @type {Partial<Draft>} */ ({})) ?? {};
    const { content, files } = draft;
    return { content: typeof content === 'string' ? content : '', files: Array.isArray(files) ? files : [] };
  }

  /**
   * @param {Event} event
   * @param {DataTransfer | null} data
   */
  #takeFiles(event, data) {
    if (data === null || data.files.length === 0) return;
    event.preventDefault();
    void this.#attach([...data.files]);
  }

  /** @param {File[]} files */
  async #attach(files) {
    const problems = [];
    for (const file of files) {
      const problem = await this.#attachOne(file);
      if (problem !== undefined) problems.push(`${file.name} is not attached: ${problem}`);
    }
    if (problems.length > 0) this.say(problems.join(' '));
    this.#changed();
    field.focus();
  }

  /** @param {File} file */
  async #attachOne(file) {
    if (file.size > FILE_BYTES_MAX) return 'files may have 1 MiB.';
    try {
      const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes('\0')) return 'it is no text.';
      this.#files = [...this.#files, { name: file.name, text }];
      announce(`${file.name} is attached.`);
      return undefined;
    } catch {
      return 'it is no text in UTF-8.';
    }
  }

  #showFiles() {
    list.hidden = this.#files.length === 0;
    list.replaceChildren(
      ...this.#files.map((file) => {
        const remove = () => {
          this.#files = this.#files.filter((other) => other !== file);
          this.#changed();
          field.focus();
        };
        return el('li', {}, file.name, button('✕', remove, { 'aria-label': `Remove ${file.name}` }));
      }),
    );
  }
}

/** The field is as high as its text, up to a limit. */
function fitHeight() {
  field.style.height = 'auto';
  field.style.height = `${Math.min(field.scrollHeight + 2, 220)}px`;
}
