/**
 * ggml's tensor types with the sizes of their blocks, and the types of weights that Kvasir supports. A test compares
 * the sizes with the library.
 */
export interface GgmlType {
  /** ggml's enum value, which GGUF files have. */
  readonly id: number;
  /** The name in the names of model files, such as `Q4_K`. */
  readonly name: string;
  /** Elements of one block; rows are whole blocks. */
  readonly blockSize: number;
  /** Bytes of one block. */
  readonly typeSize: number;
}

const table: readonly (readonly [id: number, name: string, blockSize: number, typeSize: number])[] = [
  [0, 'F32', 1, 4],
  [1, 'F16', 1, 2],
  [2, 'Q4_0', 32, 18],
  [3, 'Q4_1', 32, 20],
  [6, 'Q5_0', 32, 22],
  [7, 'Q5_1', 32, 24],
  [8, 'Q8_0', 32, 34],
  [9, 'Q8_1', 32, 36],
  [10, 'Q2_K', 256, 84],
  [11, 'Q3_K', 256, 110],
  [12, 'Q4_K', 256, 144],
  [13, 'Q5_K', 256, 176],
  [14, 'Q6_K', 256, 210],
  [15, 'Q8_K', 256, 292],
  [16, 'IQ2_XXS', 256, 66],
  [17, 'IQ2_XS', 256, 74],
  [18, 'IQ3_XXS', 256, 98],
  [19, 'IQ1_S', 256, 50],
  [20, 'IQ4_NL', 32, 18],
  [21, 'IQ3_S', 256, 110],
  [22, 'IQ2_S', 256, 82],
  [23, 'IQ4_XS', 256, 136],
  [24, 'I8', 1, 1],
  [25, 'I16', 1, 2],
  [26, 'I32', 1, 4],
  [27, 'I64', 1, 8],
  [28, 'F64', 1, 8],
  [29, 'IQ1_M', 256, 56],
  [30, 'BF16', 1, 2],
  [34, 'TQ1_0', 256, 54],
  [35, 'TQ2_0', 256, 66],
  [39, 'MXFP4', 32, 17],
  [40, 'NVFP4', 64, 36],
  [41, 'Q1_0', 128, 18],
  [42, 'Q2_0', 64, 18],
];

/** Every type that a GGUF file of this version of ggml may have, by id. */
export const ggmlTypes: ReadonlyMap<number, GgmlType> = new Map(
  table.map(([id, name, blockSize, typeSize]) => [id, { id, name, blockSize, typeSize }]),
);

const byName = new Map([...ggmlTypes.values()].map((type) => [type.name, type]));

/** The types of weights that Kvasir supports. */
export const weightTypeNames = [
  'F32',
  'F16',
  'BF16',
  'Q8_0',
  'Q4_0',
  'Q4_1',
  'Q5_0',
  'Q5_1',
  'Q2_K',
  'Q3_K',
  'Q4_K',
  'Q5_K',
  'Q6_K',
  'MXFP4',
  'IQ4_NL',
  'IQ4_XS',
] as const;
export type WeightTypeName = (typeof weightTypeNames)[number];

export const isWeightType = (type: GgmlType): boolean => (weightTypeNames as readonly string[]).includes(type.name);

/** The type with this name; undefined if ggml has none. */
export const ggmlTypeNamed = (name: string): GgmlType | undefined => byName.get(name);

const named = (name: string): GgmlType => byName.get(name) as GgmlType;
export const F32 = named('F32');
export const F16 = named('F16');
export const Q8_0 = named('Q8_0');
export const I32 = named('I32');
export const I64 = named('I64');

/** Bytes of a row of `elements`, which must be a multiple of the block size. */
export const rowBytes = (type: GgmlType, elements: number): number => (elements / type.blockSize) * type.typeSize;
