import { call, jsonOf } from './api.js';
import { byId, el } from './dom.js';
import { read, write } from './store.js';

/**
 * @typedef {{ id: string, description?: string, max_model_len?: number, status?: 'unloaded' | 'loading' | 'loaded' | 'failed', progress?: { message: string, doneBytes?: number, totalBytes?: number }, error?: { message: string } }} Model
 * `status`: of a server with several models, which loads them when requests ask for them.
 */

/** How often the page asks a server that loads a model, in milliseconds. */
const LOADING_POLL_MS = 1000;
const shown = byId('model', HTMLElement);
/** What the file of the chosen model says of itself. */
export const aboutModel = el('p', { class: 'hint' });
const choice = byId('model-choice', HTMLSelectElement);
/** @type {Model[]} */
let models = [];
/** Of the open conversation; undefined: the last choice. @type {string | undefined} */
let wanted;

const delay = () => new Promise((resolve) => setTimeout(resolve, LOADING_POLL_MS));
const chosen = () => models[Math.max(0, choice.selectedIndex)];

/** The field of a request that chooses the model, if the server has several. */
export const requestModel = () => (choice.options.length > 0 ? { model: choice.value } : {});

/**
 * The path of an endpoint that shows or changes one model: the chosen one.
 * @param {string} path
 */
export const pathOfModel = (path) =>
  choice.options.length > 0 ? `${path}?model=${encodeURIComponent(choice.value)}` : path;

/**
 * Shows the model of a conversation as the choice, or the last choice if it has none, or its model is gone.
 * @param {string | undefined} model
 */
export function chooseModel(model) {
  wanted = model;
  applyChoice();
  showState();
}

/** @param {(model: string) => void} listener Called when a person chooses another model. */
export function onModelChoice(listener) {
  choice.addEventListener('change', () => {
    wanted = choice.value;
    write('model', wanted);
    listener(wanted);
    showState();
  });
}

/** Shows the model or a choice of models; while the server loads, how far the load is. */
export async function showModels() {
  for (;;) {
    try {
      const response = await call('v1/models');
      if (response.status !== 503) {
        show((await jsonOf(response)).data);
        break;
      }
      const health = await (await call('health')).json();
      if (health.status === 'loading') shown.textContent = health.message;
    } catch (error) {
      // A server that is started again comes back.
      if (!(error instanceof TypeError)) throw error;
    }
    await delay();
  }
  // Files may have been added.
  choice.addEventListener('focus', () => void refresh());
  for (;;) {
    await delay();
    if (models.some(({ status }) => status === 'loading') && !document.hidden) await refresh();
  }
}

/**
 * Tells how far the load of a request's model is, until the model is loaded or the signal is aborted.
 * @param {AbortSignal} signal
 * @param {(text: string) => void} tell
 */
export async function followLoad(signal, tell) {
  const id = chosen()?.id;
  for (;;) {
    const model = models.find((other) => other.id === id);
    if (signal.aborted || model?.status === undefined || model.status === 'loaded') return;
    tell(model.progress?.message ?? `The server loads ${model.id}.`);
    await delay();
    await refresh();
  }
}

async function refresh() {
  try {
    show((await jsonOf(await call('v1/models'))).data);
  } catch {
    // The next request tells what is wrong.
  }
}

/** @param {Model[]} given */
function show(given) {
  models = given;
  const isChoice = models.length > 1 || models[0]?.status !== undefined;
  byId('model-label', HTMLElement).hidden = !isChoice;
  if (isChoice) {
    const texts = models.map(textOf);
    const isSame =
      models.every(({ id }, i) => choice.options[i]?.value === id) && choice.options.length === models.length;
    const options = models.map(({ id }, i) => el('option', { value: id }, /** @type {string} */ (texts[i])));
    // An open list stays open.
    if (!isSame) choice.replaceChildren(...options);
    else
      for (const [i, { text }] of options.entries())
        setText(/** @type {HTMLOptionElement} */ (choice.options[i]), text);
    if (!isSame) applyChoice();
  }
  showState();
}

/**
 * @param {HTMLOptionElement} option
 * @param {string} text
 */
function setText(option, text) {
  if (option.textContent !== text) option.textContent = text;
}

function applyChoice() {
  for (const id of [wanted, read('model', '')]) {
    if (id === undefined) continue;
    choice.value = id;
    if (choice.selectedIndex >= 0) return;
  }
  choice.selectedIndex = choice.options.length > 0 ? 0 : -1;
}

/** @param {Model} model */
function textOf({ id, status, progress }) {
  if (status === undefined || status === 'unloaded') return id;
  if (status !== 'loading') return `${id} (${status})`;
  const { doneBytes = 0, totalBytes = 0 } = progress ?? {};
  return totalBytes > 0 ? `${id} (loading, ${Math.floor((100 * doneBytes) / totalBytes)} %)` : `${id} (loading)`;
}

/** What there is to say about the chosen model beside its name. */
function showState() {
  const model = chosen();
  if (model === undefined) return;
  const { id, description = '', max_model_len: length, error } = model;
  aboutModel.textContent = description;
  aboutModel.hidden = description === '';
  const isChoice = choice.options.length > 0;
  const context = length === undefined ? [] : [`${length.toLocaleString('en')} tokens of context`];
  const problem = error === undefined ? [] : [error.message];
  shown.textContent = [...(isChoice ? [] : [id]), ...context, ...problem].join(' · ');
}
