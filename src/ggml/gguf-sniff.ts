import { notGguf } from './errors.ts';
import type { GgufCursor } from './gguf-cursor.ts';

const DOWNLOAD_HINT = 'Download the .gguf file itself.';
const CONVERT_HINT = 'Convert the model to GGUF first.';

/** Formats of files that users often mistake for a GGUF model. */
const textFormats: readonly (readonly [pattern: RegExp, found: string, hint: string])[] = [
  [/^version https:\/\/git-lfs/, 'a Git LFS pointer', 'Fetch the real file with: git lfs pull'],
  [/^\s*<(!doctype|html|\?xml)/i, 'an HTML or XML page', DOWNLOAD_HINT],
  [/^.{8}\{"/s, 'a safetensors file', CONVERT_HINT],
  [/^(lmgg|tjgg|fmgg|algg)/, 'a ggml file in a format older than GGUF', CONVERT_HINT],
  [/^\s*\{/, 'a JSON file', DOWNLOAD_HINT],
];
const binaryFormats: readonly (readonly [hexStart: string, found: string, hint: string])[] = [
  ['504b0304', 'a ZIP archive, possibly a PyTorch checkpoint', CONVERT_HINT],
  ['8002', 'a Python pickle, possibly a PyTorch checkpoint', CONVERT_HINT],
  ['8004', 'a Python pickle, possibly a PyTorch checkpoint', CONVERT_HINT],
  ['1f8b', 'a gzip file', 'Decompress it first.'],
  ['28b52ffd', 'a Zstandard file', 'Decompress it first.'],
];

/** Returns if the file begins like a GGUF file; else throws an error that names the file's format. */
export async function refuseOtherFormats(cursor: GgufCursor): Promise<void> {
  const bytes = Math.min(64, cursor.fileBytes);
  const refuse = (found: string, hint: string): Error =>
    notGguf({ path: cursor.path, found, hint, supported: '2 or 3' });
  if (bytes === 0) throw refuse('empty', DOWNLOAD_HINT);
  await cursor.ensure(bytes, 'the header');
  const start = cursor.peekBytes(bytes).toString('latin1');
  if (start.startsWith('GGUF')) return;
  for (const [pattern, found, hint] of textFormats) {
    if (pattern.test(start)) throw refuse(found, hint);
  }
  const hex = Buffer.from(start.slice(0, 8), 'latin1').toString('hex');
  for (const [hexStart, found, hint] of binaryFormats) {
    if (hex.startsWith(hexStart)) throw refuse(found, hint);
  }
  throw refuse(`something that begins with the bytes ${hex}`, DOWNLOAD_HINT);
}
