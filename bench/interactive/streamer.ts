import type { AsyncEngine } from '../../src/engine/contract.ts';
import type { ServerPeer } from '../subject/server-peer.ts';

/** An engine that streams answers to requests which arrive at any time: Kvasir, libllama, or a server. */
export interface Streamer {
  readonly name: string;
  /** Yields the number of new tokens, whenever some arrive. Leaving the loop ends the request. */
  stream(prompt: Int32Array, maxTokens: number): AsyncIterable<number>;
}

export function engineStreamer(name: string, engine: AsyncEngine, signal: AbortSignal): Streamer {
  return {
    name,
    async *stream(prompt, maxTokens) {
      const params = { maxTokens, temperature: 0, ignoreEos: true };
      for await (const { tokenIds, finish } of engine.generate({ prompt, params }, { signal })) {
        if (finish?.error !== undefined) throw finish.error;
        if (tokenIds.length > 0) yield tokenIds.length;
      }
    },
  };
}

export function serverStreamer(peer: ServerPeer): Streamer {
  return {
    name: 'server',
    async *stream(prompt, maxTokens) {
      for await (const { tokens } of peer.complete(prompt, maxTokens)) if (tokens.length > 0) yield tokens.length;
    },
  };
}
