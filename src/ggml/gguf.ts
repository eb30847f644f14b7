/**
 * Reads GGUF files (versions 2 and 3, little-endian). Checks all that native code assumes, so that a corrupt file
 * causes an error and never ends the process. Reads only the header, through a buffer of bounded size.
 *
 * Layout: "GGUF", version, tensor count, key count, keys with values, tensor infos, padding, tensor data.
 */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import {
  ggufNestedArray,
  ggufTruncated,
  ggufVersionUnsupported,
  modelFileUnreadable,
  withModelFile,
} from './errors.ts';
import { type FileState, stateOf } from './file-state.ts';
import { GgufCursor } from './gguf-cursor.ts';
import {
  GGUF_ARRAY,
  type GgufArray,
  type GgufElementType,
  GgufMetadata,
  type GgufScalar,
  type GgufValue,
  ggufElementTypes,
} from './gguf-metadata.ts';
import { refuseOtherFormats } from './gguf-sniff.ts';
import { joinParts, otherPartPaths } from './gguf-split.ts';
import { type GgufTensor, padded, placeTensors, readTensorInfos } from './gguf-tensors.ts';
import { modelTensors } from './model-tensors.ts';

export type { GgufTensor } from './gguf-tensors.ts';

export interface GgufFile {
  /** Of the first part. */
  readonly path: string;
  /** The files of the model: one, unless the model is split. */
  readonly parts: readonly GgufPart[];
  /** Of all parts. */
  readonly fileBytes: number;
  readonly version: number;
  readonly alignment: number;
  /** The offset of the tensor data of the first part. */
  readonly dataOffset: number;
  readonly metadata: GgufMetadata;
  /** Those that the model needs (`modelTensors`), in the order of the file. */
  readonly tensors: ReadonlyMap<string, GgufTensor>;
  /** Of layers for multi-token prediction, which only speculation reads. */
  readonly predictionTensors: ReadonlyMap<string, GgufTensor>;
}

export interface GgufPart {
  readonly path: string;
  readonly bytes: number;
  /** Tells whether the file has changed since it was checked. */
  readonly state: FileState;
}

const VERSIONS = [2, 3];
/**
 * Real files have some dozens of keys and at most some thousands of tensors. Native code compares all pairs of names.
 */
const KEY_COUNT_MAX = 10_000;
const TENSOR_COUNT_MAX = 20_000;
const KEY_BYTES_MAX = 65_535;
/** Longer arrays of numbers stay in the file. Arrays with a number for each layer are shorter. */
const NUMBERS_MAX = 1024;
const STRING_BYTES_MAX = 1_000_000;
const ALIGNMENT_DEFAULT = 32;
const ALIGNMENT_MAX = 65_536;

/** Reads and checks the header of a GGUF file, and of the other parts of a split model. Throws only errors of `errors.ts`. */
export async function readGguf(path: string): Promise<GgufFile> {
  const whole = await readStoredGguf(path);
  return { ...whole, ...modelTensors(whole.metadata, whole.tensors) };
}

/** The same with all tensors, as the file has them, for what concerns the file and not the model. */
export async function readStoredGguf(path: string): Promise<GgufFile> {
  const headers = [await readHeader(path)];
  const [first] = headers as [GgufFile];
  for (const other of otherPartPaths(first)) headers.push(await readHeader(other));
  const parts = headers.flatMap((header) => header.parts);
  const fileBytes = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  return { ...first, parts, fileBytes, tensors: joinParts(headers) };
}

/** Of the tensors that are read. */
export const weightBytesOf = ({ tensors, predictionTensors }: GgufFile, predicts = false): number =>
  [...tensors.values(), ...(predicts ? predictionTensors.values() : [])].reduce(
    (sum, { byteLength }) => sum + byteLength,
    0,
  );

/** One file. */
function readHeader(path: string): Promise<GgufFile> {
  return withFile(path, async (handle, state) => {
    const { bytes: fileBytes } = state;
    const cursor = new GgufCursor(handle, path, fileBytes);
    const { version, tensorCount, keyCount } = await readPreamble(cursor);
    const values = await readKeys(cursor, keyCount);
    const metadata = new GgufMetadata(path, values);
    const alignment = readAlignment(metadata);
    const infos = await readTensorInfos(cursor, tensorCount);
    const dataOffset = tensorCount === 0 ? cursor.position : padded(cursor.position, alignment);
    const tensors = placeTensors(cursor, infos, dataOffset, alignment);
    const parts = [{ path, bytes: fileBytes, state }];
    return { path, parts, fileBytes, version, alignment, dataOffset, metadata, tensors, predictionTensors: new Map() };
  });
}

/** The elements of an array of numbers of at most 32 bits, or of booleans. Opens the file again. */
export async function readGgufNumbers(
  file: GgufFile,
  array: GgufArray,
): Promise<Int32Array | Uint32Array | Float32Array | Uint8Array | Int8Array | Uint16Array | Int16Array> {
  const { buffer } = await readGgufBytes(file, array);
  const view = numberArrays[array.elementType];
  if (view === undefined) throw new TypeError(`not an array of small numbers: ${array.elementType}`);
  return new view(buffer);
}

/** The bytes of an array's elements, as they are in the file. Opens the file again. */
export function readGgufBytes(file: GgufFile, array: GgufArray): Promise<Uint8Array<ArrayBuffer>> {
  return withFile(file.path, async (handle) => {
    const bytes = new Uint8Array(array.byteLength);
    let done = 0;
    while (done < bytes.length) {
      const { bytesRead } = await handle.read(bytes, done, bytes.length - done, array.fileOffset + done);
      if (bytesRead === 0) {
        const neededBytes = array.fileOffset + array.byteLength;
        throw ggufTruncated({ path: file.path, fileBytes: array.fileOffset + done, what: 'an array', neededBytes });
      }
      done += bytesRead;
    }
    return bytes;
  });
}

const numberArrays = {
  u8: Uint8Array,
  i8: Int8Array,
  u16: Uint16Array,
  i16: Int16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f32: Float32Array,
  bool: Uint8Array,
  string: undefined,
  u64: undefined,
  i64: undefined,
  f64: undefined,
} as const;

/** Opens the file, and turns errors of the file system into errors of the catalogue. */
async function withFile<T>(path: string, use: (handle: FileHandle, state: FileState) => Promise<T>): Promise<T> {
  let handle: FileHandle | undefined;
  try {
    // Without O_NONBLOCK, the open of a FIFO would wait for a writer.
    handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const status = await handle.stat({ bigint: true });
    if (!status.isFile()) throw modelFileUnreadable({ path, reason: 'it is not a file' });
    return await use(handle, stateOf(status));
  } catch (error) {
    throw withModelFile(path, error);
  } finally {
    // The file is only read, so a failed close has no effect.
    await handle?.close().catch(() => undefined);
  }
}

async function readPreamble(cursor: GgufCursor) {
  await refuseOtherFormats(cursor);
  await cursor.ensure(24, 'the header');
  cursor.skip(4, 'the header');
  const version = cursor.takeU32();
  if (!VERSIONS.includes(version)) {
    const found = (version & 0xffff) === 0 ? `${swapped(version)}, big-endian` : version;
    throw ggufVersionUnsupported({ path: cursor.path, found, supported: VERSIONS.join(', ') });
  }
  const tensorCount = cursor.takeCount(TENSOR_COUNT_MAX, 'the number of tensors');
  const keyCount = cursor.takeCount(KEY_COUNT_MAX, 'the number of metadata keys');
  return { version, tensorCount, keyCount };
}

const swapped = (value: number): number => {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, value, true);
  return view.getUint32(0, false);
};

async function readKeys(cursor: GgufCursor, count: number): Promise<Map<string, GgufValue>> {
  const values = new Map<string, GgufValue>();
  for (let i = 0; i < count; i++) {
    const key = await cursor.string(KEY_BYTES_MAX, `metadata key ${i + 1} of ${count}`);
    if (key === '' || key.includes('\0'))
      throw cursor.corrupt(`metadata key ${i + 1} of ${count} has an empty or invalid name`);
    if (values.has(key)) throw cursor.corrupt(`metadata key ${key} appears twice`);
    values.set(key, await readValue(cursor, key));
  }
  return values;
}

async function readValue(cursor: GgufCursor, key: string): Promise<GgufValue> {
  const what = `the value of ${key}`;
  await cursor.ensure(4, what);
  const typeId = cursor.takeU32();
  if (typeId === GGUF_ARRAY) return readArrayInfo(cursor, key);
  const found = ggufElementTypes.get(typeId);
  if (found === undefined) throw cursor.corrupt(`${what} has the unknown type ${typeId}`, 4);
  const [type, bytes] = found;
  if (type === 'string') return { type, value: await cursor.string(STRING_BYTES_MAX, what) };
  await cursor.ensure(bytes, what);
  return { type, value: scalarReaders[type](cursor.takeBytes(bytes)) };
}

const scalarReaders: Record<Exclude<GgufElementType, 'string'>, (bytes: Buffer) => GgufScalar['value']> = {
  u8: (bytes) => bytes.readUInt8(),
  i8: (bytes) => bytes.readInt8(),
  u16: (bytes) => bytes.readUInt16LE(),
  i16: (bytes) => bytes.readInt16LE(),
  u32: (bytes) => bytes.readUInt32LE(),
  i32: (bytes) => bytes.readInt32LE(),
  f32: (bytes) => bytes.readFloatLE(),
  bool: (bytes) => bytes.readUInt8() !== 0,
  u64: (bytes) => bytes.readBigUInt64LE(),
  i64: (bytes) => bytes.readBigInt64LE(),
  f64: (bytes) => bytes.readDoubleLE(),
};

async function readArrayInfo(cursor: GgufCursor, key: string): Promise<GgufArray> {
  const what = `the array ${key}`;
  await cursor.ensure(12, what);
  const typeId = cursor.takeU32();
  if (typeId === GGUF_ARRAY) throw ggufNestedArray({ path: cursor.path, key });
  const found = ggufElementTypes.get(typeId);
  if (found === undefined) throw cursor.corrupt(`${what} has the unknown element type ${typeId}`, 4);
  const [elementType, elementBytes] = found;
  const length = cursor.takeCount(Number.MAX_SAFE_INTEGER, `the length of ${what}`);
  // For strings too, because each has at least its length. So no loop below takes more iterations than the file has
  // bytes.
  cursor.require(length * elementBytes, what);
  const fileOffset = cursor.position;
  if (elementType === 'string') {
    await skipStrings(cursor, length, what);
    return { elementType, length, fileOffset, byteLength: cursor.position - fileOffset };
  }
  const byteLength = length * elementBytes;
  if (length > NUMBERS_MAX) {
    cursor.skip(byteLength, what);
    return { elementType, length, fileOffset, byteLength };
  }
  await cursor.ensure(byteLength, what);
  const read = scalarReaders[elementType];
  const numbers = Array.from({ length }, () => Number(read(cursor.takeBytes(elementBytes))));
  return { elementType, length, fileOffset, byteLength, numbers };
}

async function skipStrings(cursor: GgufCursor, count: number, what: string): Promise<void> {
  for (let i = 0; i < count; i++) {
    if (!cursor.has(8)) await cursor.ensure(8, what);
    cursor.skip(cursor.takeCount(STRING_BYTES_MAX, `the length of a string in ${what}`), what);
  }
}

function readAlignment(metadata: GgufMetadata): number {
  const key = 'general.alignment';
  const alignment = metadata.u32(key) ?? ALIGNMENT_DEFAULT;
  const value = metadata.entries.get(key);
  const isU32 = value === undefined || ('type' in value && value.type === 'u32');
  if (!isU32 || alignment === 0 || alignment > ALIGNMENT_MAX || (alignment & (alignment - 1)) !== 0) {
    throw metadata.invalid(key, `a power of two up to ${ALIGNMENT_MAX} of type u32`);
  }
  return alignment;
}
