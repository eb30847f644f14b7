import { announce, button, byId, el } from './dom.js';

/** @typedef {import('./store.js').Conversation} Conversation */

const list = byId('conversations', HTMLElement);

/**
 * Shows the conversations, each with buttons.
 * @param {readonly Conversation[]} conversations
 * @param {string} current
 * @param {{ open(conversation: Conversation): void, rename(conversation: Conversation, title: string): void, remove(conversation: Conversation): void }} actions
 */
export function showConversations(conversations, current, actions) {
  list.replaceChildren(
    ...conversations.map((conversation) => {
      const { title } = conversation;
      const isCurrent = conversation.id === current;
      const open = el(
        'button',
        {
          type: 'button',
          class: 'open',
          ...(isCurrent ? { 'aria-current': 'true' } : {}),
          click: () => actions.open(conversation),
        },
        title,
      );
      const item = el('li', {}, open);
      const rename = () =>
        editTitle(
          item,
          title,
          (next) => actions.rename(conversation, next),
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
