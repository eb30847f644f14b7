import { titleOf } from './conversation.js';
import { announce, button, byId, el, plural } from './dom.js';
import { hasText } from './store.js';

/** @typedef {import('./conversation.js').Conversation} Conversation */

const list = byId('conversations', HTMLElement);
const search = byId('search', HTMLInputElement);
const nothing = byId('nothing-found', HTMLElement);
const fileField = byId('import-file', HTMLInputElement);
const fileState = byId('import-state', HTMLElement);

/**
 * The search above the list, and the buttons below it.
 * @param {import('./store.js').Conversations} conversations
 * @param {() => void} changed Another list is to be shown.
 */
export function openSidebar(conversations, changed) {
  search.addEventListener('input', changed);
  byId('export', HTMLButtonElement).addEventListener('click', () => {
    const href = URL.createObjectURL(new Blob([conversations.exported()], { type: 'application/json' }));
    el('a', { href, download: `kvasir-conversations-${new Date().toISOString().slice(0, 10)}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  });
  byId('import', HTMLButtonElement).addEventListener('click', () => fileField.click());
  fileField.addEventListener('change', async () => {
    const [file] = fileField.files ?? [];
    if (file === undefined) return;
    try {
      fileState.textContent = `${plural(conversations.import(await file.text()), 'conversation')} imported.`;
    } catch (error) {
      const reason = error instanceof SyntaxError ? 'The file is no JSON.' : /** @type {Error} */ (error).message;
      fileState.textContent = `Nothing is imported. ${reason}`;
    }
    fileField.value = '';
    changed();
  });
}

/**
 * Shows the conversations that the search finds, each with buttons. While a title is edited, the list stays.
 * @param {readonly Conversation[]} conversations
 * @param {{ isCurrent(conversation: Conversation): boolean, isRunning(conversation: Conversation): boolean, open(conversation: Conversation): void, rename(conversation: Conversation, title: string): void, remove(conversation: Conversation): void }} actions
 */
export function showConversations(conversations, actions) {
  const focused = document.activeElement;
  if (focused instanceof HTMLInputElement && list.contains(focused)) return;
  const found = conversations.filter((conversation) => hasText(conversation, search.value));
  nothing.hidden = found.length > 0 || search.value === '';
  list.replaceChildren(
    ...found.map((conversation) => {
      const title = titleOf(conversation);
      const isRunning = actions.isRunning(conversation);
      const open = el(
        'button',
        {
          type: 'button',
          class: isRunning ? 'open running' : 'open',
          dir: 'auto',
          ...(isRunning ? { title: 'An answer is being written' } : {}),
          ...(actions.isCurrent(conversation) ? { 'aria-current': 'true' } : {}),
          click: () => actions.open(conversation),
        },
        title,
      );
      const item = el('li', {}, open);
      const rename = () =>
        editTitle(
          item,
          title,
          (next) => {
            item.replaceChildren(...parts);
            actions.rename(conversation, next);
          },
          () => item.replaceChildren(...parts),
        );
      const remove = () => {
        if (!confirm(`Delete the conversation "${title}"?`)) return;
        actions.remove(conversation);
        announce('The conversation is deleted.');
      };
      const parts = [
        open,
        button('✎', rename, { class: 'quiet small', 'aria-label': `Rename ${title}`, title: 'Rename' }),
        button('✕', remove, { class: 'quiet small', 'aria-label': `Delete ${title}`, title: 'Delete' }),
      ];
      item.replaceChildren(...parts);
      return item;
    }),
  );
}

/**
 * @param {HTMLElement} item
 * @param {string} title
 * @param {(title: string) => void} done
 * @param {() => void} cancel
 */
function editTitle(item, title, done, cancel) {
  const input = el('input', { type: 'text', 'aria-label': 'Title', value: title, maxlength: '100' });
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') cancel();
    if (event.key === 'Enter' && input.value.trim() !== '') done(input.value.trim());
  });
  item.replaceChildren(
    input,
    button('Save', () => input.value.trim() !== '' && done(input.value.trim())),
  );
  input.focus();
  input.select();
}
