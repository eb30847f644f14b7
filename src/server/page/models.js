import { call, jsonOf } from './api.js';
import { byId, el } from './dom.js';
import { read, write } from './store.js';

/** How often the page asks a server that loads its model, in milliseconds. */
const LOADING_POLL_MS = 1000;
const shown = byId('model', HTMLElement);
const choice = byId('model-choice', HTMLSelectElement);

/** The field of a request that chooses the model, if the server has several. */
export const requestModel = () => (choice.options.length > 0 ? { model: choice.value } : {});

/** Shows the model or a choice of models; while the server loads, how far the load is. */
export async function showModels() {
  for (;;) {
    const response = await call('v1/models');
    if (response.status !== 503) {
      show((await jsonOf(response)).data);
      return;
    }
    const health = await (await call('health')).json();
    if (health.status === 'loading') shown.textContent = health.message;
    await new Promise((resolve) => setTimeout(resolve, LOADING_POLL_MS));
  }
}

/** @param {{ id: string, max_model_len?: number }[]} models */
function show(models) {
  const isChoice = models.length > 1;
  byId('model-label', HTMLElement).hidden = !isChoice;
  if (isChoice) choice.replaceChildren(...models.map(({ id }) => el('option', { value: id }, id)));
  choice.value = read('model', '');
  if (choice.selectedIndex < 0) choice.selectedIndex = 0;
  const tell = () => {
    const { id = '', max_model_len: length } = models[Math.max(0, choice.selectedIndex)] ?? {};
    const context = length === undefined ? [] : [`${length.toLocaleString('en')} tokens of context`];
    shown.textContent = [...(isChoice ? [] : [id]), ...context].join(' · ');
  };
  choice.addEventListener('change', () => {
    write('model', choice.value);
    tell();
  });
  tell();
}
