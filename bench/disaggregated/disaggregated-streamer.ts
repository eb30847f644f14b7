import type { Streamer } from '../interactive/streamer.ts';
import type { ServerPeer } from '../subject/server-peer.ts';

/** As a router sends a request: the prompt to one server, and then the request with its answer to the other. */
export function disaggregatedStreamer(name: string, prefill: ServerPeer, decode: ServerPeer): Streamer {
  return {
    name,
    async *stream(prompt, maxTokens) {
      let transfer: unknown;
      const remote = { do_remote_decode: true, do_remote_prefill: false };
      for await (const { kvTransferParams } of prefill.complete(prompt, 1, remote)) transfer ??= kvTransferParams;
      for await (const { tokens } of decode.complete(prompt, maxTokens, transfer))
        if (tokens.length > 0) yield tokens.length;
    },
  };
}
