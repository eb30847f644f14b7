/** As many as the server takes in one request. */
const BLOCKS_MAX = 4096;

/**
 * Blocks that a person has written, and what is wrong with the text. The server knows which blocks there are.
 * @param {string} text Numbers and ranges: `3, 8-11`.
 * @returns {{ blocks: number[], problem?: string }}
 */
export function parseBlocks(text) {
  /** @type {Set<number>} */
  const blocks = new Set();
  const parts = text.replace(/\s*[-–]\s*/g, '-').split(/[\s,;]+/);
  for (const part of parts.filter((part) => part !== '')) {
    const [, first, end = first] = /^(\d+)(?:-(\d+))?$/.exec(part) ?? [];
    /** @param {string} problem */
    const wrong = (problem) => ({ blocks: [...blocks], problem });
    if (first === undefined) return wrong(`"${part}" is no block. Write numbers and ranges, such as 3, 8-11.`);
    if (Number(first) > Number(end)) return wrong(`The range ${part} ends before it begins.`);
    if (Number(end) - Number(first) >= BLOCKS_MAX - blocks.size)
      return wrong(`At most ${BLOCKS_MAX.toLocaleString('en')} blocks can be lost at a time.`);
    for (let block = Number(first); block <= Number(end); block++) blocks.add(block);
  }
  return { blocks: [...blocks] };
}
