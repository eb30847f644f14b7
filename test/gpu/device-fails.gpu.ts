/** A GPU that is lost, or has too little memory. `tools/gpu/fail-device.c` makes Vulkan report it. */
import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EngineEvent } from '../../src/engine/contract.ts';
import { createEngine } from '../../src/index.ts';
import { promptOf } from '../support/drive.ts';
import { demoOnGpu, needsGpu, testGpu } from '../support/gpu.ts';
import { needs } from '../support/needs.ts';
import { temporaryFolder } from '../support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
type Engine = Awaited<ReturnType<typeof createEngine>>;

const isVulkanOnLinux = process.platform === 'linux' && testGpu().description.startsWith('Vulkan');
describe('a GPU', { ...needs(isVulkanOnLinux, 'no Vulkan on Linux'), ...needsGpu() }, () => {
  const [library, trigger] = [folder.file('fail-device.so'), folder.file('lose')];
  const events: EngineEvent[] = [];
  const options = {
    ...demoOnGpu(),
    kvCacheMemory: 4 << 20,
    distributedExecutorBackend: 'mp',
    onEvent: (event: EngineEvent): void => void events.push(event),
  } as const;
  const complete = async (engine: Engine, loseAt?: number): Promise<string> => {
    let [text, count] = ['', 0];
    const params = { maxTokens: 12, temperature: 0 };
    for await (const delta of engine.generate({ prompt: promptOf(40, 3, 2000), params })) {
      text += delta.text;
      if (++count === loseAt) writeFileSync(trigger, '');
    }
    return text;
  };

  beforeAll(() => {
    execFileSync(process.env.CC ?? 'cc', ['-O2', '-shared', '-fPIC', '-o', library, 'tools/gpu/fail-device.c']);
    // For the processes that this one starts.
    process.env.LD_PRELOAD = [process.env.LD_PRELOAD, library].filter(Boolean).join(':');
  });

  it('that is lost is a worker process that died: another computes the KV again, and the text is the same', async () => {
    process.env.LOSE_DEVICE = trigger;
    await using engine = await createEngine(options);
    const text = await complete(engine);
    expect(await complete(engine, 4)).toBe(text);
    expect(existsSync(trigger), 'the device was not lost').toBe(false);
    expect(events.map(({ message }) => message)).toContainEqual(
      expect.stringMatching(/died of SIGABRT. It is started again/),
    );
  });

  it('with too little memory says at the start for what, and what to change', async () => {
    const purposes = new Set<string>();
    let buffers = 0;
    for (; ; buffers++) {
      process.env.DEVICE_BUFFERS = `${buffers}`;
      const opened = await createEngine({ ...options, numerics: 'fast' }).catch((error: Error) => error);
      if (!(opened instanceof Error)) {
        await opened.close();
        break;
      }
      // Where ggml allocates memory of its own, it ends the process.
      const [, purpose] = /^Could not allocate .* for (.*) on Vulkan.*Use a smaller /.exec(opened.message) ?? [];
      if (purpose === undefined) expect(opened.message).toMatch(/SIGABRT/);
      else purposes.add(purpose);
    }
    delete process.env.DEVICE_BUFFERS;
    expect([...purposes]).toEqual(['the weights', 'the KV cache', 'a step']);
  });
});
