import { call, jsonOf } from './api.js';
import { CacheView } from './cache-view.js';
import { Chat } from './chat.js';
import { byId } from './dom.js';
import { openSettings } from './settings.js';
import { showConversations } from './sidebar.js';
import { Conversations, newConversation, read, write } from './store.js';

/** @typedef {import('./store.js').Conversation} Conversation */

const sidebar = byId('sidebar', HTMLElement);
const menu = byId('menu', HTMLButtonElement);
const theme = byId('theme', HTMLSelectElement);
const notStored = 'The browser has no room for this conversation. Delete others to keep it.';

const conversations = new Conversations();
const chat = new Chat((conversation) => {
  if (!conversations.put(conversation)) byId('status', HTMLElement).textContent = notStored;
  write('current', conversation.id);
  list();
});

function list() {
  showConversations(conversations.all, chat.conversation.id, {
    open: (conversation) => open(conversation),
    rename: (conversation, title) => {
      conversation.title = title;
      conversations.save();
      list();
    },
    remove: (conversation) => {
      conversations.remove(conversation.id);
      if (conversation.id === chat.conversation.id) open(newConversation());
      else list();
    },
  });
}

/** @param {Conversation} conversation */
function open(conversation) {
  chat.open(conversation);
  write('current', conversation.id);
  showSidebar(false);
  list();
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
function route() {
  const isCache = location.hash === '#cache';
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

openSettings();
const current = conversations.all.find(({ id }) => id === read('current', ''));
if (current !== undefined) chat.open(current);
list();
route();

/** How often the page asks a server that loads its model, in milliseconds. */
const loadingPollMs = 1000;

/** Shows the model; while the server loads it, how far the load is. */
async function showModel() {
  const shown = byId('model', HTMLElement);
  for (;;) {
    const response = await call('v1/models');
    if (response.status !== 503) {
      const { data } = await jsonOf(response);
      shown.textContent = `${data[0].id} · ${data[0].max_model_len.toLocaleString('en')} tokens of context`;
      return;
    }
    const health = await (await call('health')).json();
    if (health.status === 'loading') shown.textContent = health.message;
    await new Promise((resolve) => setTimeout(resolve, loadingPollMs));
  }
}
showModel().catch(() => undefined);
