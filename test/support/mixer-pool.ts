import { allocateTensors, type ComputeDevice } from '../../src/ggml/device.ts';
import { dataPointer } from '../../src/ggml/tensor-struct.ts';
import { F32 } from '../../src/ggml/types.ts';
import { NativeMemory } from '../../src/native/native-memory.ts';
import type { MixerSegment, MixerStates } from '../../src/runner/mixer/mixers.ts';

/** A pool whose blocks have the state of one layer, after some bytes of other layers. */
export interface MixerPool {
  /** The layer's state in each block. */
  readonly blocks: readonly Float32Array[];
  /** The states of the layer in a step with these segments. */
  states(segments: readonly MixerSegment[]): MixerStates;
  close(): void;
}

export function newMixerPool(device: ComputeDevice, elements: number, blockCount: number): MixerPool {
  const { native } = device;
  const skipped = 5;
  const width = skipped + elements + 3;
  const context = native.ggml_init({ mem_size: 4096, mem_buffer: 0, no_alloc: true });
  const pool = native.ggml_new_tensor_2d(context, F32.id, width, blockCount);
  const bytes = 4 * width * blockCount;
  const buffer = allocateTensors(device, context, device.mainBuffers, { purpose: 'a test', bytes });
  const base = dataPointer(native, pool);
  const floats = new Float32Array(native.memoryAt(base, bytes));
  const blocks = Array.from({ length: blockCount }, (_, block) =>
    floats.subarray(block * width + skipped, block * width + skipped + elements),
  );
  const segmentsMemory = new NativeMemory(native);
  const rows = new NativeMemory(native, 16);
  const layer = new NativeMemory(native, 16);
  layer.setPointer(0, rows.address);
  layer.setInt64(8, 4 * skipped);
  return {
    blocks,
    states: (segments) => {
      segmentsMemory.reserve(24 * segments.length);
      for (const [i, { firstRow, rowCount, read, write }] of segments.entries()) {
        segmentsMemory.setPointer(24 * i, read === undefined ? 0 : base + 4 * width * read);
        segmentsMemory.setPointer(24 * i + 8, base + 4 * width * write);
        segmentsMemory.bytes.setInt32(24 * i + 16, firstRow, true);
        segmentsMemory.bytes.setInt32(24 * i + 20, rowCount, true);
      }
      rows.setPointer(0, segmentsMemory.address);
      rows.setInt64(8, segments.length);
      return {
        address: layer.address,
        segments,
        fixed: () => undefined,
        view: (graph, block, [ne0, ne1], element = 0) =>
          graph.view2d(pool, ne0, ne1, 4 * ne0, 4 * (block * width + skipped + element)),
      };
    },
    close: () => {
      native.ggml_backend_buffer_free(buffer);
      native.ggml_free(context);
    },
  };
}
