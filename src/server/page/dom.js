/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function byId(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`the page has no ${id}`);
  return found;
}

/**
 * A new element. Children are nodes or texts: a text never becomes markup.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | boolean | ((event: Event) => void)>} attributes Functions are listeners.
 * @param {(Node | string)[]} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Chromium's layout overflows its stack somewhat above 850 elements inside each other, and its process ends. */
const DEPTH_MAX = 300;

/**
 * Whether the elements of an answer are nested deeper than browsers can show.
 * @param {Node} top
 */
export function isTooDeep(top) {
  let depth = 0;
  for (let level = [top]; level.length > 0; depth++) level = level.flatMap(({ childNodes }) => [...childNodes]);
  return depth > DEPTH_MAX;
}

/**
 * @param {string} label
 * @param {() => void} onClick
 * @param {Record<string, string | boolean>} attributes
 */
export const button = (label, onClick, attributes = {}) =>
  el('button', { type: 'button', class: 'quiet', ...attributes, click: onClick }, label);

/**
 * Tells screen readers.
 * @param {string} text
 */
export function announce(text) {
  byId('status', HTMLElement).textContent = text;
}

/** @param {string} text */
async function copyText(text) {
  // Absent in pages that came over HTTP from another machine.
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
  const focused = document.activeElement;
  const field = el('textarea', { class: 'sr' });
  field.value = text;
  document.body.append(field);
  field.select();
  const isDone = document.execCommand('copy');
  field.remove();
  if (focused instanceof HTMLElement) focused.focus();
  if (!isDone) throw new Error('The browser does not copy.');
}

/**
 * A button that copies a text. Its label says whether it worked.
 * @param {string} label
 * @param {() => string} read
 */
export function copyButton(label, read) {
  const copy = button(label, () => {
    copyText(read()).then(
      () => say('Copied'),
      () => say('Not allowed'),
    );
  });
  /** @param {string} text */
  function say(text) {
    copy.textContent = text;
    announce(text);
    setTimeout(() => {
      copy.textContent = label;
    }, 1500);
  }
  return copy;
}

/**
 * @param {number} count
 * @param {string} noun
 */
export const plural = (count, noun) => `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
