/**
 * Names that an ELF library takes from the process that loads it. A library without a C library of its own may take only
 * those that every process has, so the build checks them.
 */
import { assert } from '../../src/base/assert.ts';

const sectionOfDynamicSymbols = 11;
const symbolBytes = 24;

/** Of a 64-bit little-endian ELF file: the names of its undefined dynamic symbols. */
export function undefinedSymbolsOf(library: Buffer): string[] {
  assert(library.readUInt32BE(0) === 0x7f454c46 && library[4] === 2 && library[5] === 1, 'the library is 64-bit ELF');
  const at = Number(library.readBigUInt64LE(40));
  const [size, count] = [library.readUInt16LE(58), library.readUInt16LE(60)];
  const sections = Array.from({ length: count }, (_, i) => library.subarray(at + i * size, at + (i + 1) * size));
  const symbols = sections.find((section) => section.readUInt32LE(4) === sectionOfDynamicSymbols);
  if (symbols === undefined) return [];
  const names = contentOf(library, sections[symbols.readUInt32LE(40)]!);
  const table = contentOf(library, symbols);
  const found: string[] = [];
  // The first symbol has no name.
  for (let i = symbolBytes; i < table.length; i += symbolBytes) {
    const isUndefined = table.readUInt16LE(i + 6) === 0;
    const name = table.readUInt32LE(i);
    if (isUndefined) found.push(names.toString('latin1', name, names.indexOf(0, name)));
  }
  return found;
}

function contentOf(library: Buffer, section: Buffer): Buffer {
  const [offset, bytes] = [24, 32].map((at) => Number(section.readBigUInt64LE(at))) as [number, number];
  return library.subarray(offset, offset + bytes);
}
