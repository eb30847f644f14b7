import type { ComputeDevice } from '../../ggml/device.ts';
import { type AdapterBase, type AdapterSource, openAdapter } from '../../ggml/lora-adapter.ts';
import type { RunnerAdapters } from '../contract.ts';
import type { LowRankKernels } from '../operations/row-operations.ts';
import type { PlacedMatrix } from '../weight-store.ts';
import { type LoadedAdapter, loadAdapter } from './loaded-adapter.ts';

export interface AdapterStoreParts {
  readonly device: ComputeDevice;
  readonly base: AdapterBase;
  /** The matrices of the runner. */
  readonly matrices: readonly PlacedMatrix[];
  readonly hasEmbedding: boolean;
  /** Undefined: ggml computes. */
  readonly kernels: LowRankKernels | undefined;
  /** The step that runs. */
  idle(): Promise<unknown> | undefined;
}

/** The LoRA adapters that one runner has, by their digests. */
export class AdapterStore implements RunnerAdapters {
  readonly #parts: AdapterStoreParts;
  readonly #loaded = new Map<string, LoadedAdapter>();
  #isClosed: boolean = false;

  constructor(parts: AdapterStoreParts) {
    this.#parts = parts;
  }

  get kernels(): LowRankKernels | undefined {
    return this.#parts.kernels;
  }

  has(digest: string): boolean {
    return this.#loaded.has(digest);
  }

  get(digest: string): LoadedAdapter | undefined {
    return this.#loaded.get(digest);
  }

  async load(source: AdapterSource): Promise<void> {
    if (this.#loaded.has(source.digest)) return;
    const { device, base, matrices, hasEmbedding } = this.#parts;
    const isTransposed = this.kernels !== undefined;
    const loaded = await loadAdapter(device, await openAdapter(source, base), { matrices, hasEmbedding, isTransposed });
    // Another call may have loaded the same content meanwhile, and the runner may be closed.
    if (this.#isClosed || this.#loaded.has(source.digest)) loaded.close();
    else this.#loaded.set(source.digest, loaded);
  }

  async unload(digest: string): Promise<void> {
    const loaded = this.#loaded.get(digest);
    if (loaded === undefined) return;
    this.#loaded.delete(digest);
    await this.#parts.idle()?.catch(() => undefined);
    loaded.close();
  }

  close(): void {
    this.#isClosed = true;
    for (const loaded of this.#loaded.values()) loaded.close();
    this.#loaded.clear();
  }
}
