import { describe, expect, it } from 'vitest';
import { Prng } from '../../../base/prng.ts';
import { headerBytes } from '../block-header.ts';
import { BlockSinks, ReplyTap } from './reply-tap.ts';

const payloadBytes = 1_000;
const valueBytes = headerBytes + payloadBytes;

/** A stored block whose header and payload have one value in all bytes. */
const stored = (name: number): Buffer =>
  Buffer.concat([Buffer.alloc(headerBytes, name), Buffer.alloc(payloadBytes, name + 100)]);
const bulk = (value: Buffer): Buffer =>
  Buffer.concat([Buffer.from(`$${value.length}\r\n`), value, Buffer.from('\r\n')]);
const header = (name: number): Buffer => bulk(stored(name).subarray(0, headerBytes));

function newTap() {
  const sinks = new BlockSinks();
  const passed: Uint8Array[] = [];
  const refused: string[] = [];
  const tap = new ReplyTap({
    valueBytes,
    sinks,
    pass: (bytes) => void passed.push(bytes),
    refuse: (reason) => void refused.push(reason),
  });
  const want = (name: number) => sinks.add(new Uint8Array(payloadBytes), (bytes) => bytes[0] === name);
  return { tap, sinks, want, refused, passed: () => Buffer.concat(passed) };
}

describe('ReplyTap', () => {
  it('writes the payload of a block into its sink, and passes the header after it', () => {
    const { tap, want, passed } = newTap();
    const sink = want(7);
    const reply = bulk(stored(7));
    tap.write(reply.subarray(0, reply.length - 1));
    expect(sink.isFilled).toBe(false);
    expect(passed()).toHaveLength(0);
    tap.write(reply.subarray(reply.length - 1));
    expect(sink).toMatchObject({ isFilled: true });
    expect(Buffer.compare(sink.into, stored(7).subarray(headerBytes))).toBe(0);
    expect(passed()).toEqual(header(7));
  });

  it.each([
    ['a value', '$536870912000\r\n', 'the server sends a value of 536870912000 bytes'],
    ['a line', `+${'x'.repeat(70_000)}`, 'the server sends a line of more than 65536 bytes'],
    ['a list', '*1000000000\r\n', 'the server sends more than 524288 elements'],
  ])('refuses %s that is longer than any reply, and passes none of it', (_, reply, reason) => {
    const { tap, refused, passed } = newTap();
    tap.write(Buffer.from('+OK\r\n'));
    tap.write(Buffer.from(reply));
    for (let i = 0; i < 3; i++) tap.write(Buffer.alloc(100_000, 'x'));
    expect(refused).toEqual([reason]);
    expect(String(passed())).toBe('+OK\r\n');
  });

  it.each([
    ['nested arrays', '*1\r\n'.repeat(9), 'arrays in more than 8 others', 8 * 4],
    ['lists of lists', `*2\r\n*1\r\n:1\r\n*524288\r\n`, 'more than 524288 elements', 12],
    ['many values', `*3\r\n$9000000\r\n${'x'.repeat(9e6)}\r\n$9000000\r\n`, 'a reply of more than 16778', 9_000_016],
    ...['%1', '~1', '>1', '|1', '=15', '(1', '_', '#t', ',1', '!1', '@', '', ' '].map(
      (line) => [JSON.stringify(line), `${line}\r\n`, 'a line that is not', 0] as const,
    ),
    ...[
      '$1x',
      '$-2',
      '$',
      '$ 1',
      '$1e3',
      '$0x1',
      '$+1',
      '$99999999999999',
      '*1.5',
      '*-2',
      '*',
      ':',
      ':1x',
      ':1\r2',
    ].map((line) => [JSON.stringify(line), `${line}\r\n`, 'a line that is not', 0] as const),
    ['a line that ends in another way', '+a\n+b\r\n', 'a line that is not', 0],
    ['a return within a line', '+a\r+b\r\n', 'a line that is not', 0],
  ] as const)('refuses %s', (_, reply, reason, passedBytes) => {
    const { tap, refused, passed } = newTap();
    tap.write(Buffer.from('+OK\r\n'));
    for (const part of reply.match(/[\s\S]{1,65536}/g)!) tap.write(Buffer.from(part));
    tap.write(Buffer.from('+more\r\n'));
    expect(refused).toEqual([expect.stringContaining(reason)]);
    expect(passed()).toHaveLength(5 + passedBytes);
  });

  it('limits each reply, not all of them together', () => {
    const { tap, refused, passed } = newTap();
    const deep = `${'*1\r\n'.repeat(8)}:1\r\n*0\r\n*-1\r\n*2\r\n$-1\r\n*1\r\n$0\r\n\r\n`;
    const value = `*1\r\n$9000000\r\n${'x'.repeat(9e6)}\r\n`;
    const many = `*300000\r\n${':1\r\n'.repeat(300_000)}`;
    const replies = [deep, value, many, deep, value, many, deep].join('');
    tap.write(Buffer.from(replies));
    expect(refused).toEqual([]);
    expect(passed().toString() === replies).toBe(true);
  });

  it('passes all other replies unchanged, in pieces of any length', () => {
    const other = Buffer.concat([
      ...['+OK\r\n', ':12\r\n', '$-1\r\n', '-WRONGTYPE a list\r\n', '$0\r\n\r\n', '$5\r\na\r\nbc\r\n'].map((text) =>
        Buffer.from(text),
      ),
      Buffer.from('*2\r\n$3\r\nabc\r\n*1\r\n:4\r\n'),
      // A stored block that is not requested, and values of other lengths.
      bulk(stored(9)),
      bulk(stored(1).subarray(1)),
      bulk(stored(1).subarray(0, headerBytes)),
    ]);
    for (let seed = 1; seed <= 50; seed++) {
      const prng = new Prng(seed);
      const { tap, want, passed } = newTap();
      const sink = want(1);
      const parts = [other, bulk(stored(1)), other];
      const all = Buffer.concat(parts);
      // The memory of a read is used again.
      const memory = Buffer.alloc(400);
      for (let at = 0; at < all.length; ) {
        const length = Math.min(prng.between(1, 400), all.length - at);
        all.copy(memory, 0, at, at + length);
        tap.write(memory.subarray(0, length));
        at += length;
      }
      expect(Buffer.compare(passed(), Buffer.concat([other, header(1), other])), `seed ${seed}`).toBe(0);
      expect(sink.isFilled).toBe(true);
      expect(Buffer.compare(sink.into, stored(1).subarray(headerBytes))).toBe(0);
    }
  });

  it('does not write a sink after its removal, and drops the rest of its block', () => {
    const { tap, sinks, want, passed } = newTap();
    const sink = want(3);
    const reply = bulk(stored(3));
    tap.write(reply.subarray(0, 700));
    const before = sink.into.slice();
    sinks.remove(sink);
    tap.write(reply.subarray(700));
    tap.write(Buffer.from('+OK\r\n'));
    expect(sink.into).toEqual(before);
    expect(passed()).toEqual(Buffer.concat([header(3), Buffer.from('+OK\r\n')]));
  });

  it('two sinks for one block get one answer each', () => {
    const { tap, want, passed } = newTap();
    const [first, second] = [want(5), want(5)];
    tap.write(bulk(stored(5)));
    expect([first.isFilled, second.isFilled]).toEqual([true, false]);
    tap.write(bulk(stored(5)));
    expect([first.isFilled, second.isFilled]).toEqual([true, true]);
    tap.write(bulk(stored(5)));
    expect(passed()).toEqual(Buffer.concat([header(5), header(5), bulk(stored(5))]));
  });
});
