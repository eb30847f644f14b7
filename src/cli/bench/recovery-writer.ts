import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir } from 'node:fs/promises';
import { text as readText } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { trackChild } from '../../base/child-processes.ts';
import type { Prng } from '../../base/prng.ts';
import type { EngineOptions } from '../../engine/options.ts';
import type { CliContext } from '../context.ts';
import type { OpenMeasuredEngine } from './engine-subject.ts';
import { writerFailed } from './errors.ts';
import type { WriterOrder } from './recovery.ts';

/** The name of the hidden command that a writer's process runs. */
export const writerCommandName = 'recovery-writer';

/** Runs in the writer's own process, until it has saved everything or is killed. */
export async function runWriter(openEngine: OpenMeasuredEngine, context: CliContext): Promise<void> {
  const order = JSON.parse(Buffer.from(await context.readStdin()).toString()) as WriterOrder;
  const { engine } = await openEngine(order.engine);
  try {
    await Promise.all(
      order.requests.map(async (request) => {
        for await (const { finish } of engine.generate(request)) if (finish !== undefined) return;
      }),
    );
  } finally {
    await engine.close();
  }
}

/**
 * Starts a writer in a process of its own and kills it (SIGKILL) when it has stored some of its blocks: how many is drawn.
 * `folder`: its store. A writer that is quicker than we look has stored everything, which is a store as any other.
 */
export async function killWriter(order: WriterOrder, folder: string, prng: Prng, signal: AbortSignal): Promise<void> {
  const program = process.argv[1] ?? '';
  const child = spawn(process.execPath, [program, 'bench', writerCommandName], { stdio: ['pipe', 'ignore', 'pipe'] });
  trackChild(child);
  const kill = (): void => void child.kill('SIGKILL');
  signal.addEventListener('abort', kill, { once: true });
  try {
    child.stdin.on('error', () => {});
    child.stdin.end(JSON.stringify(withoutFunctions(order)));
    const errors = readText(child.stderr);
    const closed = once(child, 'close') as Promise<[number | null]>;
    let isOver = false;
    void closed.then(() => (isOver = true));
    const enough = prng.between(1, 24);
    await mkdir(folder, { recursive: true });
    while (!isOver && (await storedIn(folder)) < enough) await sleep(2);
    kill();
    const [code] = await closed;
    if (code !== null && code !== 0) throw writerFailed({ reason: (await errors).trim() || `exit code ${code}` });
  } finally {
    signal.removeEventListener('abort', kill);
    kill();
  }
}

async function storedIn(folder: string): Promise<number> {
  return (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.kv')).length;
}

/** Progress and notices are for this process. */
function withoutFunctions({ engine, requests }: WriterOrder): WriterOrder {
  const plain = Object.entries(engine).filter(([, value]) => typeof value !== 'function');
  return { engine: Object.fromEntries(plain) as unknown as EngineOptions, requests };
}
