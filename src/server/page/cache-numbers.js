import { byId, el } from './dom.js';

/** @typedef {import('./cache-state.js').CacheState} CacheState */

/** @param {number | undefined} bytes */
function bytesText(bytes) {
  if (bytes === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  let value = bytes;
  for (; value >= 1024 && at < units.length - 1; at++) value /= 1024;
  return `${value < 10 && at > 0 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

/**
 * @param {number} part
 * @param {number} whole
 */
const percent = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : '–');

/** @param {number} count */
const number = (count) => count.toLocaleString('en');

/** @param {CacheState} state */
export function showTiles({ parts, pool }) {
  const totals = parts.get('totals');
  if (totals === undefined) return;
  const { blocks } = totals;
  const hasTiers = (parts.get('tiers') ?? []).length > 0;
  const inPool = totals.cachedTokens - totals.externalTokens;
  /** @type {[string, string, string][]} */
  const tiles = [
    ['Requests', `${totals.running}`, `${totals.waiting} waiting`],
    [
      'Blocks in use',
      number(blocks.referenced),
      `of ${number(blocks.total)}, ${bytesText(blocks.total * pool.blockBytes)}`,
    ],
    ['Pool hit rate', percent(inPool, totals.promptTokens), `of ${number(totals.promptTokens)} prompt tokens`],
    [
      'Tier hit rate',
      hasTiers ? percent(totals.externalTokens, totals.promptTokens) : '–',
      hasTiers ? `of ${number(totals.promptTokens)} prompt tokens` : 'no tiers',
    ],
    ['Recoveries', number(totals.recoveries), `${number(totals.affectedTokens)} tokens in lost blocks`],
    [
      'Computed again',
      number(totals.recomputedTokens),
      `of ${number(totals.promptTokens + totals.generatedTokens)} tokens`,
    ],
  ];
  byId('tiles', HTMLElement).replaceChildren(
    ...tiles.map(([name, value, hint]) =>
      el('div', { class: 'tile' }, el('dt', {}, name), el('dd', {}, value), el('dd', { class: 'hint' }, hint)),
    ),
  );
}

/** @param {CacheState} state */
export function showTiers({ parts }) {
  const tiers = parts.get('tiers') ?? [];
  const element = byId('tiers', HTMLElement);
  if (tiers.length === 0) {
    element.replaceChildren(
      el(
        'p',
        { class: 'hint' },
        'This server has no tiers. Start it with ',
        el('code', {}, '--kv-offloading-size 8'),
        ' to keep KV in host memory.',
      ),
    );
    return;
  }
  const total = tiers.reduce((/** @type {number} */ sum, /** @type {any} */ { loads }) => sum + loads.blocks, 0);
  const totals = parts.get('totals');
  const head = [
    ...['Tier', 'Holds', 'Blocks', 'Pinned', 'Hit rate', 'Loaded', 'Share of loads', 'Failed loads', 'Stored'],
    ...['Evicted', 'Circuit breakers'],
  ];
  const rows = tiers.map((/** @type {any} */ tier) => {
    const { name, loads, stores, storedBytes, storedBlocks, maxBytes, pinnedBlocks, evicted, openBreakers } = tier;
    const failed = Object.entries(loads.failures).map(([reason, count]) => `${count} ${reason}`);
    const breakers = openBreakers.length === 0 ? 'closed' : `open: ${openBreakers.join(', ')}`;
    const cells = [
      maxBytes === undefined ? bytesText(storedBytes) : `${bytesText(storedBytes)} of ${bytesText(maxBytes)}`,
      storedBlocks === undefined ? '–' : number(storedBlocks),
      number(pinnedBlocks),
      // Of prompt tokens. Loads are counted in blocks, so each tier has its share of the tokens that all tiers gave.
      totals === undefined || total === 0
        ? '–'
        : percent((totals.externalTokens * loads.blocks) / total, totals.promptTokens),
      `${number(loads.blocks)} blocks, ${bytesText(loads.bytes)}`,
      percent(loads.blocks, total),
      failed.length === 0 ? 'none' : failed.join(', '),
      `${number(stores.blocks)} blocks, ${bytesText(stores.bytes)}`,
      number(evicted),
    ];
    const breakerCell = el(
      'td',
      {},
      el('span', { class: openBreakers.length === 0 ? 'badge ok' : 'badge invalid' }, breakers),
    );
    return el('tr', {}, el('th', { scope: 'row' }, name), ...cells.map((text) => el('td', {}, text)), breakerCell);
  });
  element.replaceChildren(
    el(
      'table',
      {},
      el('thead', {}, el('tr', {}, ...head.map((text) => el('th', { scope: 'col' }, text)))),
      el('tbody', {}, ...rows),
    ),
  );
}

/**
 * The counts of blocks as a table, and as the text of the picture.
 * @param {CacheState} state
 */
export function showCounts(state) {
  const rows = state.counts();
  const totals = state.states.map((_, i) => rows.reduce((sum, { counts }) => sum + (counts[i] ?? 0), 0));
  const text = state.states.map((name, i) => `${totals[i]} ${name}`).join(', ');
  byId('pool', HTMLCanvasElement).setAttribute('aria-label', `Blocks of the pool: ${text}`);
  state.states.forEach((name, i) => {
    const count = document.querySelector(`#legend [data-state="${name}"]`);
    if (count !== null) count.textContent = number(totals[i] ?? 0);
  });
  if (!(/** @type {HTMLDetailsElement} */ (byId('pool-table', HTMLElement).parentElement).open)) return;
  byId('pool-table', HTMLElement).replaceChildren(
    el(
      'table',
      {},
      el('thead', {}, el('tr', {}, ...['Group', ...state.states].map((name) => el('th', { scope: 'col' }, name)))),
      el(
        'tbody',
        {},
        ...rows.map(({ name, counts }) =>
          el('tr', {}, el('th', { scope: 'row' }, name), ...counts.map((count) => el('td', {}, number(count)))),
        ),
      ),
    ),
  );
}
