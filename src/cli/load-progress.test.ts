import { describe, expect, it } from 'vitest';
import { downloadProgress, loadProgress } from './load-progress.ts';

const GIB = 1024 ** 3;

function shown(isTTY: boolean, totalBytes: number, parts: number): string[] {
  const written: string[] = [];
  const { onProgress: progress } = loadProgress('/models/m.gguf', { isTTY, write: (text) => written.push(text) });
  for (let part = 0; part <= parts; part++) progress((totalBytes * part) / parts, totalBytes);
  return written;
}

describe('the progress of loading', () => {
  it('is a bar on a terminal, drawn once for each percent', () => {
    const drawn = shown(true, 2 * GIB, 1000);
    expect(drawn).toHaveLength(101);
    expect(drawn[50]).toBe('\rloading m.gguf [===============               ]  50 % 1.00 of 2.00 GiB');
    expect(drawn.at(-1)).toBe('\rloading m.gguf [==============================] 100 % 2.00 of 2.00 GiB\n');
  });

  it('is a line for each quarter in a file', () => {
    expect(shown(false, 2 * GIB, 1000).map((line) => line.split(':')[1]!.split('(')[0])).toEqual([
      ' 0 % ',
      ' 25 % ',
      ' 50 % ',
      ' 75 % ',
      ' 100 % ',
    ]);
  });

  it('ends with 100 percent, also if there are only two calls', () => {
    expect(shown(false, 2 * GIB, 1)).toHaveLength(2);
    expect(shown(true, 2 * GIB, 1).at(-1)).toContain('100 %');
  });

  it('shows hashing before and after loading, but not during it', () => {
    const written: string[] = [];
    const { onProgress, onDigestProgress } = loadProgress('m.gguf', {
      isTTY: false,
      write: (text) => written.push(text),
    });
    onDigestProgress(0, GIB);
    onProgress(0, GIB);
    onDigestProgress(GIB / 2, GIB);
    onProgress(GIB, GIB);
    onDigestProgress((3 * GIB) / 4, GIB);
    onDigestProgress(GIB, GIB);
    expect(written.map((line) => line.split(' (')[0])).toEqual([
      'hashing m.gguf: 0 %',
      'loading m.gguf: 0 %',
      'loading m.gguf: 100 %',
      'hashing m.gguf: 75 %',
      'hashing m.gguf: 100 %',
    ]);
  });

  it('is silent for small files', () => {
    expect(shown(true, 4_000_000, 10)).toEqual([]);
  });
});

describe('the progress of a download', () => {
  it('has the speed, and the time that is left', () => {
    const written: string[] = [];
    let seconds = 0;
    const progress = downloadProgress(
      'hf:a/b',
      { isTTY: false, write: (text) => written.push(text) },
      () => 1000 * seconds,
    );
    for (; seconds <= 100; seconds++) progress((GIB * seconds) / 100, GIB);
    expect(written).toEqual([
      'downloading hf:a/b: 0 % (0.00 of 1.00 GiB)\n',
      'downloading hf:a/b: 25 % (0.25 of 1.00 GiB, 10.7 MB/s, 75 s left)\n',
      'downloading hf:a/b: 50 % (0.50 of 1.00 GiB, 10.7 MB/s, 50 s left)\n',
      'downloading hf:a/b: 75 % (0.75 of 1.00 GiB, 10.7 MB/s, 25 s left)\n',
      'downloading hf:a/b: 100 % (1.00 of 1.00 GiB, 10.7 MB/s)\n',
    ]);
  });

  it('counts only bytes that arrive now, and erases the rest of a longer line', () => {
    const written: string[] = [];
    let seconds = 0;
    const progress = downloadProgress(
      'hf:a/b',
      { isTTY: true, write: (text) => written.push(text) },
      () => 1000 * seconds,
    );
    progress(GIB / 2, GIB);
    seconds = 4_000;
    progress(0.6 * GIB, GIB);
    expect(written.at(-1)).toBe(
      '\rdownloading hf:a/b [==================            ]  60 % 0.60 of 1.00 GiB, 0.0 MB/s, 5 h left\u001b[K',
    );
  });
});
