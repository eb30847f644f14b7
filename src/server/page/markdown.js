import { codeView } from './code.js';
import { el, isTooDeep } from './dom.js';
import { marked } from './marked.js';
import { blockMath, inlineMath, mathView } from './math.js';

marked.use({ extensions: [blockMath, inlineMath] });

/**
 * Shows Markdown as DOM nodes. Texts become text nodes and HTML in the Markdown stays visible as text, so an answer cannot become
 * markup or script. Links lead only to web and mail addresses; images are links, because the page loads nothing from other hosts.
 */
export class MarkdownView {
  /** @param {HTMLElement} parent */
  constructor(parent) {
    this.parent = parent;
    /** @type {{ raw: string, node: Node }[]} */
    this.shown = [];
  }

  /**
   * Replaces only the blocks that have changed, so that a selection in an earlier block stays while the text grows.
   * @param {string} text
   */
  show(text) {
    /** @type {Token[]} */
    const tokens = tokensOf(text);
    let same = 0;
    while (same < tokens.length && same < this.shown.length && tokens[same].raw === this.shown[same]?.raw) same++;
    for (const { node } of this.shown.splice(same)) this.parent.removeChild(node);
    for (const token of tokens.slice(same)) {
      const built = block(token);
      const node = isTooDeep(built) ? el('p', {}, token.raw) : built;
      // Each paragraph, list and table by its own first letter.
      if (node instanceof HTMLElement) node.dir = 'auto';
      this.parent.append(node);
      this.shown.push({ raw: token.raw, node });
    }
  }
}

/** @typedef {any} Token A token of marked: `type`, `raw`, and fields that depend on the type. */

/**
 * @param {Token} token
 * @returns {Node}
 */
function block(token) {
  switch (token.type) {
    case 'heading':
      // In a quotation or a list, it is no part of the answer's outline.
      if (token.level === undefined) return el('p', {}, el('strong', {}, ...inlines(token.tokens)));
      return el(/** @type {'h3'} */ (`h${token.level}`), {}, ...inlines(token.tokens));
    case 'paragraph':
      return el('p', {}, ...inlines(token.tokens));
    case 'code':
      return codeView(token.text, String(token.lang ?? ''));
    case 'math':
      return mathView(token);
    case 'blockquote':
      return el('blockquote', {}, ...token.tokens.filter(isShown).map(block));
    case 'list':
      return list(token);
    case 'hr':
      return el('hr');
    case 'table':
      return table(token);
    case 'text':
      return token.tokens === undefined ? text(token) : el('span', {}, ...inlines(token.tokens));
    default:
      return el('p', {}, token.raw);
  }
}

/**
 * @param {string} text
 * @returns {Token[]}
 */
function tokensOf(text) {
  try {
    const tokens = marked.lexer(text).filter(isShown);
    setLevels(tokens);
    return tokens;
  } catch {
    // Nested so deep that the stack has no room: the text itself.
    return [{ type: 'paragraph', raw: text, tokens: [{ type: 'text', raw: text }] }];
  }
}

/**
 * The page has h1 and h2 of its own. An answer may begin with any level and leave out others, and readers of headings expect each.
 * @param {Token[]} tokens
 */
function setLevels(tokens) {
  let last = 2;
  for (const token of tokens.filter(({ type }) => type === 'heading')) {
    token.level = Math.min(token.depth + 2, last + 1, 6);
    last = token.level;
  }
}

/** @param {Token} token */
const isShown = ({ type }) => type !== 'space' && type !== 'def';

/** @param {Token} token */
function list(token) {
  const items = token.items.map((/** @type {Token} */ item) => {
    const children = item.tokens
      .filter(isShown)
      .filter((/** @type {Token} */ { type }) => type !== 'checkbox')
      .map(block);
    return el('li', {}, ...(item.task ? [item.checked ? '☑ ' : '☐ '] : []), ...children);
  });
  const isFromOne = token.start === '' || token.start === 1;
  return token.ordered ? el('ol', isFromOne ? {} : { start: String(token.start) }, ...items) : el('ul', {}, ...items);
}

/** @param {Token} token */
function table(token) {
  /**
   * @param {'th' | 'td'} tag
   * @param {Token[]} cells
   */
  const row = (tag, cells) =>
    el(
      'tr',
      {},
      ...cells.map((cell) => el(tag, cell.align ? { class: `to-${cell.align}` } : {}, ...inlines(cell.tokens))),
    );
  const rows = token.rows.map((/** @type {Token[]} */ cells) => row('td', cells));
  const whole = el('table', {}, el('thead', {}, row('th', token.header)), el('tbody', {}, ...rows));
  return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Table' }, whole);
}

/**
 * @param {Token[]} tokens
 * @returns {Node[]}
 */
const inlines = (tokens) => tokens.map(inline);

/**
 * @param {Token} token
 * @returns {Node}
 */
function inline(token) {
  switch (token.type) {
    case 'strong':
    case 'em':
    case 'del':
      return el(/** @type {'em'} */ (token.type), {}, ...inlines(token.tokens));
    case 'codespan':
      return el('code', {}, token.text);
    case 'br':
      return el('br');
    case 'link':
      return link(token.href, inlines(token.tokens));
    case 'image':
      return link(token.href, [document.createTextNode(`Image: ${token.text || token.href}`)]);
    case 'text':
      return token.tokens === undefined ? text(token) : el('span', {}, ...inlines(token.tokens));
    case 'math':
      return mathView(token);
    case 'escape':
      return document.createTextNode(token.text);
    default:
      return document.createTextNode(token.raw);
  }
}

/** @type {Record<string, string>} */
const entities = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'", nbsp: '\u00a0' };

/** @param {Token} token */
const text = (token) =>
  document.createTextNode(
    token.raw.replace(
      /&(amp|lt|gt|quot|#39|nbsp);/g,
      (/** @type {string} */ _, /** @type {string} */ name) => entities[name],
    ),
  );

/**
 * @param {string} href
 * @param {Node[]} children
 */
function link(href, children) {
  return isSafe(href)
    ? el('a', { href, target: '_blank', rel: 'noopener noreferrer' }, ...children)
    : el('span', {}, ...children);
}

/** @param {string} href */
function isSafe(href) {
  try {
    return ['http:', 'https:', 'mailto:'].includes(new URL(href).protocol);
  } catch {
    return false;
  }
}
