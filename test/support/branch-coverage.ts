/**
 * A setup file of Vitest: counts how often each branch of `src/connector` runs in a test file, and writes the counts for
 * `scripts/connector-coverage.ts`. Only with `KVASIR_COVERAGE=folder`. Code that runs on other threads is not counted.
 */
import { randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { type Debugger, Session } from 'node:inspector/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll } from 'vitest';
import type { RunScript } from '../../scripts/branch-coverage/branches.ts';

const folder = process.env.KVASIR_COVERAGE;
const measured = /^src\/connector\/.*(?<!\.(?:test|suite|fuzz))\.ts$/;
const pathOf = (url: string): string => relative(process.cwd(), url.startsWith('file:') ? fileURLToPath(url) : url);

async function measure(into: string): Promise<void> {
  const session = new Session();
  session.connect();
  const scripts = new Map<string, Debugger.ScriptParsedEventDataType>();
  session.on('Debugger.scriptParsed', ({ params }) => {
    if (measured.test(pathOf(params.url))) scripts.set(params.scriptId, params);
  });
  await session.post('Debugger.enable');
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  afterAll(async () => {
    const { result } = await session.post('Profiler.takePreciseCoverage');
    const found: RunScript[] = [];
    for (const { scriptId, url, functions } of result) {
      if (!scripts.has(scriptId)) continue;
      const { scriptSource } = await session.post('Debugger.getScriptSource', { scriptId });
      found.push({ path: pathOf(url), code: scriptSource, functions });
    }
    mkdirSync(into, { recursive: true });
    writeFileSync(join(into, `${randomUUID()}.json`), JSON.stringify(found));
    session.disconnect();
  });
}

if (folder !== undefined) await measure(folder);
