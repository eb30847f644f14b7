/**
 * A setup file of Vitest: counts how often each branch of `src/connector` runs in a test file, and writes the counts for
 * `scripts/connector-coverage.ts`. Only with `KVASIR_COVERAGE=folder`. Code that runs on other threads is not counted.
 */
import { randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll } from 'vitest';
import type { RunScript } from '../../scripts/branch-coverage/branches.ts';
import { coverageSession } from './coverage-session.ts';

const folder = process.env.KVASIR_COVERAGE;
const measured = /^dist\/src\/connector\/.*\.js$/;
const pathOf = (url: string): string => relative(process.cwd(), url.startsWith('file:') ? fileURLToPath(url) : url);

async function measure(into: string): Promise<void> {
  const session = await coverageSession((url) => measured.test(pathOf(url)));
  afterAll(async () => {
    const scripts = await session.take();
    const found: RunScript[] = scripts.map(({ url, ...script }) => ({ path: pathOf(url), ...script }));
    mkdirSync(into, { recursive: true });
    writeFileSync(join(into, `${randomUUID()}.json`), JSON.stringify(found));
  });
}

if (folder !== undefined) await measure(folder);
