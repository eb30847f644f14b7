import { copyButton, el } from './dom.js';

/** Of longer texts, each new token would cost too much. */
const HIGHLIGHTED_CHARS_MAX = 30_000;
/** @type {typeof import('./highlight.js').default | undefined} */
let highlighter;
/** @type {Promise<void> | undefined} */
let loading;

async function load() {
  highlighter = (await import('./highlight.js')).default;
}

/**
 * Code with its language and a button. highlight.js colours languages that it knows; the page loads it with the first code.
 * @param {string} text
 * @param {string} info The words after the fence.
 */
export function codeView(text, info) {
  const language = info.split(/\s/, 1)[0] ?? '';
  const head = el(
    'div',
    { class: 'code-head' },
    el('span', {}, language || 'code'),
    copyButton('Copy code', () => text),
  );
  const code = el('code', {}, text);
  const paint = () => {
    try {
      if (highlighter?.getLanguage(language) === undefined) return;
      const { value } = highlighter.highlight(text, { language, ignoreIllegals: true });
      code.replaceChildren(...coloured(value));
    } catch {
      // Without colours, it is the same code.
    }
  };
  if (language !== '' && text.length <= HIGHLIGHTED_CHARS_MAX) {
    if (highlighter !== undefined) paint();
    else {
      loading ??= load();
      loading.then(paint, () => undefined);
    }
  }
  const label = language === '' ? 'Code' : `Code in ${language}`;
  return el('div', { class: 'code' }, head, el('pre', { tabindex: '0', role: 'region', 'aria-label': label }, code));
}

/** @type {Record<string, string>} */
const entities = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#x27;': "'" };

/**
 * The nodes of highlight.js's result: texts, and spans with a class. The page parses no HTML.
 * @param {string} html
 */
function coloured(html) {
  const top = document.createDocumentFragment();
  /** @type {Node[]} */
  const open = [top];
  for (const [piece, name] of html.matchAll(/<span class="([^"]*)">|<\/span>|[^<]+/g)) {
    const parent = open.at(-1) ?? top;
    if (name !== undefined) open.push(parent.appendChild(el('span', { class: name })));
    else if (piece === '</span>') open.pop();
    else
      parent.appendChild(document.createTextNode(piece.replace(/&[#\w]+;/g, (entity) => entities[entity] ?? entity)));
  }
  return top.childNodes;
}
