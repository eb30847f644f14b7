/** Matrices in ggml's layouts, and matmuls with them by the kernels and by ggml. */
import { allocateTensors, type ComputeDevice } from '../../src/ggml/device.ts';
import type { TensorPtr } from '../../src/ggml/ffi.ts';
import { GraphBuilder } from '../../src/ggml/graph.ts';
import { F32, ggmlTypeNamed, I32, rowBytes } from '../../src/ggml/types.ts';
import { Matmuls } from '../../src/runner/matmul/matmuls.ts';
import { openTiledMatmul, type TiledMatmul } from '../../src/runner/matmul/tiled-matmul.ts';
import { randomFloats } from '../../src/runner/random-values.ts';
import type { PlacedMatrix } from '../../src/runner/weight-store.ts';
import { allTypes, type Form, type TypeName } from './matmul-forms.ts';
import { compileOptionsOf } from './quick-compiler.ts';

export interface Matrix {
  readonly placed: PlacedMatrix;
  /** The weights, as ggml dequantizes them: `[outputs][inputs]`. */
  readonly values: Float32Array;
  close(): void;
}

export const bitsOf = (values: Float32Array): Uint32Array =>
  new Uint32Array(values.buffer, values.byteOffset, values.length);

/** By type and shape: ggml takes up to a second to quantize some types, and each form of a kernel multiplies the same weights. */
const quantized = new Map<string, Uint8Array>();

/** Random weights in ggml's layout. The caller must not change them. */
export function randomWeights(
  { native }: ComputeDevice,
  typeName: TypeName,
  inputs: number,
  outputs: number,
): Uint8Array {
  const key = `${typeName} ${inputs} ${outputs}`;
  let packed = quantized.get(key);
  if (packed === undefined) {
    const type = ggmlTypeNamed(typeName)!;
    packed = new Uint8Array(rowBytes(type, inputs) * outputs);
    native.ggml_quantize_chunk(type.id, randomFloats(inputs * outputs, 3), packed, 0, outputs, inputs, null);
    quantized.set(key, packed);
  }
  return packed;
}

export type TestMatmuls = ReturnType<typeof testMatmuls>;

export function testMatmuls(device: ComputeDevice) {
  const { native } = device;
  /** New kernels for each test: they identify matrices by address, and addresses of closed matrices are used again. */
  const openKernels = async ({ cpuFlags }: Form, types: readonly TypeName[] = allTypes): Promise<TiledMatmul> =>
    (await openTiledMatmul(device, types, compileOptionsOf(cpuFlags)))!;

  function randomMatrix(typeName: TypeName, inputs: number, outputs: number): Matrix {
    return matrixOf(typeName, inputs, outputs, randomWeights(device, typeName, inputs, outputs));
  }

  function matrixOf(typeName: TypeName, inputs: number, outputs: number, packed: Uint8Array): Matrix {
    const type = ggmlTypeNamed(typeName)!;
    const buffers = device.cpuBuffers;
    const context = native.ggml_init({ mem_size: 4096, mem_buffer: 0, no_alloc: true });
    const tensor = native.ggml_new_tensor_2d(context, type.id, inputs, outputs);
    const buffer = allocateTensors(device, context, buffers, { purpose: 'a test', bytes: 0 });
    native.ggml_backend_tensor_set(tensor, packed, 0, packed.length);
    const all = Int32Array.from({ length: outputs }, (_, i) => i);
    return {
      placed: { tensor, source: { type, ne: [inputs, outputs, 1, 1] } as never, buffers },
      values: compute(all, 1, (graph, x) => graph.getRows(tensor, x)),
      close: () => {
        native.ggml_backend_buffer_free(buffer);
        native.ggml_free(context);
      },
    };
  }

  function compute(
    x: Float32Array | Int32Array,
    width: number,
    build: (graph: GraphBuilder, x: TensorPtr) => TensorPtr,
  ) {
    const graph = new GraphBuilder(device);
    graph.begin(8);
    const isInteger = x instanceof Int32Array;
    const input = graph.input(isInteger ? I32 : F32, isInteger ? x.length : width, isInteger ? 1 : x.length / width);
    const result = build(graph, input);
    graph.output(result);
    graph.allocate();
    graph.write(input, x as Float32Array);
    graph.computeNow();
    const values = graph.dataOf(result, Float32Array).slice();
    graph.close();
    return values;
  }

  const multiply = (tiles: TiledMatmul | undefined, { placed }: Matrix, rows: Float32Array): Float32Array =>
    compute(rows, placed.source.ne[0], (graph, x) => new Matmuls(graph, { tiles }).multiply(placed.tensor, x));

  return { openKernels, randomMatrix, matrixOf, compute, multiply };
}
