import { call } from './api.js';
import { CacheView } from './cache-view.js';
import { Chat } from './chat.js';
import { newConversation } from './conversation.js';
import { byId } from './dom.js';
import { showModels } from './models.js';
import { recommend } from './settings.js';
import { openSidebar, showConversations } from './sidebar.js';
import { Conversations, current, read, write } from './store.js';

/** @typedef {import('./conversation.js').Conversation} Conversation */

const sidebar = byId('sidebar', HTMLElement);
const menu = byId('menu', HTMLButtonElement);
const theme = byId('theme', HTMLSelectElement);

const conversations = new Conversations((id) => {
  if (conversations.get(id) === undefined) leave(id);
  else if (id === chat.conversation.id) chat.refresh();
  list();
});
const chat = new Chat(conversations, () => {
  current.id = chat.conversation.id;
  list();
});

function list() {
  showConversations(conversations.all, {
    isCurrent: ({ id }) => id === chat.conversation.id,
    isRunning: ({ id }) => chat.isRunning(id),
    open,
    rename: (conversation, title) => {
      conversation.title = title;
      conversations.save(conversation);
      list();
    },
    remove: ({ id }) => {
      conversations.remove(id);
      leave(id);
      list();
    },
  });
}

/**
 * Shows a conversation. The buttons of the browser go back to the one before.
 * @param {Conversation} conversation
 */
function open(conversation) {
  if (isPlain(location.hash)) history.replaceState(null, '', `#${chat.conversation.id}`);
  if (location.hash !== `#${conversation.id}`) history.pushState(null, '', `#${conversation.id}`);
  show(conversation);
}

/** @param {Conversation} conversation */
function show(conversation) {
  chat.open(conversation);
  current.id = conversation.id;
  showSidebar(false);
  list();
}

/**
 * The conversation is deleted, here or in another tab.
 * @param {string} id
 */
function leave(id) {
  chat.stop(id);
  if (id === chat.conversation.id) open(newConversation());
}

/** @param {boolean} isOpen On narrow screens the list is above the messages only while it is open. */
function showSidebar(isOpen) {
  sidebar.classList.toggle('open', isOpen);
  menu.setAttribute('aria-expanded', String(isOpen));
}

byId('new-chat', HTMLButtonElement).addEventListener('click', () => open(newConversation()));
menu.addEventListener('click', () => showSidebar(!sidebar.classList.contains('open')));
sidebar.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || !sidebar.classList.contains('open')) return;
  event.preventDefault();
  showSidebar(false);
  menu.focus();
});

theme.value = read('theme', 'auto');
function applyTheme() {
  document.documentElement.dataset.theme = theme.value;
}
theme.addEventListener('change', () => {
  write('theme', theme.value);
  applyTheme();
  cache.redraw();
});
applyTheme();

const cache = new CacheView();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => cache.redraw());
/** Whether the address names no conversation: the one that was open stays. @param {string} hash */
const isPlain = (hash) => hash === '' || hash === '#chat';
function route() {
  const isCache = location.hash === '#cache';
  const id = location.hash.slice(1);
  // A new chat has no entry yet, and a deleted one none any more.
  if (!isCache && !isPlain(location.hash) && id !== chat.conversation.id)
    show(conversations.get(id) ?? newConversation());
  byId('chat-view', HTMLElement).hidden = isCache;
  byId('cache-view', HTMLElement).hidden = !isCache;
  menu.hidden = isCache;
  for (const [id, isCurrent] of /** @type {const} */ ([
    ['to-chat', !isCache],
    ['to-cache', isCache],
  ])) {
    if (isCurrent) byId(id, HTMLElement).setAttribute('aria-current', 'page');
    else byId(id, HTMLElement).removeAttribute('aria-current');
  }
  document.title = isCache ? 'Cache · Kvasir' : 'Kvasir';
  // The server computes states only for viewers.
  if (isCache) cache.open();
  else cache.close();
}
addEventListener('hashchange', route);

async function takeRecommended() {
  const response = await call('props');
  if (response.ok) recommend((await response.json()).recommended_sampling ?? {});
}

openSidebar(conversations, list);
const last = conversations.get(current.id);
if (last !== undefined) chat.open(last);
list();
route();

showModels()
  .then(takeRecommended)
  .catch(() => undefined);
