/** Reads libraries of macOS (Mach-O, 64 bit, one architecture), without a Mac. */
import { readFileSync } from 'node:fs';

export interface MachLibrary {
  readonly arch: 'arm64' | 'x64' | 'other';
  /** The name under which others load it, such as `@rpath/libggml.dylib`. */
  readonly id?: string;
  /** The libraries that it loads. */
  readonly loads: readonly string[];
  /** Where `@rpath` is searched. */
  readonly runPaths: readonly string[];
  /** The oldest macOS, such as 14.0. */
  readonly oldestSystem?: string;
  /** Functions and data that it exports, without the `_` that C's names have. */
  readonly exports: ReadonlySet<string>;
}

const magic = 0xfeedfacf;
const architectures: Readonly<Record<number, MachLibrary['arch']>> = { 16777228: 'arm64', 16777223: 'x64' };
const command = {
  loadDylib: 0xc,
  idDylib: 0xd,
  loadWeakDylib: 0x80000018,
  reexportDylib: 0x8000001f,
  runPath: 0x8000001c,
  symbols: 2,
  versionMin: 0x24,
  buildVersion: 0x32,
} as const;
/** Of a symbol's type: it is visible to others, and has a section or an address. */
const [external, typeMask, stab] = [1, 0x0e, 0xe0];

/** Throws if the file is no such library. */
export function readMachO(path: string): MachLibrary {
  const file = readFileSync(path);
  if (file.readUInt32LE(0) !== magic) throw new Error(`${path} is not a library of macOS for one architecture`);
  const [loads, runPaths]: [string[], string[]] = [[], []];
  let [id, oldestSystem]: (string | undefined)[] = [];
  let exports: ReadonlySet<string> = new Set();
  const version = (at: number): string => `${file.readUInt16LE(at + 2)}.${file.readUInt8(at + 1)}`;
  for (let i = 0, at = 32; i < file.readUInt32LE(16); i++, at += file.readUInt32LE(at + 4)) {
    // A text is at an offset from its command.
    const text = (): string => textAt(file, at + file.readUInt32LE(at + 8));
    switch (file.readUInt32LE(at)) {
      case command.idDylib:
        id = text();
        break;
      case command.loadDylib:
      case command.loadWeakDylib:
      case command.reexportDylib:
        loads.push(text());
        break;
      case command.runPath:
        runPaths.push(text());
        break;
      case command.symbols:
        exports = exportsIn(file, at);
        break;
      case command.versionMin:
        oldestSystem = version(at + 8);
        break;
      case command.buildVersion:
        oldestSystem = version(at + 12);
        break;
    }
  }
  return {
    arch: architectures[file.readUInt32LE(4)] ?? 'other',
    ...(id === undefined ? {} : { id }),
    loads,
    runPaths,
    ...(oldestSystem === undefined ? {} : { oldestSystem }),
    exports,
  };
}

function exportsIn(file: Buffer, at: number): Set<string> {
  const [symbols, count, texts] = [8, 12, 16].map((offset) => file.readUInt32LE(at + offset)) as [
    number,
    number,
    number,
  ];
  const found = new Set<string>();
  for (let i = 0; i < count; i++) {
    const entry = symbols + i * 16;
    const type = file.readUInt8(entry + 4);
    if ((type & stab) !== 0 || (type & external) === 0 || (type & typeMask) === 0) continue;
    found.add(textAt(file, texts + file.readUInt32LE(entry)).replace(/^_/, ''));
  }
  return found;
}

const textAt = (file: Buffer, at: number): string => file.toString('utf8', at, file.indexOf(0, at));
