import type { AsyncEngine } from '../../src/engine/contract.ts';
import type { PeerFlags } from '../bench-flags.ts';
import { plainToken } from './plain-token.ts';
import { ServerPeer } from './server-peer.ts';
import { ServerSubject } from './server-subject.ts';
import type { Subject } from './subject.ts';

/** A subject that Kvasir is compared with. */
export interface Peer {
  readonly subject: Subject;
  close(): void;
}

export interface PeerOptions {
  readonly engine: AsyncEngine;
  /** Requests that decode at once. */
  readonly batch: number;
  readonly signal: AbortSignal;
}

/** The peer of the command line, or undefined. */
export async function openPeer(
  { peer, peerUrl }: PeerFlags,
  { engine, batch, signal }: PeerOptions,
  openLibllama: () => Peer | Promise<Peer>,
): Promise<Peer | undefined> {
  if (peerUrl !== undefined) {
    const server = await ServerPeer.open(peerUrl, plainToken(engine), signal);
    return { subject: new ServerSubject(server, engine.model.vocabSize, batch), close: () => undefined };
  }
  return peer === 'none' ? undefined : openLibllama();
}
