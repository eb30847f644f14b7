import type { Clock } from '../base/clock.ts';
import type { KvEvent, SchedulerConnector } from '../connector/connector.ts';
import type { BlockId } from '../core/ids.ts';
import type { SchedulerOptions } from '../scheduler/contract.ts';
import type { Inspector } from '../scheduler/inspector.ts';
import type { Prefixes } from '../scheduler/prefixes.ts';
import type { InvariantDepth, SchedulerInterface } from '../scheduler/scheduler-interface.ts';
import type { DraftOrder } from '../scheduler/speculation/speculator.ts';
import type { Tokenizer } from '../tokenizer/contract.ts';
import type { Executor } from '../worker/executor.ts';
import type { Adapters } from './adapters.ts';
import type { ChatMessage, EngineEvent, ModelInfo } from './contract.ts';
import type { KvEventSink } from './kv-events/contract.ts';

/** The components of an engine. The engine owns the executor, the connector, the draft model and the tokenizer: `close` closes them. */
export interface EngineParts extends ChatRenderers {
  readonly scheduler: SchedulerInterface;
  readonly executor: Executor;
  readonly tokenizer: Tokenizer;
  readonly model: ModelInfo;
  /** The scheduler side of the connector, if there is one. The scheduler queries it, the engine closes it. */
  readonly connector?: Pick<SchedulerConnector, 'takeEvents' | 'close' | 'tiers' | 'placeKind'>;
  /** The draft model that the scheduler's speculator uses. */
  readonly draftModel?: DraftModel | undefined;
  /** Publishes what the pool and the connector store and remove. The engine closes it. */
  readonly kvEvents?: KvEventSink | undefined;
  /** Absent: the executor computes no LoRA adapters. */
  readonly adapters?: Adapters;
  /** For long texts and for chats. The engine closes them. */
  readonly threads?: readonly BackgroundThread[];
  /** Shows the scheduler's state; absent: `cache` is undefined. */
  readonly inspector?: Inspector;
  /** The cached prefixes of the scheduler; absent: `kv` is undefined. */
  readonly prefixes?: Prefixes;
  /** Overwrites the KV of lost blocks. Absent: blocks are lost with their content unchanged. */
  readonly overwriteBlocks?: ((blocks: readonly BlockId[]) => void) | undefined;
}

/** A thread for work that would block the event loop (`JobThread`). */
export interface BackgroundThread {
  /** A sentence that says why its work is not possible; undefined if it is. */
  readonly trouble: string | undefined;
  /** Never rejects. */
  keepStarted(): Promise<void>;
  close(): Promise<void>;
}

/** A small model that drafts how texts go on. */
export interface DraftModel {
  /**
   * The most probable tokens after each text, parallel to the order's requests; none where the model has not computed the text yet, or
   * cannot. Does not reject because of a text.
   */
  draft(order: DraftOrder): Promise<readonly Int32Array[]>;
  close(): Promise<void>;
}

/** Absent when the model has no chat template. */
export interface ChatRenderers {
  /** On the caller's thread, without a limit of time. */
  readonly renderChat?: RenderChat;
  /** The same on another thread, within a limit of time. Default: on the caller's thread. */
  readonly renderInBackground?: RenderInBackground;
}

export type RenderInBackground = (...args: [...Parameters<RenderChat>, signal?: AbortSignal]) => Promise<string>;

export type RenderChat = (
  messages: readonly ChatMessage[],
  options: { readonly addGenerationPrompt: boolean; readonly variables?: Readonly<Record<string, unknown>> },
) => string;

export interface EngineSettings {
  /** The options that the scheduler was created with. */
  readonly scheduler: SchedulerOptions;
  /** Requests beyond `maxNumSeqs` that the engine accepts; the next request is refused with `queueFull`. */
  readonly maxWaiting: number;
  /** Gives the seed of a request without a seed; default: 64 random bits. */
  readonly drawSeed?: () => bigint;
  /** Called once when the engine breaks, after every request has ended. Default: a warning of the process. */
  readonly onBroken?: (cause: unknown) => void;
  /** Called with messages for the program that runs the engine, such as recovered load failures. Default: ignored. */
  readonly onEvent?: (event: EngineEvent) => void;
  /** Called with the blocks that stores gained and removed, at most once per step. */
  readonly onKvEvents?: (events: readonly KvEvent[]) => void;
  readonly clock?: Clock;
  /** What the scheduler checks whenever the engine becomes idle. Default `counts`; tests check `all`. */
  readonly invariants?: InvariantDepth;
}
