import { colours, drawCell, sizeCanvas } from './block-cells.js';
import { groupName, isFinished } from './cache-state.js';
import { byId, el, plural } from './dom.js';

/** @typedef {import('./cache-state.js').CacheState} CacheState */
/** @typedef {import('./cache-state.js').Row} Row */
/** @typedef {{ item: HTMLLIElement, name: HTMLElement, badge: HTMLElement, numbers: HTMLElement, line: HTMLCanvasElement, tables: HTMLElement, strips: HTMLCanvasElement[], last: { block: number, state: string }[][], isFrozen: boolean }} RowView */

const list = byId('requests', HTMLElement);
const WINDOW_MS = 20_000;
/** A recovery of a few milliseconds is drawn this wide. */
const RECOVERY_PIXELS_MIN = 4;
const LINE_HEIGHT = 12;
const CELL = 11;

/** The requests as rows: a timeline, and the block tables while the request runs. */
export class RequestRows {
  /** @type {Map<string, RowView>} */
  #rows = new Map();
  #colours = colours();

  /**
   * @param {CacheState} state
   * @param {(block: number) => void} choose
   */
  constructor(state, choose) {
    this.state = state;
    this.choose = choose;
    addEventListener('resize', () => this.redraw());
  }

  /** The width or the theme is another: also the blocks of requests that have ended. */
  redraw() {
    this.draw();
    for (const { strips, last } of this.#rows.values())
      for (const [group, strip] of strips.entries()) this.#drawStrip(strip, last[group] ?? []);
  }

  draw() {
    const { state } = this;
    this.#colours = colours();
    const ids = state.requestIds.filter((id) => state.row(id) !== undefined);
    byId('no-requests', HTMLElement).hidden = ids.length > 0;
    for (const [id, { item }] of this.#rows) {
      if (ids.includes(id)) continue;
      item.remove();
      this.#rows.delete(id);
    }
    ids.forEach((id, at) => {
      const view = this.#rows.get(id) ?? this.#newRow(id);
      if (list.children[at] !== view.item) list.insertBefore(view.item, list.children[at] ?? null);
      this.#show(id, view);
    });
  }

  /** @param {string} id */
  #newRow(id) {
    const name = el('span', { class: 'request-name' }, shortName(id));
    const badge = el('span', { class: 'badge' });
    const numbers = el('span', { class: 'numbers' });
    const line = el('canvas', { class: 'line', role: 'img' });
    const tables = el('div', { class: 'tables' });
    const item = el('li', {}, el('div', { class: 'request-head' }, name, badge, numbers), line, tables);
    name.title = id;
    /** @type {RowView} */
    const view = { item, name, badge, numbers, line, tables, strips: [], last: [], isFrozen: false };
    this.#rows.set(id, view);
    return view;
  }

  /**
   * @param {string} id
   * @param {RowView} view
   */
  #show(id, view) {
    const row = /** @type {Row} */ (this.state.row(id));
    const phase = row.phases.at(-1)?.[0] ?? 'queued';
    view.badge.textContent = phase;
    view.badge.className = `badge ${phase}`;
    view.numbers.textContent = numbersOf(row);
    this.#drawLine(view.line, row);
    this.#drawTables(id, view);
  }

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Row} row
   */
  #drawLine(canvas, row) {
    const width = canvas.clientWidth;
    if (width === 0) return;
    const context = sizeCanvas(canvas, width, LINE_HEIGHT);
    context.clearRect(0, 0, width, LINE_HEIGHT);
    const { nowMs } = this.state;
    /** @param {number} ms */
    const xOf = (ms) => Math.max(0, (1 - (nowMs - ms) / WINDOW_MS) * width);
    context.fillStyle = /** @type {string} */ (this.#colours.free);
    context.fillRect(0, LINE_HEIGHT / 2 - 1, width, 2);
    const segments = segmentsOf(row, nowMs);
    // Recoveries last, so that no other phase covers them.
    for (const isRecovery of [false, true]) {
      for (const { phase, startMs, endMs } of segments) {
        if ((phase === 'recovering') !== isRecovery || phase === 'finished') continue;
        const start = xOf(startMs);
        const end = xOf(endMs);
        if (end <= 0) continue;
        context.fillStyle = /** @type {string} */ (this.#colours[phase]);
        context.fillRect(start, 0, Math.max(end - start, isRecovery ? RECOVERY_PIXELS_MIN : 1), LINE_HEIGHT);
      }
    }
    canvas.setAttribute('aria-label', `Timeline: ${describe(segments)}`);
  }

  /**
   * @param {string} id
   * @param {RowView} view
   */
  #drawTables(id, view) {
    if (isFinished(this.state.row(id))) {
      this.#freeze(view);
      return;
    }
    const tables = this.state.tables(id);
    if (view.strips.length !== tables.length) {
      view.strips = tables.map((_, group) => this.#newStrip(id, group));
      view.tables.replaceChildren(
        ...view.strips.flatMap((strip, group) => {
          const isOnly = tables.length === 1;
          const title = el('span', { class: 'strip-name' }, isOnly ? 'Blocks' : `Group ${group}`);
          const kind = this.state.pool.groups[group];
          if (kind !== undefined) title.title = groupName(kind, group);
          return [title, strip];
        }),
      );
    }
    for (const [group, strip] of view.strips.entries()) {
      const blocks = (tables[group] ?? []).map((block) => ({ block, state: this.state.stateOf(block) }));
      view.last[group] = blocks;
      this.#drawStrip(strip, blocks);
    }
  }

  /**
   * The request has ended: its row keeps the blocks as they were. A block that was lost has been computed again by then.
   * @param {RowView} view
   */
  #freeze(view) {
    if (view.isFrozen) return;
    view.isFrozen = true;
    for (const [group, strip] of view.strips.entries()) {
      const blocks = (view.last[group] ?? []).map(({ block, state }) => ({
        block,
        state: state === 'invalid' ? 'recomputed' : state,
      }));
      view.last[group] = blocks;
      this.#drawStrip(strip, blocks);
    }
  }

  /**
   * @param {string} id
   * @param {number} group
   */
  #newStrip(id, group) {
    const strip = el('canvas', { class: 'strip', role: 'img' });
    strip.addEventListener('click', ({ offsetX, offsetY }) => {
      const columns = Math.max(1, Math.floor(strip.clientWidth / CELL));
      const block = this.state.tables(id)[group]?.[Math.floor(offsetY / CELL) * columns + Math.floor(offsetX / CELL)];
      if (block) this.choose(block);
    });
    return strip;
  }

  /**
   * @param {HTMLCanvasElement} strip
   * @param {readonly { block: number, state: string }[]} blocks
   */
  #drawStrip(strip, blocks) {
    const width = strip.clientWidth;
    if (width === 0) return;
    const columns = Math.max(1, Math.floor(width / CELL));
    const height = Math.ceil(blocks.length / columns) * CELL;
    const context = sizeCanvas(strip, width, height);
    context.clearRect(0, 0, width, height);
    for (const [index, { block, state }] of blocks.entries()) {
      if (block === 0) continue;
      const x = (index % columns) * CELL;
      drawCell(context, { x, y: Math.floor(index / columns) * CELL, size: CELL, state }, this.#colours);
    }
    /** @param {string} name */
    const countOf = (name) => blocks.filter(({ block, state }) => block !== 0 && state === name).length;
    const used = blocks.filter(({ block }) => block !== 0).length;
    const text = `${plural(used, 'block')}, ${countOf('invalid')} invalid, ${countOf('recomputed')} recomputed`;
    strip.setAttribute('aria-label', text);
  }
}

/** @param {string} id */
function shortName(id) {
  const [name = id] = id.split('#');
  const [kind = '', rest = ''] = name.split('-');
  return rest === '' ? name : `${kind}-${rest.slice(0, 6)}`;
}

/** @param {Row} row */
function numbersOf({ promptTokens, outputTokens, cachedTokens, externalTokens, recomputedTokens, preemptions }) {
  return [
    `${promptTokens} prompt`,
    ...(cachedTokens > 0 ? [`${cachedTokens} cached`] : []),
    ...(externalTokens > 0 ? [`${externalTokens} promised by tiers`] : []),
    `${outputTokens} output`,
    ...(recomputedTokens > 0 ? [`${recomputedTokens} computed again`] : []),
    ...(preemptions > 0 ? [`preempted ${preemptions} times`] : []),
  ].join(' · ');
}

/**
 * @param {Row} row
 * @param {number} nowMs
 */
function segmentsOf(row, nowMs) {
  return row.phases.map(([phase, startMs], i) => ({
    phase,
    startMs,
    endMs: row.phases[i + 1]?.[1] ?? (isFinished(row) ? startMs : nowMs),
  }));
}

/** @param {{ phase: string, startMs: number, endMs: number }[]} segments */
function describe(segments) {
  /** @type {Map<string, number>} */
  const total = new Map();
  for (const { phase, startMs, endMs } of segments) total.set(phase, (total.get(phase) ?? 0) + endMs - startMs);
  total.delete('finished');
  const recoveries = segments.filter(({ phase }) => phase === 'recovering').length;
  const parts = [...total].map(([phase, ms]) => `${phase} ${Math.round(ms)} ms`);
  return `${parts.join(', ')}${recoveries > 0 ? `, ${plural(recoveries, 'recovery').replace('recoverys', 'recoveries')}` : ''}`;
}
