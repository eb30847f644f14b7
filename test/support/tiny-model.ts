import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export { isHybrid, smallStates, tinyHybrid } from '../../bench/make-model/hybrid-models.ts';
export { type ModelOptions, writeTinyModel } from '../../bench/make-model/model-maker.ts';

/** A folder for the files of one test file; call `remove` at the end. */
export function temporaryFolder(): { readonly path: string; file(name: string): string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), 'kvasir-test-'));
  return { path, file: (name) => join(path, name), remove: () => rmSync(path, { recursive: true, force: true }) };
}
