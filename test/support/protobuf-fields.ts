import { assert } from '../../src/base/assert.ts';

/** The value of a field: bytes of a text or a message, or an integer. */
export interface ProtobufField {
  readonly number: number;
  readonly bytes: Uint8Array;
  readonly integer: bigint;
}

/** Reads the fields of a message in Protocol Buffers, in their order. */
export function protobufFields(message: Uint8Array): ProtobufField[] {
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  const fields: ProtobufField[] = [];
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = view.getUint8(at++);
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const key = Number(varint());
    const [number, type] = [key >> 3, key & 7];
    let integer = 0n;
    let length = 0;
    if (type === 0) integer = varint();
    else if (type === 1) length = 8;
    else if (type === 2) length = Number(varint());
    else if (type === 5) length = 4;
    else assert(false, `field ${number} has type ${type}`);
    assert(at + length <= message.length, `field ${number} has ${length} bytes`);
    const bytes = message.subarray(at, at + length);
    if (type === 1) integer = view.getBigUint64(at, true);
    fields.push({ number, bytes, integer });
    at += length;
  }
  return fields;
}
