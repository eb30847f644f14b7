import { announce, byId, el } from './dom.js';
import { read, write } from './store.js';

/**
 * The settings of a conversation, as texts of the fields, and named copies of them.
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
/** Names of the numbers in a request and in the errors of the server, and how the summary tells them. */
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

/** @type {(settings: Settings) => void} */
let changed = () => undefined;

/** @param {(settings: Settings) => void} onChange gets the settings after each change by a person */
export function openSettings(onChange) {
  changed = onChange;
  for (const field of Object.values(fields)) field.addEventListener('input', store);
  choice.addEventListener('change', () => {
    fill(presets().find(({ name }) => name === choice.value)?.settings ?? defaults);
    store();
  });
  byId('save-preset', HTMLButtonElement).addEventListener('click', () => {
    const name = prompt('Name of the preset', choice.value)?.trim();
    if (!name) return;
    keep([...presets().filter((preset) => preset.name !== name), { name, settings: settingsNow() }]);
    announce(`The preset ${name} is saved.`);
  });
  remove.addEventListener('click', () => {
    if (confirm(`Delete the preset "${choice.value}"?`))
      keep(presets().filter((preset) => preset.name !== choice.value));
  });
  show();
}

/**
 * Fills the fields with the settings of a conversation. A new one has those that a person gave to the last new one.
 * @param {Partial<Settings> | undefined} settings
 */
export function showSettings(settings) {
  fill(settings ?? read('settings', defaults));
  show();
}

/** @param {Settings} settings for new conversations */
export const keepForNew = (settings) => write('settings', settings);

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
  changed(settingsNow());
  show();
}

export const settingsNow = () =>
  /** @type {Settings} */ (Object.fromEntries(names.map((name) => [name, fields[name].value])));

/** The summary, and the preset that the fields have. */
function show() {
  const now = settingsNow();
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

/** The fields of a request. Throws if a field refuses its value; the server checks what fields do not know. */
export function requestSettings() {
  /** @type {Record<string, number>} */
  const request = {};
  for (const [name, field] of numbers) {
    const problem = problemOf(fields[name]);
    if (problem !== undefined) throw new Error(`${labelOf(name)} in the settings ${problem}.`);
    if (fields[name].value !== '') request[field] = Number(fields[name].value);
  }
  if (request.seed !== undefined && Math.abs(request.seed) > Number.MAX_SAFE_INTEGER)
    throw new Error(`Seed in the settings must be between ${-Number.MAX_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}.`);
  return request;
}

/** @returns {{ role: string, content: string }[]} */
export function systemMessages() {
  const content = fields.system.value.trim();
  return content === '' ? [] : [{ role: 'system', content }];
}

/**
 * Why a field refuses its value. Fractions between two steps are right, but in fields of whole numbers.
 * @param {HTMLInputElement} field
 */
function problemOf({ value, validity, min, max, step }) {
  if (validity.badInput) return 'is no number';
  if (validity.rangeUnderflow || validity.rangeOverflow)
    return max === '' ? `must be at least ${min}` : `must be from ${min} to ${max}`;
  return step === '1' && !Number.isInteger(Number(value)) ? 'must be a whole number' : undefined;
}

/** @param {keyof Settings} name */
const labelOf = (name) => fields[name].labels?.[0]?.firstChild?.textContent?.trim() ?? name;

/**
 * An error of the server with the labels of the page instead of the names in the request.
 * @param {string} message
 */
export const withLabels = (message) =>
  numbers.reduce((text, [name, field]) => text.replaceAll(`\`${field}\``, labelOf(name)), message);
