/** How a block looks: a colour for each state, and a mark for people who do not see the colours apart. */
import { el } from './dom.js';

export const stateTexts = {
  free: 'free',
  cached: 'cached',
  referenced: 'referenced',
  loading: 'loading',
  invalid: 'invalid',
  recomputed: 'recomputed',
};

const coloured = [...Object.keys(stateTexts), 'mark', 'queued', 'prefill', 'decode', 'recovering'];

/** @returns {Record<string, string>} The colours of the theme. A canvas does not read `light-dark`, and a style resolves it. */
export function colours() {
  const probe = document.body.appendChild(document.createElement('i'));
  const resolved = coloured.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  });
  probe.remove();
  return Object.fromEntries(resolved);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{ x: number, y: number, size: number, state: string, isDim?: boolean, isChosen?: boolean }} cell
 * @param {Record<string, string>} colour
 */
export function drawCell(context, { x, y, size, state, isDim = false, isChosen = false }, colour) {
  const gap = size >= 5 ? 1 : 0;
  const side = size - gap;
  context.clearRect(x, y, size, size);
  context.globalAlpha = isDim ? 0.2 : 1;
  context.fillStyle = /** @type {string} */ (colour[state]);
  context.fillRect(x, y, side, side);
  if (size >= 8) drawMark(context, { x, y, side, state }, /** @type {string} */ (colour.mark));
  context.globalAlpha = 1;
  if (!isChosen) return;
  context.strokeStyle = /** @type {string} */ (colour.invalid);
  context.lineWidth = 2;
  context.strokeRect(x + 1, y + 1, side - 2, side - 2);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{ x: number, y: number, side: number, state: string }} cell
 * @param {string} colour
 */
function drawMark(context, { x, y, side, state }, colour) {
  const inset = side * 0.28;
  context.fillStyle = colour;
  context.strokeStyle = colour;
  context.lineWidth = Math.max(1, side / 8);
  context.beginPath();
  if (state === 'invalid') {
    context.moveTo(x + inset, y + inset);
    context.lineTo(x + side - inset, y + side - inset);
    context.moveTo(x + side - inset, y + inset);
    context.lineTo(x + inset, y + side - inset);
    context.stroke();
  } else if (state === 'recomputed') {
    context.moveTo(x + inset, y + side * 0.55);
    context.lineTo(x + side * 0.44, y + side - inset);
    context.lineTo(x + side - inset, y + inset);
    context.stroke();
  } else if (state === 'loading') {
    context.arc(x + side / 2, y + side / 2, side / 6, 0, 2 * Math.PI);
    context.fill();
  }
}

/**
 * Sets the size of a canvas for the screen's pixels. Returns its context, in CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
export function sizeCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/**
 * @param {readonly (readonly [name: string, text: string])[]} entries
 * @returns {HTMLLIElement[]}
 */
export const legendOf = (entries) =>
  entries.map(([name, text]) => el('li', {}, el('span', { class: `swatch ${name}`, 'aria-hidden': 'true' }), text));
