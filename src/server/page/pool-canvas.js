import { colours, drawCell, sizeCanvas, stateTexts } from './block-cells.js';
import { byId } from './dom.js';

/** @typedef {import('./cache-state.js').CacheState} CacheState */

const canvas = byId('pool', HTMLCanvasElement);
const hover = byId('pool-hover', HTMLElement);

/** The blocks of the pool as cells, in the order of their numbers. Draws only cells that have changed. */
export class PoolCanvas {
  #size = 0;
  #columns = 1;
  /** Blocks below this number are drawn. */
  #end = 0;
  /** Whether free blocks that were never used are drawn. */
  isWhole = true;
  #colours = colours();
  /** Only this group is bright; undefined: all are. @type {number | undefined} */
  group;
  /** @type {ReadonlySet<number>} */
  chosen = new Set();

  /**
   * @param {CacheState} state
   * @param {(block: number) => void} choose Called when a person clicks a block.
   */
  constructor(state, choose) {
    this.state = state;
    canvas.addEventListener('mousemove', (event) => this.#hover(this.#blockAt(event)));
    canvas.addEventListener('mouseleave', () => this.#hover(undefined));
    canvas.addEventListener('click', (event) => {
      const block = this.#blockAt(event);
      if (block !== undefined) choose(block);
    });
    new ResizeObserver(() => this.drawAll()).observe(canvas);
  }

  /** Lays the cells out again and draws all of them. */
  drawAll() {
    const { length } = this.state.cells;
    const width = canvas.clientWidth;
    if (width === 0 || length < 2) return;
    this.#colours = colours();
    this.#end = this.isWhole ? length : this.#usedEnd();
    const blocks = this.#end - 1;
    // The largest cells that make the picture at most 360 pixels high, of 2 to 14 pixels.
    let size = 14;
    while (size > 2 && Math.ceil(blocks / Math.floor(width / size)) * size > 360) size--;
    this.#size = size;
    this.#columns = Math.floor(width / size);
    const height = Math.ceil(blocks / this.#columns) * size;
    const context = sizeCanvas(canvas, width, height);
    context.clearRect(0, 0, width, height);
    for (let block = 1; block < this.#end; block++) this.#draw(context, block);
  }

  /** @param {readonly number[]} blocks */
  drawBlocks(blocks) {
    if (this.#size === 0) return;
    if (!this.isWhole && this.#usedEnd() > this.#end) {
      this.drawAll();
      return;
    }
    const context = sizeCanvas(canvas, canvas.clientWidth, canvas.clientHeight);
    for (const block of blocks) if (block < this.#end) this.#draw(context, block);
  }

  /** The pool is filled from the first block on. Rounded up, so that the picture seldom changes its size. */
  #usedEnd() {
    const { cells } = this.state;
    let last = cells.length - 1;
    while (last > 0 && this.state.stateOf(last) === 'free') last--;
    const rounded = 512 * Math.ceil(Math.max(last, 1) / 512) + 1;
    return Math.min(cells.length, Math.max(rounded, this.#end));
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} block
   */
  #draw(context, block) {
    const at = block - 1;
    const x = (at % this.#columns) * this.#size;
    const y = Math.floor(at / this.#columns) * this.#size;
    const isDim = this.group !== undefined && this.state.groupOf(block) !== this.group;
    const isChosen = this.chosen.has(block);
    drawCell(context, { x, y, size: this.#size, state: this.state.stateOf(block), isDim, isChosen }, this.#colours);
  }

  /**
   * @param {MouseEvent} event
   * @returns {number | undefined}
   */
  #blockAt({ offsetX, offsetY }) {
    const column = Math.floor(offsetX / this.#size);
    if (column >= this.#columns) return undefined;
    const block = Math.floor(offsetY / this.#size) * this.#columns + column + 1;
    return block < this.#end ? block : undefined;
  }

  /** @param {number | undefined} block */
  #hover(block) {
    if (block === undefined) {
      hover.textContent = '\u00a0';
      return;
    }
    const group = this.state.groupOf(block);
    const state = /** @type {keyof typeof stateTexts} */ (this.state.stateOf(block));
    hover.textContent = `Block ${block}: ${stateTexts[state]}${group < this.state.pool.groups.length ? `, group ${group}` : ''}`;
  }
}
