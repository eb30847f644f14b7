import { spawnSync } from 'node:child_process';
import { mkdtempSync, openSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { loadNative, type VocabPtr } from './ffi.ts';
import { NativeThread } from './native-thread.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-thread-'));
afterAll(() => rmSync(root, { recursive: true }));
const built = (path: string): string => fileURLToPath(new URL(`../../dist/src/${path}`, import.meta.url));

describe('a native thread', () => {
  it('calls the functions of the table, in order, with the memory of this thread', async () => {
    const native = loadNative();
    const thread = new NativeThread(native, 'test');
    const floats = Float32Array.of(1, -2, 0.5, 65_504);
    const f16s = new Uint16Array(4);
    const back = new Float32Array(4);
    const [, , version] = await Promise.all([
      thread.call('ggml_fp32_to_fp16_row', floats, f16s, 4),
      thread.call('ggml_fp16_to_fp32_row', f16s, back, 4),
      thread.call('ggml_version'),
    ]);
    expect(back).toEqual(floats);
    expect(version).toBe(native.ggml_version());
    await thread.close();
    await expect(thread.call('ggml_version')).rejects.toThrow('closed');
  });

  it('serves the next owner after a close, and the closed owner no longer', async () => {
    const first = new NativeThread(loadNative(), 'reused');
    const open = first.call('ggml_type_size', 0);
    await first.close();
    expect(await open).toBe(4);
    const startThread = vi.fn();
    process.on('worker', startThread);
    const second = new NativeThread(loadNative(), 'reused');
    expect(await second.call('ggml_type_size', 0)).toBe(4);
    process.off('worker', startThread);
    expect(startThread).not.toHaveBeenCalled();
    await expect(first.call('ggml_version')).rejects.toThrow('closed');
    await second.close();
  });

  it('logs of the libraries are in `recentLog` of the main thread', async () => {
    const native = loadNative();
    const thread = new NativeThread(native, 'test');
    await thread.call('ggml_backend_load', join(root, 'no-such-library.so'));
    expect(native.recentLog().join('\n')).toContain('no-such-library.so');
    await thread.close();
  });

  it('rejects a call with wrong arguments, and runs the next call', async () => {
    const thread = new NativeThread(loadNative(), 'test');
    await expect(thread.call('llama_vocab_n_tokens', 'no pointer' as unknown as VocabPtr)).rejects.toThrow();
    expect(await thread.call('ggml_type_size', 0)).toBe(4);
    await thread.close();
  });

  it('computes while all threads of libuv are stuck in file calls', async () => {
    const thread = new NativeThread(loadNative(), 'test');
    await thread.started();
    const fifo = join(root, 'fifo');
    spawnSync('mkfifo', [fifo]);
    const stuck = Array.from({ length: 8 }, () => open(fifo, 'r'));
    expect(await thread.call('ggml_type_size', 0)).toBe(4);
    await thread.close();
    // With a writer, the open calls of the readers return.
    openSync(fifo, 'r+');
    for (const handle of await Promise.all(stuck)) await handle.close();
  });

  it('keeps the process running only while it computes', () => {
    const script = `
      import { loadNative } from ${JSON.stringify(built('ggml/ffi.js'))};
      import { NativeThread } from ${JSON.stringify(built('ggml/native-thread.js'))};
      const thread = new NativeThread(loadNative(), 'test');
      thread.call('ggml_type_size', 0).then((size) => console.log(size));
    `;
    const { status, stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
    expect([status, stdout]).toEqual([0, '4\n']);
  });
});
