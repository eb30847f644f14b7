import { call, isAbort, jsonOf, messageOf } from './api.js';
import { announce, button, byId, el, plural } from './dom.js';
import { pathOfModel } from './models.js';

const POLL_MS = 2000;

/**
 * @typedef {{ name: string, blocks: number, cached_blocks?: number, ttl_seconds: number, seconds_left: number }} Pin
 * @typedef {{ places: string[], secondsLeft: number }} Shown
 */

/** The pinned prefixes in the pool and in tiers. Asks for them only while the view is open. */
export class PinList {
  #element = byId('pins', HTMLElement);
  /** @type {AbortSignal | undefined} */
  #signal;
  #shown = '';

  /** @param {AbortSignal} signal Aborted when the view is closed. */
  async open(signal) {
    this.#signal = signal;
    while (!signal.aborted) {
      await this.#read(false);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** @param {boolean} asksForKey */
  async #read(asksForKey) {
    const signal = this.#signal;
    try {
      const response = await call(pathOfModel('cache/pins'), { signal, asksForKey });
      if (signal?.aborted) return;
      if (response.status === 401) this.#show('key', () => this.#keyHint());
      else if (response.status === 404) this.#show('none', () => [hint('This server has no pins.')]);
      else this.#showPins(await jsonOf(response));
    } catch (error) {
      // The feed of the view says that the server cannot be reached.
      if (!isAbort(error) && !(error instanceof TypeError))
        this.#show(messageOf(error), () => [hint(messageOf(error))]);
    }
  }

  #keyHint() {
    return [hint('Pins are for administrators.'), button('Enter the admin key', () => void this.#read(true))];
  }

  /** @param {{ pins: Pin[], blocks: number, max_blocks: number, tiers: Record<string, { pins: Pin[] }> }} answer */
  #showPins({ pins, blocks, max_blocks: max, tiers }) {
    /** @type {Map<string, Shown>} */
    const rows = new Map();
    /**
     * @param {Pin} pin
     * @param {string} text
     */
    const add = (pin, text) => {
      const row = rows.get(pin.name) ?? { places: [], secondsLeft: 0 };
      row.places.push(text);
      row.secondsLeft = Math.max(row.secondsLeft, pin.seconds_left);
      rows.set(pin.name, row);
    };
    for (const pin of pins) add(pin, `pool: ${pin.cached_blocks} of ${plural(pin.blocks, 'block')} cached`);
    for (const [tier, { pins: ofTier }] of Object.entries(tiers))
      for (const pin of ofTier) add(pin, `${tier}: ${plural(pin.blocks, 'block')} kept`);
    byId('pins-share', HTMLElement).textContent = `${blocks} of at most ${plural(max, 'block')} of the pool`;
    const texts = [...rows].map(([name, { places, secondsLeft }]) => [name, places.join(', '), timeText(secondsLeft)]);
    this.#show(JSON.stringify(texts), () => [texts.length === 0 ? emptyHint() : this.#table(texts)]);
  }

  /** @param {string[][]} texts */
  #table(texts) {
    const rows = texts.map(([name = '', places = '', left = '']) =>
      el(
        'tr',
        {},
        el('th', { scope: 'row', class: 'request-name' }, name),
        el('td', {}, places),
        el('td', {}, left),
        el(
          'td',
          {},
          button('Unpin', () => void this.#unpin(name), { class: '', 'aria-label': `Unpin ${name}`, 'data-pin': name }),
        ),
      ),
    );
    const head = ['Pin', 'Keeps', 'Ends without use', 'End now'];
    return el(
      'table',
      {},
      el('thead', {}, el('tr', {}, ...head.map((text) => el('th', { scope: 'col' }, text)))),
      el('tbody', {}, ...rows),
    );
  }

  /** @param {string} pin */
  async #unpin(pin) {
    try {
      const { unpinned } = await jsonOf(await call(pathOfModel('cache/unpin'), { method: 'POST', body: { pin } }));
      announce(unpinned === null ? `${pin} had ended before.` : `${pin} has ended.`);
      await this.#read(false);
    } catch (error) {
      announce(messageOf(error));
      this.#show(messageOf(error), () => [hint(messageOf(error))]);
    }
  }

  /**
   * Replaces what is shown if it differs. The focus stays on the button of the same pin.
   * @param {string} key
   * @param {() => HTMLElement[]} make
   */
  #show(key, make) {
    if (this.#shown === key) return;
    this.#shown = key;
    const { activeElement } = document;
    const focused =
      activeElement instanceof HTMLElement && this.#element.contains(activeElement)
        ? activeElement.dataset.pin
        : undefined;
    this.#element.replaceChildren(...make());
    const again = [...this.#element.querySelectorAll('button')].find(({ dataset }) => dataset.pin === focused);
    if (focused !== undefined) again?.focus();
  }
}

/** @param {string} text */
const hint = (text) => el('p', { class: 'hint' }, text);

const emptyHint = () =>
  el('p', { class: 'hint' }, 'No prefix is pinned. Pin one with ', el('code', {}, 'kvasir tiers pin'), '.');

/** @param {number} seconds */
function timeText(seconds) {
  if (seconds < 120) return `in ${plural(seconds, 'second')}`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `in ${minutes} minutes` : `in ${Math.round(minutes / 60)} hours`;
}
