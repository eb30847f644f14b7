import { describe, expect, it } from 'vitest';
import type { BlockKey } from '../../block-key.ts';
import { BlockCodec } from '../block-header.ts';
import { storedBlockBytes, suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { type BlockLoadAnswer, BlockLoads } from './block-loads.ts';
import { ObjectIndex, type StoredPlace } from './object-index.ts';
import { objectNameOf, shortKeyOf } from './object-name.ts';
import type { ByteRange, ByteSink } from './s3-bucket.ts';
import { S3Failure } from './s3-failure.ts';

const codec = new BlockCodec(suiteIdentity);
const never = (): AbortSignal => new AbortController().signal;

class Server {
  readonly index = new ObjectIndex();
  readonly #content = new Map<string, Uint8Array>();
  readonly gets: {
    readonly range: ByteRange;
    readonly sink: ByteSink;
    readonly signal: AbortSignal;
    end(error?: unknown): void;
  }[] = [];
  readonly loads: BlockLoads;

  constructor(getsAtOnce = 8, blocksAtOnce = 8) {
    const bytesMax = blocksAtOnce * storedBlockBytes;
    this.loads = new BlockLoads({
      codec,
      getsAtOnce,
      bytesMax,
      get: (_, range, sink, signal) =>
        new Promise((resolve, reject) => {
          const end = (error?: unknown): void => (error === undefined ? resolve() : reject(error as Error));
          this.gets.push({ range, sink, signal, end });
        }),
    });
  }

  write(time: number, ...keys: readonly BlockKey[]): string {
    const name = objectNameOf(time, 'aaaaaaaa', keys.map(shortKeyOf));
    this.index.add(name, keys.length * storedBlockBytes, 1);
    const blocks = keys.flatMap((key) => [codec.encode(key, suiteBytes(key)), suiteBytes(key)]);
    this.#content.set(name, Buffer.concat(blocks));
    return name;
  }

  load(key: BlockKey, into = new Uint8Array(suiteBlockBytes), signal = never()): Promise<BlockLoadAnswer> {
    return this.loads.load(this.index.find(key) as StoredPlace, key, into, signal);
  }

  /** The GETs under way, as slots, after all loads of this turn have been gathered. */
  async slots(): Promise<[number, number][]> {
    await new Promise((resolve) => setImmediate(resolve));
    return this.gets.map(({ range }) => [range.first / storedBlockBytes, range.end / storedBlockBytes]);
  }

  answer(name: string, get: number, chunkBytes = 1000, content = this.#content.get(name)!): void {
    const { range, sink, end } = this.gets[get]!;
    if (range.first >= content.length) {
      end(new S3Failure('outOfRange', 'InvalidRange', ''));
      return;
    }
    sink.begin(content.length);
    const bytes = content.subarray(range.first, range.end);
    for (let at = 0; at < bytes.length; at += chunkBytes) sink.write(bytes.subarray(at, at + chunkBytes));
    end();
  }
}

const keys = Array.from({ length: 10 }, (_, i) => suiteKey(i));

describe('loads of blocks of one object', () => {
  it.each([1, 7, 159, 160, 161, 4256, 65_536])(
    'share a GET if they are neighbours; chunks of %i bytes',
    async (chunkBytes) => {
      const server = new Server();
      const name = server.write(1, ...keys);
      const wanted = [5, 2, 3, 9, 4];
      const blocks = wanted.map(() => new Uint8Array(suiteBlockBytes));
      const loads = wanted.map((i, at) => server.load(keys[i]!, blocks[at]!));
      expect(await server.slots()).toEqual([
        [2, 6],
        [9, 10],
      ]);
      server.answer(name, 0, chunkBytes);
      server.answer(name, 1, chunkBytes);
      expect(await Promise.all(loads)).toEqual(wanted.map(() => undefined));
      for (const [at, i] of wanted.entries()) expect(blocks[at]).toEqual(suiteBytes(keys[i]!));
    },
  );

  it('have at most so many blocks in a GET, and so many GETs at once', async () => {
    const server = new Server(2, 3);
    const name = server.write(1, ...keys);
    const loads = keys.map((key) => server.load(key));
    expect(await server.slots()).toEqual([
      [0, 3],
      [3, 6],
    ]);
    server.answer(name, 0);
    await Promise.all(loads.slice(0, 3));
    expect((await server.slots()).slice(2)).toEqual([[6, 9]]);
    server.answer(name, 1);
    server.answer(name, 2);
    await Promise.all(loads.slice(0, 9));
    await server.slots();
    server.answer(name, 3);
    expect(await Promise.all(loads)).toEqual(keys.map(() => undefined));
  });

  it('end when their own bytes have arrived', async () => {
    const server = new Server();
    server.write(1, ...keys);
    const first = server.load(keys[0]!);
    const second = server.load(keys[1]!);
    await server.slots();
    const { sink, end } = server.gets[0]!;
    sink.begin(10 * storedBlockBytes);
    sink.write(codec.encode(keys[0]!, suiteBytes(keys[0]!)));
    sink.write(suiteBytes(keys[0]!));
    expect(await first).toBeUndefined();
    end(new S3Failure('failed', 'ECONNRESET', 'cut'));
    await expect(second).rejects.toThrow('cut');
  });

  it('of one block twice at once are both answered', async () => {
    const server = new Server();
    const name = server.write(1, ...keys);
    const blocks = [new Uint8Array(suiteBlockBytes), new Uint8Array(suiteBlockBytes)];
    const loads = blocks.map((into) => server.load(keys[4]!, into));
    expect(await server.slots()).toEqual([
      [4, 5],
      [4, 5],
    ]);
    server.answer(name, 0);
    server.answer(name, 1);
    expect(await Promise.all(loads)).toEqual([undefined, undefined]);
    for (const into of blocks) expect(into).toEqual(suiteBytes(keys[4]!));
  });
});

it('an aborted load ends at once, nothing writes its memory after that, and its neighbours are loaded', async () => {
  const server = new Server();
  const name = server.write(1, ...keys);
  const controller = new AbortController();
  const into = new Uint8Array(suiteBlockBytes).fill(7);
  const aborted = server.load(keys[0]!, into, controller.signal);
  const other = server.load(keys[1]!);
  await server.slots();
  controller.abort(new Error('given up'));
  await expect(aborted).rejects.toThrow('given up');
  expect(server.gets[0]!.signal.aborted).toBe(false);
  server.answer(name, 0);
  expect(await other).toBeUndefined();
  expect(into).toEqual(new Uint8Array(suiteBlockBytes).fill(7));
});

it('a GET is aborted when no load needs it, and waiting loads that are aborted cause no GET', async () => {
  const server = new Server(1);
  const name = server.write(1, ...keys);
  const other = server.write(2, suiteKey('other'));
  const controller = new AbortController();
  const running = server.load(keys[0]!, undefined, controller.signal);
  await server.slots();
  const waiting = server.load(keys[1]!, undefined, controller.signal);
  const last = server.load(suiteKey('other'));
  controller.abort(new Error('given up'));
  await expect(running).rejects.toThrow('given up');
  await expect(waiting).rejects.toThrow('given up');
  expect(server.gets[0]!.signal.aborted).toBe(true);
  server.gets[0]!.end(server.gets[0]!.signal.reason);
  await expect.poll(() => server.gets.length).toBe(2);
  server.answer(other, 1);
  expect(await last).toBeUndefined();
  expect(name).not.toBe(other);
});

it('an answer that ends early is an error, not a corrupt block', async () => {
  const server = new Server();
  server.write(1, ...keys);
  const loads = [server.load(keys[0]!), server.load(keys[1]!)];
  await server.slots();
  const { sink, end } = server.gets[0]!;
  sink.begin(10 * storedBlockBytes);
  sink.write(codec.encode(keys[0]!, suiteBytes(keys[0]!)));
  end();
  for (const load of loads) await expect(load).rejects.toThrow('160 of 8512 bytes arrived');
});

it.each<[string, number, BlockLoadAnswer[]]>([
  ['one byte too many', 3 * storedBlockBytes + 1, [undefined, undefined, 'oversized']],
  ['one byte too few', 3 * storedBlockBytes - 1, [undefined, undefined, 'truncated']],
  ['the last header only', 2 * storedBlockBytes + 160, [undefined, undefined, 'truncated']],
  ['one block', storedBlockBytes, [undefined, 'truncated', 'truncated']],
  ['nothing', 0, ['truncated', 'truncated', 'truncated']],
])('an object with %s has only these misses', async (_, length, reasons) => {
  const server = new Server();
  const name = server.write(1, ...keys.slice(0, 3));
  const whole = keys.slice(0, 3).flatMap((key) => [codec.encode(key, suiteBytes(key)), suiteBytes(key)]);
  const content = Buffer.concat([...whole, new Uint8Array(10)]).subarray(0, length);
  const loads = keys.slice(0, 3).map((key) => server.load(key));
  await server.slots();
  server.answer(name, 0, 1000, content);
  expect(await Promise.all(loads)).toEqual(reasons);
});

it('loads of an object that does not exist say so', async () => {
  const server = new Server();
  server.write(1, ...keys);
  const loads = [server.load(keys[0]!), server.load(keys[1]!)];
  await server.slots();
  server.gets[0]!.end(new S3Failure('missing', 'NoSuchKey', ''));
  expect(await Promise.all(loads)).toEqual(['objectMissing', 'objectMissing']);
});
