import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import { Server } from '../../src/server/server.ts';
import { LetterEngine } from '../support/letter-engine.ts';
import { describeInLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';

/** Ollama's own client for Go, with a model that needs no file. tools/compat/run.py runs it with a real one. */
const program = 'tools/compat/clients/ollama_go';
/** Without the network: `go mod download` in the folder of the program fetches what it needs. */
const offline = { ...process.env, GOFLAGS: '-mod=mod', GOPROXY: 'off' };

describeInLongForm('Ollama’s client for Go', () => {
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-go-'));
  const built = join(folder, 'client');
  const { status } = spawnSync('go', ['build', '-o', built, '.'], { cwd: program, env: offline });
  const cleanups: (() => unknown)[] = [() => rmSync(folder, { recursive: true })];
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  });

  it('gets what it expects', needs(status === 0, 'no Go, or no Ollama in its cache of modules'), async () => {
    const answer = '{"name":"Ann","age":7}';
    const engine = new LetterEngine({ answer, pooling: 'mean', maxModelLen: 5000 });
    // The facts of its file are those of the bundled model.
    Object.assign(engine.model, { path: 'models/kvasir-demo.gguf' });
    const server = new Server(engine, { version: '0.0.0', logLevel: 'silent' });
    cleanups.push(() => server.app.close());
    const url = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
    const env = { ...process.env, COMPAT_URL: url, COMPAT_MODEL: engine.model.name };
    const { stdout } = await promisify(execFile)(built, { env });
    const outcomes = stdout.trimEnd().split('\n');
    const features = readFileSync(join(program, 'main.go'), 'utf8').match(/\{"[a-z _]+", [a-zA-Z]+\}/g)!;
    expect(outcomes.filter((line) => !line.endsWith('"works":true}'))).toEqual([]);
    expect(outcomes).toHaveLength(features.length);
  });
});
