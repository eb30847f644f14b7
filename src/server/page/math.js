import { el, isTooDeep } from './dom.js';

/** Formulas between `\(` and `\)`, `\[` and `\]`, or dollars. KaTeX shows them; the page loads KaTeX with the first formula. */

/** A formula ends in its paragraph. A longer one would stop the page at each new token. */
const inner = String.raw`((?:(?!\n[ \t]*\n)[\s\S]){1,4000}?)`;
const blockPattern = new RegExp(String.raw`^ {0,3}(?:\\\[${inner}\\\]|\$\$${inner}\$\$)[ \t]*(?:\n+|$)`);
/** Before and after prices there are spaces or digits, so that `$5 and $10` is no formula. */
const inlinePatterns = [
  { isBlock: false, pattern: new RegExp(String.raw`^\\\(${inner}\\\)`) },
  { isBlock: true, pattern: new RegExp(String.raw`^\\\[${inner}\\\]`) },
  { isBlock: true, pattern: /^\$\$([^$]{1,4000}?)\$\$/ },
  { isBlock: false, pattern: /^\$(?![\s$])((?:\\.|[^$\\\n]){1,4000}?)(?<!\s)\$(?![\d$])/ },
];

/** @typedef {any} Token */

/** An extension of marked: a formula at the beginning of a block. Lists and headings do not cut it. */
export const blockMath = {
  name: 'math',
  level: /** @type {const} */ ('block'),
  tokenizer(/** @type {string} */ source) {
    const [raw, first, second] = blockPattern.exec(source) ?? [];
    return raw === undefined ? undefined : { type: 'math', raw, text: first ?? second ?? '', isBlock: true };
  },
};

/** A formula in a paragraph. A bracket whose formula has no end yet stays as it is. */
export const inlineMath = {
  name: 'inlineMath',
  level: /** @type {const} */ ('inline'),
  start: (/** @type {string} */ source) => /\\[([]|\$/.exec(source)?.index,
  tokenizer(/** @type {string} */ source) {
    for (const { pattern, isBlock } of inlinePatterns) {
      const [raw, text] = pattern.exec(source) ?? [];
      if (raw !== undefined) return { type: 'math', raw, text: text ?? '', isBlock };
    }
    const [raw] = /^\\[([]/.exec(source) ?? [];
    return raw === undefined ? undefined : { type: 'text', raw, text: raw };
  },
};

/** Large sizes and endless macros of a formula could cover or stop the page. */
const limits = { maxSize: 20, maxExpand: 1000, strict: 'ignore' };
/** @type {any} */
let katex;
/** @type {Promise<void> | undefined} */
let loading;

async function load() {
  const style = el('link', { rel: 'stylesheet', href: 'page/katex.css' });
  const isStyled = new Promise((resolve) => style.addEventListener('load', resolve));
  document.head.append(style);
  await Promise.all([import('./katex.js'), isStyled]);
  katex = /** @type {any} */ (globalThis).katex;
}

/** @param {Token} token */
export function mathView({ raw, text, isBlock }) {
  const attributes = isBlock ? { class: 'math scroll', tabindex: '0', role: 'region', 'aria-label': 'Formula' } : {};
  const view = el(isBlock ? 'div' : 'span', attributes, raw.trim());
  const paint = () => {
    try {
      const formula = el('span');
      katex.render(text, formula, { ...limits, displayMode: isBlock });
      if (!isTooDeep(formula)) view.replaceChildren(formula);
    } catch {
      // It is no formula that KaTeX can read: its source stays.
    }
  };
  if (katex !== undefined) paint();
  else {
    loading ??= load();
    loading.then(paint, () => undefined);
  }
  return view;
}
