import type { ComputeDevice } from './device.ts';
import { type GraphPtr, nullPtr, type SchedPtr, type TensorPtr } from './ffi.ts';

/**
 * ggml's scheduler for a GPU: gives the tensors of graphs memory on the GPU, or on the CPU, which computes what the GPU lacks, and copies
 * tensors between them.
 */
export class GpuScheduler {
  readonly #device: ComputeDevice;
  readonly #nodesMax: number;
  #sched: SchedPtr = nullPtr();
  readonly #kept: TensorPtr[] = [];

  /** `nodesMax`: of a graph, with its inputs and views. */
  constructor(device: ComputeDevice, nodesMax: number) {
    this.#device = device;
    this.#nodesMax = nodesMax;
  }

  /** Another graph is built. */
  begin(): void {
    this.#kept.length = 0;
  }

  /** Whether the GPU computes the operation of this node. */
  supports(node: TensorPtr): boolean {
    const { native, mainDevice } = this.#device;
    return native.ggml_backend_dev_supports_op(mainDevice, node);
  }

  /** Places the tensor on the GPU. Without this, ggml gives no memory to a tensor that only views read. */
  keepOnGpu(tensor: TensorPtr): void {
    this.#kept.push(tensor);
  }

  /** Gives each tensor of the graph its place. Returns false if there is not enough memory. */
  allocate(graph: GraphPtr): boolean {
    const { native, main, cpu } = this.#device;
    if (this.#sched === 0) {
      const backends = new BigUint64Array([BigInt(main), BigInt(cpu)]);
      this.#sched = native.ggml_backend_sched_new(backends, null, 2, this.#nodesMax, false, true);
    }
    native.ggml_backend_sched_reset(this.#sched);
    for (const tensor of this.#kept) native.ggml_backend_sched_set_tensor_backend(this.#sched, tensor, main);
    const isAllocated = native.ggml_backend_sched_alloc_graph(this.#sched, graph);
    // No backend fuses the operation of an output with others. After the allocation, outputs need no memory of their own.
    const nodes = isAllocated && this.#device.isExact ? native.ggml_graph_n_nodes(graph) : 0;
    for (let i = 0; i < nodes; i++) native.ggml_set_output(native.ggml_graph_node(graph, i));
    return isAllocated;
  }

  /** Runs an allocated graph on the device's thread. Resolves to ggml's status. */
  compute(graph: GraphPtr): Promise<number> {
    return this.#device.computeThread().call('ggml_backend_sched_graph_compute', this.#sched, graph);
  }

  /** The same on this thread. */
  computeNow(graph: GraphPtr): number {
    return this.#device.native.ggml_backend_sched_graph_compute(this.#sched, graph);
  }

  close(): void {
    if (this.#sched !== 0) this.#device.native.ggml_backend_sched_free(this.#sched);
    this.#sched = nullPtr();
  }
}
