/**
 * The state of pool and requests, as the server's events tell it.
 *
 * @typedef {{ kind: 'full' | 'window' | 'state', blockSize: number, window?: number, layers: number }} Group
 * @typedef {{ blockCount: number, blockBytes: number, groups: Group[] }} Pool
 * @typedef {{ phases: [string, number][], promptTokens: number, outputTokens: number, cachedTokens: number, externalTokens: number, computedTokens: number, recomputedTokens: number, preemptions: number }} Row
 */

/** A recovery takes a few milliseconds. Lost blocks are shown as invalid for at least this time. */
const LOST_SHOWN_MS = 900;

export class CacheState {
  /** @type {Pool} */
  pool = { blockCount: 0, blockBytes: 0, groups: [] };
  /** @type {string[]} */
  states = [];
  canLoseBlocks = false;
  /** One byte per block: the state in the low three bits, the group in the others. */
  cells = new Uint8Array(0);
  /** @type {Map<string, any>} The named parts of the last state. */
  parts = new Map();
  /** Blocks that were lost just now, and until when they are shown so. @type {Map<number, number>} */
  #lost = new Map();
  #serverMs = 0;
  #receivedMs = 0;

  /**
   * Takes an event. Returns the blocks that have changed; undefined: all.
   * @param {any} event
   * @returns {number[] | undefined}
   */
  take(event) {
    if (event.type === 'start') {
      this.pool = event.pool;
      this.states = event.states;
      this.canLoseBlocks = event.canLoseBlocks;
      this.cells = new Uint8Array(event.pool.blockCount).fill(this.codeOf('free', 31));
      this.parts = new Map();
      return undefined;
    }
    this.#serverMs = event.nowMs;
    this.#receivedMs = performance.now();
    /** @type {number[]} */
    const changed = event.lost ?? [];
    for (const block of changed) this.#lost.set(block, performance.now() + LOST_SHOWN_MS);
    for (let i = 0; i < event.runs.length; i += 3) {
      const [start, length, cell] = event.runs.slice(i, i + 3);
      this.cells.fill(cell, start, start + length);
      for (let block = start; block < start + length; block++) changed.push(block);
    }
    if (event.isWhole) this.parts = new Map();
    for (const [name, value] of Object.entries(event.parts)) this.parts.set(name, value);
    this.#forgetOldRequests();
    return event.isWhole ? undefined : changed;
  }

  /** @returns {string[]} */
  get requestIds() {
    return this.parts.get('requests') ?? [];
  }

  /**
   * @param {string} id
   * @returns {Row | undefined}
   */
  row(id) {
    return this.parts.get(`request ${id}`);
  }

  /**
   * @param {string} id
   * @returns {number[][]} By group; empty for a request that has ended.
   */
  tables(id) {
    return isFinished(this.row(id)) ? [] : (this.parts.get(`tables ${id}`) ?? []);
  }

  /** The server's clock now. While nothing happens there, time does not go on. */
  get nowMs() {
    const isActive = this.requestIds.some((id) => !isFinished(this.row(id)));
    return this.#serverMs + (isActive ? performance.now() - this.#receivedMs : 0);
  }

  /** @param {number} block */
  stateOf(block) {
    const state = this.states[/** @type {number} */ (this.cells[block]) & 7] ?? 'free';
    return this.#lost.has(block) ? 'invalid' : state;
  }

  /** @param {number} block */
  groupOf(block) {
    return /** @type {number} */ (this.cells[block]) >>> 3;
  }

  /** The blocks that are not shown as lost any more from now on. */
  takeShown() {
    const now = performance.now();
    const shown = [...this.#lost].filter(([, until]) => until <= now).map(([block]) => block);
    for (const block of shown) this.#lost.delete(block);
    return shown;
  }

  /**
   * How many blocks of each state there are, by group; the last row has the blocks without a group.
   * @returns {{ name: string, counts: number[] }[]}
   */
  counts() {
    const rows = [
      ...this.pool.groups.map((group, i) => ({ name: groupName(group, i), counts: this.states.map(() => 0) })),
    ];
    const others = { name: 'No group', counts: this.states.map(() => 0) };
    for (let block = 1; block < this.cells.length; block++) {
      const { counts } = rows[this.groupOf(block)] ?? others;
      const state = this.states.indexOf(this.stateOf(block));
      counts[state] = (counts[state] ?? 0) + 1;
    }
    return [...rows, others];
  }

  /**
   * @param {string} state
   * @param {number} group
   */
  codeOf(state, group) {
    return this.states.indexOf(state) | (group << 3);
  }

  #forgetOldRequests() {
    const known = new Set(this.requestIds);
    for (const name of this.parts.keys()) {
      const [, id] = /^(?:request|tables) (.*)$/.exec(name) ?? [];
      if (id !== undefined && !known.has(id)) this.parts.delete(name);
    }
  }
}

/** @param {Row | undefined} row */
export const isFinished = (row) => row?.phases.at(-1)?.[0] === 'finished';

/**
 * @param {Group} group
 * @param {number} index
 */
export function groupName({ kind, blockSize, window }, index) {
  const what = { full: 'full attention', window: `window of ${window} tokens`, state: 'recurrent states' }[kind];
  return `Group ${index}: ${what}, ${blockSize} tokens a block`;
}
