import { byId } from './dom.js';
import { read, settingDefaults, write } from './store.js';

/** @typedef {import('./store.js').Settings} Settings */

const fields = {
  system: byId('system', HTMLTextAreaElement),
  temperature: byId('temperature', HTMLInputElement),
  maxTokens: byId('max-tokens', HTMLInputElement),
  seed: byId('seed', HTMLInputElement),
};

/** Fills the fields with the stored settings, and stores every change. */
export function openSettings() {
  const stored = { ...settingDefaults, ...read('settings', settingDefaults) };
  for (const [name, field] of entriesOf()) {
    field.value = String(stored[name]);
    field.addEventListener('input', () => {
      write('settings', values());
      summarize();
    });
  }
  summarize();
}

const entriesOf = () =>
  /** @type {[keyof Settings, HTMLInputElement | HTMLTextAreaElement][]} */ (Object.entries(fields));

/** @returns {Settings} */
function values() {
  return {
    system: fields.system.value,
    temperature: fields.temperature.value,
    maxTokens: fields.maxTokens.value,
    seed: fields.seed.value,
  };
}

function summarize() {
  const { system, temperature, maxTokens, seed } = values();
  const parts = [
    ...(system.trim() === '' ? [] : ['system prompt']),
    ...(temperature === '' ? [] : [`temperature ${temperature}`]),
    ...(maxTokens === '' ? [] : [`at most ${maxTokens} tokens`]),
    ...(seed === '' ? [] : [`seed ${seed}`]),
  ];
  byId('settings-summary', HTMLElement).textContent = parts.length === 0 ? '' : `· ${parts.join(', ')}`;
}

/** The fields of a request. The server checks the values, and its message names the wrong one. */
export function requestSettings() {
  const { temperature, maxTokens, seed } = values();
  return {
    ...(temperature === '' ? {} : { temperature: Number(temperature) }),
    ...(maxTokens === '' ? {} : { max_tokens: Number(maxTokens) }),
    ...(seed === '' ? {} : { seed: Number(seed) }),
  };
}

/** @returns {{ role: string, content: string }[]} */
export function systemMessages() {
  const content = values().system.trim();
  return content === '' ? [] : [{ role: 'system', content }];
}
