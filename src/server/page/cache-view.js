import { call, eventsOf, isAbort, jsonOf, messageOf } from './api.js';
import { legendOf, stateTexts } from './block-cells.js';
import { parseBlocks } from './block-numbers.js';
import { showCounts, showTiers, showTiles } from './cache-numbers.js';
import { CacheState, groupName, isFinished } from './cache-state.js';
import { byId, el, plural } from './dom.js';
import { openExperiment } from './experiment.js';
import { pathOfModel } from './models.js';
import { PinList } from './pin-list.js';
import { PoolCanvas } from './pool-canvas.js';
import { RequestRows } from './request-rows.js';

const REDRAW_MS = 100;
const RECONNECT_MS = 2000;
/** Of larger pools, only the blocks used so far are drawn at first. */
const MANY_BLOCKS = 2048;
const blocksField = byId('lose-blocks', HTMLInputElement);

/** The second view: pool, requests, tiers and pins, live. Reads events only while it is open. */
export class CacheView {
  #state = new CacheState();
  /** @type {AbortController | undefined} */
  #connection;
  #timer = 0;
  #hasChanged = false;

  constructor() {
    const toggle = (/** @type {number} */ block) => this.#toggle(block);
    this.pool = new PoolCanvas(this.#state, toggle);
    this.rows = new RequestRows(this.#state, toggle);
    this.pins = new PinList();
    byId('lose', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#lose();
    });
    blocksField.addEventListener('input', () => this.#showChosen());
    const group = byId('group', HTMLSelectElement);
    group.addEventListener('change', () => {
      this.pool.group = group.value === '' ? undefined : Number(group.value);
      this.pool.drawAll();
    });
    const range = byId('range', HTMLSelectElement);
    range.addEventListener('change', () => {
      this.pool.isWhole = range.value === 'all';
      this.pool.drawAll();
    });
    byId('pool-table', HTMLElement).parentElement?.addEventListener('toggle', () => showCounts(this.#state));
    byId('legend', HTMLElement).replaceChildren(...legendOf(Object.entries(stateTexts)));
    for (const [i, name] of Object.keys(stateTexts).entries())
      byId('legend', HTMLElement).children[i]?.append(' ', el('b', { 'data-state': name }, '0'));
    const phases = /** @type {const} */ (['queued', 'loading', 'prefill', 'decode', 'recovering']);
    byId('phase-legend', HTMLElement).replaceChildren(...legendOf(phases.map((phase) => [phase, phase])));
    openExperiment();
  }

  open() {
    if (this.#connection !== undefined) return;
    const connection = new AbortController();
    this.#connection = connection;
    this.#timer = window.setInterval(() => this.#redrawChanged(), REDRAW_MS);
    void this.#read(connection.signal);
    void this.pins.open(connection.signal);
  }

  close() {
    this.#connection?.abort();
    this.#connection = undefined;
    clearInterval(this.#timer);
  }

  redraw() {
    if (this.#connection === undefined) return;
    this.pool.drawAll();
    this.rows.redraw();
  }

  /** @param {AbortSignal} signal */
  async #read(signal) {
    const note = byId('feed-state', HTMLElement);
    while (!signal.aborted) {
      try {
        const response = await call(pathOfModel('cache/events'), { signal });
        note.hidden = true;
        for await (const event of eventsOf(response)) this.#take(event);
        throw new Error('The server has closed the connection.');
      } catch (error) {
        if (isAbort(error) || signal.aborted) return;
        note.textContent = `${messageOf(error)} This page tries again every two seconds.`;
        note.hidden = false;
        await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
      }
    }
  }

  /** @param {any} event */
  #take(event) {
    const changed = this.#state.take(event);
    this.#hasChanged = true;
    if (event.type === 'start') this.#showShape();
    if (changed === undefined) this.pool.drawAll();
    else this.pool.drawBlocks(changed);
  }

  #redrawChanged() {
    const shown = this.#state.takeShown();
    if (shown.length > 0) this.pool.drawBlocks(shown);
    const isActive = this.#state.requestIds.some((id) => !isFinished(this.#state.row(id)));
    if (!this.#hasChanged && !isActive && shown.length === 0) return;
    this.rows.draw();
    if (!this.#hasChanged && shown.length === 0) return;
    this.#hasChanged = false;
    showTiles(this.#state);
    showTiers(this.#state);
    showCounts(this.#state);
    this.#showTargets();
  }

  #showShape() {
    const { pool, canLoseBlocks } = this.#state;
    const layers = pool.groups.reduce((sum, group) => sum + group.layers, 0);
    byId('pool-shape', HTMLElement).textContent =
      `${plural(pool.blockCount - 1, 'block')} · ${plural(pool.groups.length, 'group')} · ${plural(layers, 'layer')}`;
    const choices = pool.groups.map((group, i) => el('option', { value: String(i) }, groupName(group, i)));
    byId('group', HTMLSelectElement).replaceChildren(el('option', { value: '' }, 'all groups'), ...choices);
    const isLarge = pool.blockCount > MANY_BLOCKS;
    byId('range-choice', HTMLElement).hidden = !isLarge;
    this.pool.isWhole = !isLarge || byId('range', HTMLSelectElement).value === 'all';
    byId('group-choice', HTMLElement).hidden = pool.groups.length < 2;
    byId('faults-on', HTMLElement).hidden = !canLoseBlocks;
    byId('faults-off', HTMLElement).hidden = canLoseBlocks;
  }

  /** The requests that run, as a choice for losing blocks. Keeps the chosen one. */
  #showTargets() {
    const select = byId('lose-request', HTMLSelectElement);
    const running = this.#state.requestIds.filter((id) => !isFinished(this.#state.row(id)));
    const known = [...select.options].slice(1).map(({ value }) => value);
    if (known.join() === running.join()) return;
    const chosen = select.value;
    const options = running.map((id) => el('option', { value: id }, id.replace(/^(\w+-\w{6}).*/, '$1')));
    select.replaceChildren(el('option', { value: '' }, 'the whole pool'), ...options);
    select.value = running.includes(chosen) ? chosen : '';
  }

  /** @param {number} block */
  #toggle(block) {
    if (!this.#state.canLoseBlocks) return;
    const chosen = new Set(parseBlocks(blocksField.value).blocks);
    if (!chosen.delete(block)) chosen.add(block);
    blocksField.value = [...chosen].sort((a, b) => a - b).join(', ');
    this.#showChosen();
  }

  #showChosen() {
    this.pool.chosen = new Set(parseBlocks(blocksField.value).blocks);
    this.pool.drawAll();
  }

  async #lose() {
    const result = byId('lose-result', HTMLElement);
    const request = byId('lose-request', HTMLSelectElement).value;
    const count = Number(byId('lose-count', HTMLInputElement).value);
    const isByNumber = blocksField.value.trim() !== '';
    const { blocks, problem } = parseBlocks(blocksField.value);
    if (problem !== undefined) {
      result.textContent = problem;
      return;
    }
    const body = isByNumber ? { blocks } : { count, ...(request === '' ? {} : { request }) };
    try {
      const loss = await jsonOf(await call(pathOfModel('cache/lose'), { method: 'POST', body }));
      result.textContent = `${plural(loss.blocks.length, 'block')} lost. ${plural(loss.requests, 'request')} had ${plural(loss.tokens, 'token')} in them.`;
      blocksField.value = '';
      this.#showChosen();
    } catch (error) {
      result.textContent = messageOf(error);
    }
  }
}
