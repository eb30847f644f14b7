import koffi from 'koffi';
import { assert, assertDefined } from '../base/assert.ts';
import { ComputeMemory, type TypedArrayOf } from './compute-memory.ts';
import type { ComputeDevice } from './device.ts';
import { outOfNativeMemory } from './errors.ts';
import { type BufferPtr, type ContextPtr, type GraphPtr, nullPtr, type RawPtr, type TensorPtr } from './ffi.ts';
import { GpuScheduler } from './gpu-scheduler.ts';
import type { Activation, GraphKernels } from './graph-kernels.ts';
import type { RopeConfig } from './rope-config.ts';
import { tensorField } from './tensor-struct.ts';
import { F32, type GgmlType } from './types.ts';

/** ggml's `GGML_STATUS_ALLOC_FAILED`. */
const ALLOC_FAILED = -2;

/**
 * Builds one compute graph after another in its own memory and runs them. The results of several builders may share memory.
 *
 * Shapes are written in ggml's order: `[ne0, ne1, ...]`, the first dimension contiguous. `begin` frees the tensors of
 * the last graph. The memory of the tensor structs is an ArrayBuffer, so that this class can change the structs. Two
 * operations have no C function and need that: a view of another type, and a result in the memory of another tensor.
 */
export class GraphBuilder {
  readonly #device: ComputeDevice;
  #memory = new ArrayBuffer(0);
  #fields = new DataView(this.#memory);
  #address = 0;
  #capacity = 0;
  readonly #owners = new Set<object>();
  #context: ContextPtr = nullPtr();
  #graph: GraphPtr = nullPtr();
  /** On a CPU: where the results are. */
  readonly #results: ComputeMemory | undefined;
  readonly #ownsResults: boolean;
  /** With a GPU. */
  #scheduler: GpuScheduler | undefined;
  readonly #kernels: GraphKernels | undefined;

  /** `results`: on a CPU, the memory that several builders share; default: memory of its own. */
  constructor(device: ComputeDevice, kernels?: GraphKernels, results?: ComputeMemory) {
    this.#device = device;
    this.#kernels = kernels;
    this.#ownsResults = results === undefined;
    if (device.kind === 'cpu') this.#results = results ?? new ComputeMemory(device);
  }

  /** Starts a new graph with memory for `nodes` tensors, views and inputs included. */
  begin(nodes: number): void {
    if (nodes > this.#capacity) this.#grow(2 ** Math.ceil(Math.log2(Math.max(nodes, 2048))));
    else this.#device.native.ggml_reset(this.#context);
    this.#owners.clear();
    this.#scheduler?.begin();
    this.#graph = this.#device.native.ggml_new_graph_custom(this.#context, this.#capacity, false);
  }

  /** A tensor whose data is written before the graph runs. */
  input(type: GgmlType, ne0: number, ne1 = 1): TensorPtr {
    const tensor = this.#device.native.ggml_new_tensor_2d(this.#context, type.id, ne0, ne1);
    this.#device.native.ggml_set_input(tensor);
    return tensor;
  }

  /** A tensor of which several nodes fill parts (`placeInto`), and whose memory the graph does not use again. */
  canvas(type: GgmlType, ne0: number, ne1: number): TensorPtr {
    const tensor = this.#device.native.ggml_new_tensor_2d(this.#context, type.id, ne0, ne1);
    this.#device.native.ggml_set_output(tensor);
    return tensor;
  }

  mulMat(weight: TensorPtr, x: TensorPtr): TensorPtr {
    return this.#device.native.ggml_mul_mat(this.#context, weight, x);
  }
  /**
   * Each token's rows times the matrices that are chosen for the token: weights `[n, m, matrices]`, x `[n, chosen or 1,
   * tokens]`, chosen I32 `[chosen, tokens]` -> `[m, chosen, tokens]`.
   */
  mulMatId(weights: TensorPtr, x: TensorPtr, chosen: TensorPtr): TensorPtr {
    return this.#device.native.ggml_mul_mat_id(this.#context, weights, x, chosen);
  }
  /** The rows of x, `[n, rows]`, times a matrix: each multiplied as a single row. Routers and gates of experts are so. */
  multiplySingleRows(matrix: TensorPtr, x: TensorPtr): TensorPtr {
    const [n, rows] = [this.columnCountOf(x), this.rowCountOf(x)];
    const kernels = this.#kernels;
    const outputs = kernels?.outputsOf(matrix);
    if (kernels !== undefined && outputs !== undefined) {
      assert(this.#isContiguous(x), 'the sources of a kernel are contiguous');
      return this.custom([matrix, x], outputs, rows, kernels.smallMatmul, nullPtr(), kernels);
    }
    const product = this.mulMat(matrix, this.reshape3d(x, n, 1, rows));
    return this.reshape2d(product, this.columnCountOf(product), rows);
  }
  /** Elements are repeated along dimensions in which `b` has one. */
  multiply(a: TensorPtr, b: TensorPtr): TensorPtr {
    return this.#device.native.ggml_mul(this.#context, a, b);
  }
  divide(a: TensorPtr, b: TensorPtr): TensorPtr {
    return this.#device.native.ggml_div(this.#context, a, b);
  }
  softMax(x: TensorPtr): TensorPtr {
    if (this.#kernels !== undefined) return this.#customLike(this.#kernels.softMax, [x]);
    return this.#device.native.ggml_soft_max(this.#context, x);
  }
  /** I32 `[count, rows]`: the indices of the largest elements of each row, in descending order of the elements. */
  largest(x: TensorPtr, count: number): TensorPtr {
    return this.#device.native.ggml_argsort_top_k(this.#context, x, count);
  }
  /** `[1, rows]`: the sum of each row. */
  sumRows(x: TensorPtr): TensorPtr {
    return this.#device.native.ggml_sum_rows(this.#context, x);
  }
  /** `[1, rows]`: the sum of each row, or `minimum` if the sum is smaller. */
  sumRowsAtLeast(x: TensorPtr, minimum: number): TensorPtr {
    return this.#device.native.ggml_clamp(this.#context, this.sumRows(x), minimum, Number.POSITIVE_INFINITY);
  }
  add(a: TensorPtr, b: TensorPtr): TensorPtr {
    return this.#device.native.ggml_add(this.#context, a, b);
  }
  /** Adds to each row of x, `[n, chosen, tokens]`, the row of `rows`, `[n, count]`, that is chosen for it. */
  addChosen(x: TensorPtr, rows: TensorPtr, chosen: TensorPtr): TensorPtr {
    return this.#device.native.ggml_add_id(this.#context, x, rows, chosen);
  }
  /** RMS norm over ne0, times a weight `[ne0]` if there is one. */
  rmsNorm(x: TensorPtr, weight: TensorPtr | undefined, epsilon: number): TensorPtr {
    const { native } = this.#device;
    const normed = native.ggml_rms_norm(this.#context, this.#separate(x), epsilon);
    return weight === undefined ? normed : native.ggml_mul(this.#context, normed, weight);
  }
  /** LayerNorm over ne0: times a weight `[ne0]`, plus a bias `[ne0]`. */
  layerNorm(x: TensorPtr, weight: TensorPtr, bias: TensorPtr, epsilon: number): TensorPtr {
    return this.add(this.multiply(this.#device.native.ggml_norm(this.#context, x, epsilon), weight), bias);
  }
  /** A function of each element; `gelu` is its approximation by tanh. */
  activate(activation: Activation, x: TensorPtr): TensorPtr {
    if (this.#kernels !== undefined) return this.#customLike(this.#kernels[activation], [x]);
    return this.#device.native[`ggml_${activation}`](this.#context, x);
  }
  /** silu(gate) * up */
  swiglu(gate: TensorPtr, up: TensorPtr): TensorPtr {
    if (this.#kernels !== undefined) return this.#customLike(this.#kernels.swiglu, [gate, up]);
    return this.#device.native.ggml_swiglu_split(this.#context, gate, up);
  }
  /** x * sigmoid(alpha * x) * (y + 1), where x is gate, at most `limit`, and y is up, between -limit and limit. */
  clampedSwiglu(gate: TensorPtr, up: TensorPtr, alpha: number, limit: number): TensorPtr {
    if (this.#kernels !== undefined) {
      return this.#customLike(this.#kernels.clampedSwiglu, [gate, up], Float32Array.of(alpha, limit));
    }
    return this.#device.native.ggml_swiglu_oai(this.#context, gate, up, alpha, limit);
  }
  /** gelu(gate) * up, with the approximation of gelu by tanh. */
  geglu(gate: TensorPtr, up: TensorPtr): TensorPtr {
    if (this.#kernels !== undefined) return this.#customLike(this.#kernels.geglu, [gate, up]);
    return this.#device.native.ggml_geglu_split(this.#context, gate, up);
  }
  /** max(x, 0)^2 */
  squaredRelu(x: TensorPtr): TensorPtr {
    return this.#device.native.ggml_sqr(this.#context, this.#device.native.ggml_relu(this.#context, x));
  }
  scale(x: TensorPtr, factor: number): TensorPtr {
    return this.#device.native.ggml_scale(this.#context, x, factor);
  }
  /** cap * tanh(x / cap) */
  softCap(x: TensorPtr, cap: number): TensorPtr {
    return this.scale(this.activate('tanh', this.scale(x, 1 / cap)), cap);
  }
  /** x / max(|x|, epsilon), for each row of ne0 elements. */
  l2Norm(x: TensorPtr, epsilon: number): TensorPtr {
    return this.#device.native.ggml_l2_norm(this.#context, x, epsilon);
  }
  /** log(1 + e^x) */
  softplus(x: TensorPtr): TensorPtr {
    return this.#device.native.ggml_softplus(this.#context, x);
  }
  /** A tensor with the shape of x, in which every element has one value. */
  filledLike(x: TensorPtr, value: number): TensorPtr {
    return this.#device.native.ggml_fill(this.#context, this.contiguous(x), value);
  }
  /** `columns`: the rows of a, each followed by the same row of b. `rows`: the rows of a, then those of b. */
  concat(a: TensorPtr, b: TensorPtr, by: 'columns' | 'rows'): TensorPtr {
    return this.#device.native.ggml_concat(this.#context, a, b, by === 'columns' ? 0 : 1);
  }
  transpose(x: TensorPtr): TensorPtr {
    const { native } = this.#device;
    return native.ggml_cont(this.#context, native.ggml_transpose(this.#context, x));
  }
  /** A copy of a view. */
  contiguous(x: TensorPtr): TensorPtr {
    return this.#device.native.ggml_cont(this.#context, x);
  }
  /** Writes x into `target`, which has as many elements. */
  copyInto(x: TensorPtr, target: TensorPtr): TensorPtr {
    return this.#device.native.ggml_cpy(this.#context, x, target);
  }
  /** x `[taps - 1 + rows, channels]`, kernel `[taps, channels]` -> `[channels, rows]`. */
  convolution(x: TensorPtr, kernel: TensorPtr): TensorPtr {
    return this.#device.native.ggml_ssm_conv(this.#context, x, kernel);
  }
  /**
   * The recurrence of Mamba-2: state `[stateSize, headDim, heads]`, x `[headDim, heads, rows]`, dt `[heads, rows]`, a
   * `[1, heads]`, b and c `[stateSize, groups, rows]`, ids I32 `[1]` = 0. The result is y `[headDim, heads, rows]`,
   * followed by the next state.
   */
  scan(state: TensorPtr, p: Readonly<Record<'x' | 'dt' | 'a' | 'b' | 'c' | 'ids', TensorPtr>>): TensorPtr {
    return this.#device.native.ggml_ssm_scan(this.#context, state, p.x, p.dt, p.a, p.b, p.c, p.ids, 1);
  }
  /**
   * The recurrence of a gated delta net: state `[headDim, headDim, heads]`, q and k `[headDim, key heads, rows]`, v
   * `[headDim, heads, rows]`, gate and beta `[1, heads, rows]`. The result is y `[headDim, heads, rows]`, followed by the
   * next state.
   */
  deltaNet(state: TensorPtr, p: Readonly<Record<'q' | 'k' | 'v' | 'gate' | 'beta', TensorPtr>>): TensorPtr {
    return this.#device.native.ggml_gated_delta_net(this.#context, p.q, p.k, p.v, p.gate, p.beta, state, 1);
  }
  /** x `[headDim, heads, rows]`, positions I32 `[rows]`, freqFactors F32 `[dimension / 2]` or none. */
  rope(x: TensorPtr, positions: TensorPtr, freqFactors: TensorPtr | undefined, p: RopeConfig): TensorPtr {
    return this.#device.native.ggml_rope_ext(
      this.#context,
      x,
      positions,
      freqFactors ?? nullPtr(),
      p.dimension,
      p.mode === 'neox' ? 2 : 0,
      p.originalContextLength,
      p.freqBase,
      p.freqScale,
      p.extFactor,
      p.attnFactor,
      p.betaFast,
      p.betaSlow,
    );
  }
  reshape2d(x: TensorPtr, ne0: number, ne1: number): TensorPtr {
    return this.#device.native.ggml_reshape_2d(this.#context, x, ne0, ne1);
  }
  reshape3d(x: TensorPtr, ne0: number, ne1: number, ne2: number): TensorPtr {
    return this.#device.native.ggml_reshape_3d(this.#context, x, ne0, ne1, ne2);
  }
  /** `nb`: strides in bytes of dimensions 1 and 2. */
  view3d(
    x: TensorPtr,
    ne: readonly [number, number, number],
    nb: readonly [number, number],
    offset: number,
  ): TensorPtr {
    return this.#device.native.ggml_view_3d(this.#context, x, ne[0], ne[1], ne[2], nb[0], nb[1], offset);
  }
  // biome-ignore lint/complexity/useMaxParams: the parameters of ggml's function, in its order
  view2d(x: TensorPtr, ne0: number, ne1: number, nb1: number, offset: number): TensorPtr {
    return this.#device.native.ggml_view_2d(this.#context, x, ne0, ne1, nb1, offset);
  }
  getRows(x: TensorPtr, rows: TensorPtr): TensorPtr {
    return this.#device.native.ggml_get_rows(this.#context, x, rows);
  }
  /** Writes the rows of `x` into the rows `rows` (I64) of `target`, converting to its type. */
  setRows(target: TensorPtr, x: TensorPtr, rows: TensorPtr): TensorPtr {
    return this.#device.native.ggml_set_rows(this.#context, target, x, rows);
  }
  /** q `[d, rows, heads]`, k and v `[d, kv, headsKv]`, mask F16 `[kv, rows]` or none -> F32 `[d, heads, rows]`. */
  // biome-ignore lint/complexity/useMaxParams: the parameters of ggml's function, in its order
  flashAttention(q: TensorPtr, k: TensorPtr, v: TensorPtr, mask: TensorPtr | undefined, scale: number): TensorPtr {
    return this.#device.native.ggml_flash_attn_ext(this.#context, q, k, v, mask ?? nullPtr(), scale, 0, 0);
  }
  /** Gives attention a score per head, F32 `[heads]`, which is added to the softmax without a value. */
  addSinks(attention: TensorPtr, sinks: TensorPtr): void {
    this.#device.native.ggml_flash_attn_ext_add_sinks(attention, sinks);
  }

  /** Vulkan adds and normalizes a single row in one kernel, with other bits than several rows, unless there is a view between. */
  #separate(x: TensorPtr): TensorPtr {
    if (this.#scheduler === undefined || !this.#device.isExact) return x;
    return this.view3d(x, this.#countsOf(x), [this.strideOf(x, 1), this.strideOf(x, 2)], 0);
  }

  /**
   * F32 `[ne0, ne1]` computed by a C function of Kvasir, `void (*)(tensor, thread, threads, userdata)`, which all of
   * ggml's threads call. `x`: the tensor's source, or its sources. The graph keeps a reference to `owner`, which keeps
   * `userdata` in memory, because the garbage collector does not know C's pointers.
   */
  // biome-ignore lint/complexity/useMaxParams: the parameters of ggml's function, in its order
  custom(
    x: TensorPtr | readonly TensorPtr[],
    ne0: number,
    ne1: number,
    compute: RawPtr,
    userdata: RawPtr,
    owner: object,
  ): TensorPtr {
    this.#owners.add(owner);
    const allThreads = -1;
    const sources = BigUint64Array.from([x].flat(), BigInt);
    const { native } = this.#device;
    const count = sources.length;
    return native.ggml_custom_4d(this.#context, F32.id, ne0, ne1, 1, 1, sources, count, compute, allThreads, userdata);
  }

  /** The result of a function has the shape of its first source. Sources are contiguous. `parameters`: its userdata. */
  #customLike(
    compute: RawPtr,
    sources: readonly [TensorPtr, ...TensorPtr[]],
    parameters?: Float32Array<ArrayBuffer>,
  ): TensorPtr {
    const [ne0, ne1, ne2] = this.#countsOf(sources[0]);
    assert(
      sources.every((x) => this.#isContiguous(x)),
      'the sources of a kernel are contiguous',
    );
    const { native } = this.#device;
    const userdata = parameters === undefined ? nullPtr<RawPtr>() : (native.addressOf(parameters.buffer) as RawPtr);
    const flat = this.custom(sources, ne0, ne1 * ne2, compute, userdata, parameters ?? this);
    return ne2 === 1 ? flat : this.reshape3d(flat, ne0, ne1, ne2);
  }

  #isContiguous(x: TensorPtr): boolean {
    const row = F32.typeSize * this.#countOf(x, 0);
    return this.strideOf(x, 1) === row && this.strideOf(x, 2) === row * this.#countOf(x, 1);
  }

  #countsOf(x: TensorPtr): [number, number, number] {
    return [this.#countOf(x, 0), this.#countOf(x, 1), this.#countOf(x, 2)];
  }

  #countOf(x: TensorPtr, dimension: number): number {
    return Number(this.#fields.getBigInt64(this.#fieldsOf(x) + tensorField.ne + 8 * dimension, true));
  }

  /**
   * A view of the same bytes as elements of another type, from a byte offset. `nb`: the strides in bytes of dimensions
   * 1 and 2. C has no such view, so this method writes the struct of a new view.
   */
  // biome-ignore lint/complexity/useMaxParams: the parameters of ggml's views, in their order
  reinterpret(
    x: TensorPtr,
    type: GgmlType,
    ne: readonly [number, number, number],
    nb: readonly [number, number],
    offset = 0,
  ): TensorPtr {
    const view = this.#device.native.ggml_view_1d(this.#context, x, 1, offset);
    const at = this.#fieldsOf(view);
    this.#fields.setInt32(at + tensorField.type, type.id, true);
    this.#setInt64(at + tensorField.nb, type.typeSize);
    for (let i = 0; i < 3; i++) this.#setInt64(at + tensorField.ne + 8 * i, ne[i] ?? 1);
    for (let i = 0; i < 2; i++) this.#setInt64(at + tensorField.nb + 8 * (i + 1), nb[i] ?? 0);
    this.#setInt64(at + tensorField.nb + 24, nb[1] * ne[2]);
    return view;
  }

  /** Adds a node that writes its result, contiguous F32, into `target` at a byte offset, instead of into its own memory. */
  placeInto(node: TensorPtr, target: TensorPtr, offset: number): void {
    if (this.#scheduler !== undefined) {
      this.#scheduler.keepOnGpu(target);
      // The CPU cannot write to the memory of a GPU.
      if (!this.#scheduler.supports(node)) {
        const { native } = this.#device;
        const count = Number(native.ggml_nbytes(node)) / F32.typeSize;
        this.expand(this.copyInto(node, native.ggml_view_1d(this.#context, target, count, offset)));
        return;
      }
      this.#scheduler.keepOnGpu(node);
    }
    const at = this.#fieldsOf(node);
    this.#setInt64(at + tensorField.viewSource, target);
    this.#setInt64(at + tensorField.viewOffset, offset);
    this.expand(node);
  }

  /** Adds a node and its sources; nodes run in the order in which they are added. */
  expand(node: TensorPtr): void {
    this.#device.native.ggml_build_forward_expand(this.#graph, node);
  }

  /** Adds a node whose result is read after the run. */
  output(node: TensorPtr): void {
    this.#device.native.ggml_set_output(node);
    this.expand(node);
  }

  /** ne0. */
  columnCountOf(tensor: TensorPtr): number {
    return Number(this.#fields.getBigInt64(this.#fieldsOf(tensor) + tensorField.ne, true));
  }

  /** ne1. */
  rowCountOf(tensor: TensorPtr): number {
    return Number(this.#fields.getBigInt64(this.#fieldsOf(tensor) + tensorField.ne + 8, true));
  }

  /** Bytes from one element to the next in a dimension. */
  strideOf(tensor: TensorPtr, dimension: number): number {
    return Number(this.#fields.getBigInt64(this.#fieldsOf(tensor) + tensorField.nb + 8 * dimension, true));
  }

  /** Allocates memory for every tensor; afterwards inputs can be written. Throws `outOfNativeMemory`. */
  allocate(): void {
    const memory = assertDefined(this.#results ?? this.#scheduler, 'a graph was begun');
    if (!memory.allocate(this.#graph)) throw this.#outOfMemory();
  }

  /** Writes an input at a byte offset. An input that no node reads has no memory and needs no data. */
  write(tensor: TensorPtr, data: ArrayBufferView, offset = 0): void {
    if (this.#dataPointer(tensor) === 0) return;
    if (this.#device.kind !== 'cpu') {
      this.#device.native.ggml_backend_tensor_set(tensor, data, offset, data.byteLength);
      return;
    }
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    this.dataOf(tensor, Uint8Array).set(bytes, offset);
  }

  read(tensor: TensorPtr, into: ArrayBufferView): void {
    this.#device.native.ggml_backend_tensor_get(tensor, into, 0, into.byteLength);
  }

  /** The first elements of the tensor's data (default: all) in place, on a CPU only, valid until the next `allocate`. */
  dataOf<Data>(tensor: TensorPtr, Data: TypedArrayOf<Data>, length?: number): Data {
    const results = assertDefined(this.#results, "a GPU's data cannot be read in place");
    const at = this.#fieldsOf(tensor);
    const buffer = Number(this.#fields.getBigUint64(at + tensorField.buffer, true)) as BufferPtr;
    const size = Number(this.#device.native.ggml_nbytes(tensor));
    const { buffer: memory, byteOffset, byteLength } = results.bytesAt(this.#dataPointer(tensor), size, buffer);
    const most = byteLength / Data.BYTES_PER_ELEMENT;
    assert(length === undefined || length <= most, 'the elements belong to the tensor');
    return new Data(memory, byteOffset, length ?? most);
  }

  /** Runs the graph on the device's thread; the event loop stays free. Throws `outOfNativeMemory`. */
  async compute(): Promise<void> {
    const { main } = this.#device;
    const status =
      this.#scheduler === undefined
        ? await this.#device.computeThread().call('ggml_backend_graph_compute', main, this.#graph)
        : await this.#scheduler.compute(this.#graph);
    this.#checkStatus(status);
  }

  /** Runs the graph on this thread. */
  computeNow(): void {
    const { native, main } = this.#device;
    const status = this.#scheduler?.computeNow(this.#graph) ?? native.ggml_backend_graph_compute(main, this.#graph);
    this.#checkStatus(status);
  }

  #checkStatus(status: number): void {
    if (status === ALLOC_FAILED) throw this.#outOfMemory();
    const log = this.#device.native.recentLog().at(-1) ?? '';
    assert(status === 0, `ggml could not compute the graph (status ${status}): ${log}`);
  }

  #outOfMemory(): Error {
    return outOfNativeMemory({
      // ggml does not report the size.
      amount: 'memory',
      purpose: 'a step',
      device: this.#device.description,
      hint: 'Use a smaller --max-num-batched-tokens or a smaller --kv-cache-memory.',
    });
  }

  close(): void {
    const { native } = this.#device;
    if (this.#context !== 0) native.ggml_free(this.#context);
    if (this.#ownsResults) this.#results?.close();
    this.#scheduler?.close();
    this.#context = nullPtr();
    this.#owners.clear();
  }

  #grow(capacity: number): void {
    const { native } = this.#device;
    if (this.#context !== 0) native.ggml_free(this.#context);
    this.#scheduler?.close();
    this.#context = nullPtr();
    this.#capacity = 0;
    const bytes = capacity * native.ggml_tensor_overhead() + native.ggml_graph_overhead_custom(capacity, false) + 4096;
    this.#memory = new ArrayBuffer(bytes);
    this.#fields = new DataView(this.#memory);
    this.#address = Number(koffi.address(this.#memory));
    this.#capacity = capacity;
    if (this.#device.kind === 'gpu') this.#scheduler = new GpuScheduler(this.#device, capacity);
    this.#context = native.ggml_init({ mem_size: bytes, mem_buffer: this.#address, no_alloc: true });
  }

  #fieldsOf(tensor: TensorPtr): number {
    const at = tensor - this.#address;
    assert(at > 0 && at < this.#memory.byteLength, 'a tensor of another context');
    return at;
  }

  /** 0 if the tensor has no memory. */
  #dataPointer(tensor: TensorPtr): number {
    return Number(this.#fields.getBigUint64(this.#fieldsOf(tensor) + tensorField.data, true));
  }

  #setInt64(at: number, value: number): void {
    this.#fields.setUint32(at, value >>> 0, true);
    this.#fields.setUint32(at + 4, Math.floor(value / 2 ** 32), true);
  }
}
