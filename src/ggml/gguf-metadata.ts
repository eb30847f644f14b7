import { metadataInvalid, metadataMissing } from './errors.ts';

export type GgufElementType =
  | 'u8'
  | 'i8'
  | 'u16'
  | 'i16'
  | 'u32'
  | 'i32'
  | 'f32'
  | 'bool'
  | 'string'
  | 'u64'
  | 'i64'
  | 'f64';

/** The value types of GGUF by their number in the file, and the bytes of a value (for a string: of its length). */
export const ggufElementTypes: ReadonlyMap<number, readonly [GgufElementType, number]> = new Map([
  [0, ['u8', 1]],
  [1, ['i8', 1]],
  [2, ['u16', 2]],
  [3, ['i16', 2]],
  [4, ['u32', 4]],
  [5, ['i32', 4]],
  [6, ['f32', 4]],
  [7, ['bool', 1]],
  [8, ['string', 8]],
  [10, ['u64', 8]],
  [11, ['i64', 8]],
  [12, ['f64', 8]],
]);
export const GGUF_ARRAY = 9;

/** An array stays in the file (a tokenizer's may have hundreds of thousands of strings); `readGgufArray` reads it. */
export interface GgufArray {
  readonly elementType: GgufElementType;
  readonly length: number;
  /** The offset of the first element in the file, and the bytes of all elements. */
  readonly fileOffset: number;
  readonly byteLength: number;
  /** The elements of a short array of numbers, such as one number for each layer. */
  readonly numbers?: readonly number[];
}

export type GgufScalar = { readonly type: GgufElementType; readonly value: number | bigint | boolean | string };
export type GgufValue = GgufScalar | GgufArray;

const isArray = (value: GgufValue): value is GgufArray => 'elementType' in value;

/** The metadata of a GGUF file. Getters return undefined if the key is missing, and throw if it has another type. */
export class GgufMetadata {
  readonly #path: string;
  readonly #values: ReadonlyMap<string, GgufValue>;

  constructor(path: string, values: ReadonlyMap<string, GgufValue>) {
    this.#path = path;
    this.#values = values;
  }

  get entries(): ReadonlyMap<string, GgufValue> {
    return this.#values;
  }

  has(key: string): boolean {
    return this.#values.has(key);
  }

  string(key: string): string | undefined {
    const value = this.#scalar(key, 'a string');
    if (value === undefined || typeof value === 'string') return value;
    throw this.invalid(key, 'a string');
  }

  /** Any integer type, if the value fits into an unsigned 32-bit integer. */
  u32(key: string): number | undefined {
    const value = this.#scalar(key, 'an integer');
    if (value === undefined) return undefined;
    const number = typeof value === 'number' || typeof value === 'bigint' ? Number(value) : Number.NaN;
    const fits = Number.isInteger(number) && number >= 0 && number <= 0xffff_ffff;
    if (!fits) throw this.invalid(key, 'an unsigned 32-bit integer');
    return number;
  }

  /** A finite floating-point number. */
  f32(key: string): number | undefined {
    const value = this.#scalar(key, 'a number');
    if (value === undefined) return undefined;
    if (typeof value !== 'number' || !Number.isFinite(value)) throw this.invalid(key, 'a finite number');
    return value;
  }

  bool(key: string): boolean | undefined {
    const value = this.#scalar(key, 'a boolean');
    if (value === undefined || typeof value === 'boolean') return value;
    throw this.invalid(key, 'a boolean');
  }

  array(key: string): GgufArray | undefined {
    const value = this.#values.get(key);
    if (value === undefined || isArray(value)) return value;
    throw this.invalid(key, 'an array');
  }

  /** An integer for each layer: a key has either an array or one integer for all layers. */
  u32OfLayers(key: string, layerCount: number): readonly number[] | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    const numbers = isArray(value) ? value.numbers : Array<number>(layerCount).fill(this.u32(key) ?? 0);
    const isValid =
      numbers?.length === layerCount && numbers.every((number) => number >= 0 && Number.isInteger(number));
    if (numbers === undefined || !isValid) throw this.invalid(key, `an integer, or ${layerCount} integers`);
    return numbers;
  }

  /** Returns `value`; throws an error that names the key if it is undefined. */
  require<T>(key: string, value: T | undefined): T {
    if (value === undefined) throw metadataMissing({ path: this.#path, key });
    return value;
  }

  /** The error for a value whose type or content is invalid. */
  invalid(key: string, expected: string): Error {
    const value = this.#values.get(key);
    let found = 'nothing';
    if (value !== undefined && isArray(value)) found = `an array of ${value.length} ${value.elementType}`;
    else if (value !== undefined) found = `${value.type} ${String(value.value).slice(0, 60)}`;
    return metadataInvalid({ path: this.#path, key, expected, found });
  }

  #scalar(key: string, expected: string): GgufScalar['value'] | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    if (isArray(value)) throw this.invalid(key, expected);
    return value.value;
  }
}
