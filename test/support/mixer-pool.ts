import { allocateTensors, type ComputeDevice } from '../../src/ggml/device.ts';
import { dataPointer } from '../../src/ggml/tensor-struct.ts';
import { F32 } from '../../src/ggml/types.ts';
import { type LayerStates, type StateMemory, StateTables } from '../../src/runner/states/layer-states.ts';
import type { StateSegment } from '../../src/runner/states/segments.ts';

/** A pool whose blocks have the state of one layer, after some bytes of other layers. */
export interface MixerPool {
  /** The layer's state in each block. */
  readonly blocks: readonly Float32Array[];
  /** The states of the layer in a step with these segments. */
  states(segments: readonly StateSegment[]): LayerStates;
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
  const memory: StateMemory = {
    isHost: true,
    addressOf: (block) => base + 4 * width * block,
    stateView: (graph, block, offset, [ne0, ne1]) => graph.view2d(pool, ne0, ne1, 4 * ne0, 4 * width * block + offset),
  };
  const tables = new StateTables(native, memory, [{ kind: 'state', group: 0, offset: 4 * skipped, elements }]);
  return {
    blocks,
    states: (segments) => {
      tables.begin([segments]);
      return tables.layer(0);
    },
    close: () => {
      native.ggml_backend_buffer_free(buffer);
      native.ggml_free(context);
    },
  };
}
