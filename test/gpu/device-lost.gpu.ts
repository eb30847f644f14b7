/** A lost device ends the process of its worker, as Vulkan's other errors do. The engine starts another. */
import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import type { EngineEvent } from '../../src/engine/contract.ts';
import { createEngine } from '../../src/index.ts';
import { promptOf } from '../support/drive.ts';
import { demoOnGpu, needGpu, testGpu } from '../support/gpu.ts';
import { testsNeed } from '../support/needs.ts';
import { temporaryFolder } from '../support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

describe('a lost device', () => {
  needGpu();
  testsNeed(process.platform === 'linux' && testGpu().description.startsWith('Vulkan'), 'no Vulkan on Linux');

  it('is a worker process that died: another computes the KV again, and the text is the same', async () => {
    const [library, trigger] = [folder.file('lose-device.so'), folder.file('lose')];
    execFileSync(process.env.CC ?? 'cc', ['-O2', '-shared', '-fPIC', '-o', library, 'tools/gpu/lose-device.c']);
    // For the processes that this one starts.
    process.env.LD_PRELOAD = [process.env.LD_PRELOAD, library].filter(Boolean).join(':');
    process.env.LOSE_DEVICE = trigger;
    const events: EngineEvent[] = [];
    await using engine = await createEngine({
      ...demoOnGpu(),
      kvCacheMemory: 4 << 20,
      distributedExecutorBackend: 'mp',
      onEvent: (event) => events.push(event),
    });
    const complete = async (loseAt?: number): Promise<string> => {
      let [text, count] = ['', 0];
      const params = { maxTokens: 12, temperature: 0 };
      for await (const delta of engine.generate({ prompt: promptOf(40, 3, 2000), params })) {
        text += delta.text;
        if (++count === loseAt) writeFileSync(trigger, '');
      }
      return text;
    };
    const text = await complete();
    expect(await complete(4)).toBe(text);
    expect(existsSync(trigger), 'the device was not lost').toBe(false);
    expect(events.map(({ message }) => message)).toContainEqual(
      expect.stringMatching(/died of SIGABRT. It is started again/),
    );
  });
});
