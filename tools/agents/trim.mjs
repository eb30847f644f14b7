/**
 * Makes a recording small and neutral: fields, their order, roles, types and the places of texts stay, and the words of the programs, paths, ids and
 * times do not. Equal texts stay equal, so that a second request still starts as the first one.
 */

/** Strings with these keys are words for the model. */
const textKeys = new Set(['text', 'content', 'output', 'description', 'instructions', 'title', 'input']);
/** Long lists of tools say nothing more than short ones. */
const otherToolsMax = 4;
/** The question, the answers and the files of `record.mjs`. */
const ownWords = /^\s*(?:What is in|Both files|I read both|The files have|Print |one\s*$|two\s*$|x-anthropic-billing-header:)/;

/** `places` are pairs of a path or address and the one that stands for it. */
export function trimRequests(recording, places) {
  const trim = new Trimmer(places);
  const called = new Set(recording.answer.calls);
  const requests = recording.requests.map(({ path, body }) => {
    const tools = body.tools === undefined ? {} : { tools: fewTools(body.tools, called) };
    return { path, body: trim.value({ ...body, ...tools }) };
  });
  return { ...recording, requests };
}

/** The called tools, and others of as many kinds as there are. */
function fewTools(tools, called) {
  const kinds = new Map();
  for (const tool of tools) {
    const { name, parameters, input_schema: schema = parameters } = tool.function ?? tool;
    const kind = `${tool.type} ${Object.keys(schema?.properties ?? {}).length === 0} ${Object.keys(tool)}`;
    if (!called.has(name) && kinds.size < otherToolsMax && !kinds.has(kind)) kinds.set(kind, tool);
  }
  const others = new Set(kinds.values());
  return tools.filter((tool) => called.has((tool.function ?? tool).name) || others.has(tool));
}

class Trimmer {
  #places;
  #texts = new Map();
  #ids = new Map();

  constructor(places) {
    this.#places = places;
  }

  value(value, key = '') {
    if (Array.isArray(value)) return value.map((each) => this.value(each, key));
    if (typeof value === 'object' && value !== null)
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, this.value(each, name)]));
    if (typeof value !== 'string') return value;
    const placed = this.#places.reduce((text, [from, to]) => text.replaceAll(from, to), value);
    return this.#withoutIds(textKeys.has(key) && !(placed.length < 80 && ownWords.test(placed)) ? this.#text(placed) : withoutTimes(placed));
  }

  /** Another text with the same white space at its ends and the same tags around it. */
  #text(text) {
    const [, before, tag, after] = /^(\s*)(?:<([\w-]+(?: [\w-]+)?)>[\s\S]*<\/\2>)?[\s\S]*?(\s*)$/.exec(text);
    if (text.trim() === '') return text;
    const known = this.#texts.get(text) ?? this.#texts.size + 1;
    this.#texts.set(text, known);
    const words = `Text ${known}.`;
    return `${before}${tag === undefined ? words : `<${tag}>\n${words}\n</${tag}>`}${after}`;
  }

  #withoutIds(text) {
    return text.replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{24,64}/g, (id) => {
      const known = this.#ids.get(id) ?? this.#ids.size + 1;
      this.#ids.set(id, known);
      let digits = String(known).padStart(id.replaceAll('-', '').length, '0');
      return id.replace(/[0-9a-f]/g, () => {
        const [digit] = digits;
        digits = digits.slice(1);
        return digit;
      });
    });
  }
}

const withoutTimes = (text) => text.replace(/\b1[0-9]{12}\b/g, '1700000000000').replace(/\b20[0-9]{2}-[01][0-9]-[0-3][0-9]\b/g, '2026-01-01');
