import { announce, byId, el } from './dom.js';
import { read, write } from './store.js';

/**
 * The settings of all conversations, as texts of the fields, and named copies of them.
 * @typedef {Record<keyof typeof fields, string>} Settings
 * @typedef {{ name: string, settings: Settings }} Preset
 */

const fields = {
  system: byId('system', HTMLTextAreaElement),
  temperature: byId('temperature', HTMLInputElement),
  topP: byId('top-p', HTMLInputElement),
  minP: byId('min-p', HTMLInputElement),
  maxTokens: byId('max-tokens', HTMLInputElement),
  seed: byId('seed', HTMLInputElement),
};
/** Names of the numbers in a request, and how the summary tells them. */
const numbers = /** @type {const} */ ([
  ['temperature', 'temperature', 'temperature '],
  ['topP', 'top_p', 'top-p '],
  ['minP', 'min_p', 'min-p '],
  ['maxTokens', 'max_tokens', 'at most ', ' tokens'],
  ['seed', 'seed', 'seed '],
]);
/** Until the server has said what it recommends for the model. @type {Settings} */
let defaults = { system: '', temperature: '0.7', topP: '', minP: '0.05', maxTokens: '', seed: '' };
const names = /** @type {(keyof Settings)[]} */ (Object.keys(fields));
const choice = byId('preset', HTMLSelectElement);
const remove = byId('delete-preset', HTMLButtonElement);

/** Fills the fields with the stored settings, and stores every change. */
export function openSettings() {
  fill(read('settings', defaults));
  for (const field of Object.values(fields)) field.addEventListener('input', store);
  choice.addEventListener('change', () => {
    fill(presets().find(({ name }) => name === choice.value)?.settings ?? defaults);
    store();
  });
  byId('save-preset', HTMLButtonElement).addEventListener('click', () => {
    const name = prompt('Name of the preset', choice.value)?.trim();
    if (!name) return;
    keep([...presets().filter((preset) => preset.name !== name), { name, settings: values() }]);
    announce(`The preset ${name} is saved.`);
  });
  remove.addEventListener('click', () => {
    if (confirm(`Delete the preset "${choice.value}"?`))
      keep(presets().filter((preset) => preset.name !== choice.value));
  });
  show();
}

/**
 * Takes over what the publisher of the model recommends, unless the user has other settings. The server adds parameters without a field.
 * @param {Record<string, unknown>} recommended by the names of requests
 */
export function recommend(recommended) {
  const isDefault = names.every((name) => fields[name].value === defaults[name]);
  const of = (/** @type {string} */ name) => String(recommended[name] ?? '');
  defaults = { ...defaults, temperature: of('temperature'), topP: of('top_p'), minP: of('min_p') };
  if (isDefault) fill(defaults);
  show();
}

/** @returns {Preset[]} */
function presets() {
  const stored = read('presets', /** @type {Preset[]} */ ([]));
  return Array.isArray(stored) ? stored.filter((preset) => typeof preset?.name === 'string') : [];
}

/** @param {Preset[]} all */
function keep(all) {
  write('presets', all);
  show();
}

/** @param {Partial<Settings>} settings */
function fill(settings) {
  for (const name of names) fields[name].value = String(settings?.[name] ?? defaults[name]);
}

function store() {
  write('settings', values());
  show();
}

const values = () => /** @type {Settings} */ (Object.fromEntries(names.map((name) => [name, fields[name].value])));

/** The summary, and the preset that the fields have. */
function show() {
  const now = values();
  const parts = [
    ...(now.system.trim() === '' ? [] : ['system prompt']),
    ...numbers.flatMap(([name, , before, after = '']) => (now[name] === '' ? [] : [`${before}${now[name]}${after}`])),
  ];
  byId('settings-summary', HTMLElement).textContent = parts.length === 0 ? '' : `· ${parts.join(', ')}`;
  /** @param {Partial<Settings>} settings */
  const isNow = (settings) => names.every((name) => String(settings?.[name] ?? defaults[name]) === now[name]);
  const all = presets();
  const options = all.map(({ name }) => el('option', { value: name }, name));
  choice.replaceChildren(
    el('option', { value: '' }, 'Default'),
    el('option', { value: 'custom', hidden: true }, 'Custom'),
    ...options,
  );
  choice.value = all.find(({ settings }) => isNow(settings))?.name ?? (isNow(defaults) ? '' : 'custom');
  remove.disabled = !all.some(({ name }) => name === choice.value);
}

/**
 * The fields of a request. The server checks the values, and its message names the wrong one. Throws if a field has no number that JSON
 * can carry.
 */
export function requestSettings() {
  /** @type {Record<string, number>} */
  const request = {};
  for (const [name, field, label] of numbers) {
    const { value, validity } = fields[name];
    if (validity.badInput)
      throw new Error(`The ${label.trim()} in the settings is no number.`.replace('at most', 'max tokens'));
    if (value !== '') request[field] = Number(value);
  }
  if (request.seed !== undefined && Math.abs(request.seed) > Number.MAX_SAFE_INTEGER)
    throw new Error(
      `The seed in the settings must be between ${-Number.MAX_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}.`,
    );
  return request;
}

/** @returns {{ role: string, content: string }[]} */
export function systemMessages() {
  const content = fields.system.value.trim();
  return content === '' ? [] : [{ role: 'system', content }];
}
