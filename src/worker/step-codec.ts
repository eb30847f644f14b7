/**
 * The message of a step to a worker process. Both ends keep a mirror of each request, so the message has only the new
 * tokens and blocks, not the whole context. `released` removes mirrors. A new process starts without mirrors, and so does
 * its encoder.
 */
import { assert, assertDefined } from '../base/assert.ts';
import type { ConnectorMetadata } from '../connector/connector.ts';
import type { TokenMask } from '../core/constraint.ts';
import type { RequestId, StepId, TokenCount } from '../core/ids.ts';
import type { Drafts, PromptRows, SampleRequest, SequencePlan, Span } from '../core/step.ts';
import { TokenBuffer } from '../core/tokens.ts';
import type { ScheduledStep } from '../scheduler/contract.ts';
import { Int32Reader, Int32Writer } from './int32-stream.ts';
import { applyDelta, TableMirror, writeDelta } from './table-delta.ts';

export interface StepMessage {
  readonly stepId: StepId;
  readonly tokenCount: TokenCount;
  readonly sequenceCount: number;
  readonly released: readonly RequestId[];
  /** Requests that are new to the worker, and sampling parameters: each is sent once. */
  readonly requests: readonly RequestId[];
  /** The adapters of those new requests that have one, in their order. */
  readonly adapters: readonly string[];
  readonly samples: readonly SampleRequest[];
  /**
   * Per sequence: mirror number, flags, new tokens (count, ids), the number of drafts if there are any, spans (count,
   * pairs), rows of the prompt if there are any, the range of layers if not all are computed, drafts (ids, masks), a new mask (count, words), tables (count, deltas), and the deltas of the write tables if they differ. A view,
   * valid until the next step is encoded.
   */
  readonly int32s: Int32Array;
  readonly connectorMetadata?: ConnectorMetadata;
}

const isNew = 1;
const isSampled = 2;
const hasNewSample = 4;
const hasWriteTables = 8;
const hasPromptRows = 16;
/** Instead of the number of top tokens: hidden states are asked for. */
const hiddenStates = -1;
const isMasked = 32;
/** Inside of a string, the mask of a grammar stays the same for many steps. */
const hasNewMask = 64;
const hasDrafts = 128;
const hasLayers = 256;
/** Only of a new request. */
const hasAdapter = 512;

/** What a message has once for each request. */
interface SentOnce {
  readonly requests: RequestId[];
  readonly adapters: string[];
  readonly samples: SampleRequest[];
}

interface SentRequest {
  readonly slot: number;
  tokenCount: number;
  sample: SampleRequest | undefined;
  mask: TokenMask | undefined;
  readonly tables: TableMirror[];
}

/** The engine's end. One per worker process. */
export class StepEncoder {
  readonly #sent = new Map<RequestId, SentRequest>();
  readonly #freeSlots: number[] = [];
  readonly #int32s = new Int32Writer();
  #slotCount = 0;

  /** Requests that have a mirror. */
  get requestCount(): number {
    return this.#sent.size;
  }

  /** Every message must reach the decoder, in order. */
  encode(step: ScheduledStep): StepMessage {
    const { stepId, tokenCount, sequences, released, connectorMetadata } = step;
    for (const id of released) this.#release(id);
    this.#int32s.clear();
    const requests: RequestId[] = [];
    const adapters: string[] = [];
    const samples: SampleRequest[] = [];
    for (const sequence of sequences) this.#encodeSequence(sequence, { requests, adapters, samples });
    const slots = this.#sent.size + this.#freeSlots.length;
    assert(slots === this.#slotCount, `${slots} slots are taken or free, of ${this.#slotCount}`);
    return {
      stepId,
      tokenCount,
      sequenceCount: sequences.length,
      released,
      requests,
      adapters,
      samples,
      int32s: this.#int32s.view(),
      ...(connectorMetadata === undefined ? {} : { connectorMetadata }),
    };
  }

  #encodeSequence(sequence: SequencePlan, { requests, adapters, samples }: SentOnce): void {
    const { requestId, tokens, spans, writeTables, sample, allowed, prompt, drafts, layers, adapter } = sequence;
    const out = this.#int32s;
    let sent = this.#sent.get(requestId);
    let flags = sent === undefined ? isNew : 0;
    if (sent === undefined) {
      sent = this.#add(requestId);
      requests.push(requestId);
      if (adapter !== undefined) {
        flags |= hasAdapter;
        adapters.push(adapter);
      }
    }
    if (sample !== undefined) flags |= isSampled;
    if (sample !== undefined && sample !== sent.sample) {
      flags |= hasNewSample;
      sent.sample = sample;
      samples.push(sample);
    }
    if (writeTables !== undefined) flags |= hasWriteTables;
    if (prompt !== undefined) flags |= hasPromptRows;
    if (drafts !== undefined) flags |= hasDrafts;
    if (layers !== undefined) flags |= hasLayers;
    if (allowed !== undefined) flags |= allowed === sent.mask ? isMasked : isMasked | hasNewMask;
    out.push(sent.slot);
    out.push(flags);
    assert(tokens.length >= sent.tokenCount, `${requestId} has fewer tokens than before`);
    out.push(tokens.length - sent.tokenCount);
    out.pushAll(tokens.view(sent.tokenCount));
    sent.tokenCount = tokens.length;
    if (drafts !== undefined) out.push(drafts.tokens.length);
    out.push(spans.length);
    for (const { start, end } of spans) {
      out.push(start);
      out.push(end);
    }
    if (prompt !== undefined)
      for (const value of [prompt.start, prompt.end, prompt.topCount ?? hiddenStates]) out.push(value);
    if (layers !== undefined) {
      out.push(layers.first);
      out.push(layers.end);
    }
    if (drafts !== undefined) encodeDrafts(out, drafts);
    if (allowed !== undefined && allowed !== sent.mask) {
      encodeMask(out, allowed);
      sent.mask = allowed;
    }
    this.#encodeTables(sent, sequence);
  }

  #encodeTables({ tables }: SentRequest, { blockTables, writeTables }: SequencePlan): void {
    const out = this.#int32s;
    out.push(blockTables.length);
    for (const [group, table] of blockTables.entries()) {
      const mirror = mirrorOf(tables, group);
      writeDelta(out, mirror, table);
      mirror.copy(table);
    }
    if (writeTables === undefined) return;
    assert(writeTables.length === blockTables.length, 'a write table for each group');
    for (const [group, table] of writeTables.entries()) writeDelta(out, blockTables[group]!, table);
  }

  #add(id: RequestId): SentRequest {
    const slot = this.#freeSlots.pop() ?? this.#slotCount++;
    const sent: SentRequest = { slot, tokenCount: 0, sample: undefined, mask: undefined, tables: [] };
    this.#sent.set(id, sent);
    return sent;
  }

  /** Unknown ids are ignored: an earlier process of the worker may have had them. */
  #release(id: RequestId): void {
    const sent = this.#sent.get(id);
    if (sent === undefined) return;
    this.#sent.delete(id);
    this.#freeSlots.push(sent.slot);
  }
}

interface ReceivedOnce {
  readonly requests: Iterator<RequestId>;
  readonly adapters: Iterator<string>;
  readonly samples: Iterator<SampleRequest>;
}

interface KnownRequest {
  readonly id: RequestId;
  readonly adapter: string | undefined;
  readonly tokens: TokenBuffer;
  readonly tables: TableMirror[];
  sample: SampleRequest | undefined;
  mask: TokenMask | undefined;
}

/** The worker's end. A result is valid until the next message is decoded. */
export class StepDecoder {
  readonly #known: (KnownRequest | undefined)[] = [];
  readonly #slots = new Map<RequestId, number>();
  #lastStep = 0;

  get requestCount(): number {
    return this.#slots.size;
  }

  decode(message: StepMessage): ScheduledStep {
    const { stepId, tokenCount, released, connectorMetadata } = message;
    // A message changes the mirrors, so each must arrive once and in order.
    assert(stepId > this.#lastStep, `step ${stepId} arrives after step ${this.#lastStep}`);
    this.#lastStep = stepId;
    for (const id of released) this.#release(id);
    const from = new Int32Reader(message.int32s);
    const once = {
      requests: message.requests.values(),
      adapters: message.adapters.values(),
      samples: message.samples.values(),
    };
    const sequences: SequencePlan[] = [];
    for (let i = 0; i < message.sequenceCount; i++) sequences.push(this.#decodeSequence(from, once));
    const isUsedUp = from.isAtEnd && Object.values(once).every((values) => values.next().done === true);
    assert(isUsedUp, 'the message is longer than its sequences');
    return {
      stepId,
      tokenCount,
      sequences,
      released,
      ...(connectorMetadata === undefined ? {} : { connectorMetadata }),
    };
  }

  #decodeSequence(from: Int32Reader, once: ReceivedOnce): SequencePlan {
    const slot = from.next();
    const flags = from.next();
    const known =
      (flags & isNew) === 0
        ? assertDefined(this.#known[slot], 'the request has a mirror')
        : this.#add(slot, flags, once);
    if ((flags & hasNewSample) !== 0) known.sample = next(once.samples, 'sampling parameters');
    for (const token of from.take(from.next())) known.tokens.push(token as never);
    const drafted = (flags & hasDrafts) === 0 ? 0 : from.next();
    const spans: Span[] = [];
    for (let count = from.next(); count > 0; count--) {
      const span = { start: from.next() as TokenCount, end: from.next() as TokenCount };
      const areTokensKnown = span.start < span.end && span.end <= known.tokens.length + drafted;
      assert(areTokensKnown, `tokens ${span.start} to ${span.end} of the ${known.tokens.length} of ${known.id}`);
      spans.push(span);
    }
    const prompt = (flags & hasPromptRows) === 0 ? undefined : decodePromptRows(from);
    const layers = (flags & hasLayers) === 0 ? undefined : { first: from.next(), end: from.next() };
    const drafts = (flags & hasDrafts) === 0 ? undefined : decodeDrafts(from, drafted);
    if ((flags & hasNewMask) !== 0) known.mask = decodeMask(from);
    const groups = from.next();
    for (let group = 0; group < groups; group++) applyDelta(from, mirrorOf(known.tables, group));
    const sequence: SequencePlan = { requestId: known.id, tokens: known.tokens, spans, blockTables: known.tables };
    return {
      ...sequence,
      ...(known.adapter === undefined ? {} : { adapter: known.adapter }),
      ...(prompt === undefined ? {} : { prompt }),
      ...(layers === undefined ? {} : { layers }),
      ...(drafts === undefined ? {} : { drafts }),
      ...((flags & hasWriteTables) === 0 ? {} : { writeTables: known.tables.map((table) => changed(from, table)) }),
      ...((flags & isSampled) === 0
        ? {}
        : { sample: assertDefined(known.sample, 'the sampling parameters were sent before') }),
      ...((flags & isMasked) === 0 ? {} : { allowed: assertDefined(known.mask, 'the mask was sent before') }),
    };
  }

  #add(slot: number, flags: number, { requests, adapters }: ReceivedOnce): KnownRequest {
    assert(this.#known[slot] === undefined, `slot ${slot} is taken`);
    const id = next(requests, 'request');
    const adapter = (flags & hasAdapter) === 0 ? undefined : next(adapters, 'adapter');
    assert(!this.#slots.has(id), `${id} has slot ${this.#slots.get(id)} and gets slot ${slot}`);
    const tokens = new TokenBuffer([]);
    const known: KnownRequest = { id, adapter, tokens, tables: [], sample: undefined, mask: undefined };
    this.#known[slot] = known;
    this.#slots.set(id, slot);
    return known;
  }

  #release(id: RequestId): void {
    const slot = this.#slots.get(id);
    if (slot === undefined) return;
    this.#slots.delete(id);
    this.#known[slot] = undefined;
  }
}

function encodeMask(out: Int32Writer, mask: TokenMask): void {
  out.push(mask.length);
  out.pushAll(new Int32Array(mask.buffer, mask.byteOffset, mask.length));
}

/** A copy: the message is not kept. */
const decodeMask = (from: Int32Reader): TokenMask => new Uint32Array(from.take(from.next()));

/** Their number is sent before the spans. */
function encodeDrafts(out: Int32Writer, { tokens, allowed }: Drafts): void {
  out.pushAll(tokens);
  out.push(allowed === undefined ? 0 : 1);
  for (const mask of allowed ?? []) encodeMask(out, mask);
}

function decodeDrafts(from: Int32Reader, count: number): Drafts {
  const tokens = from.take(count).slice();
  if (from.next() === 0) return { tokens };
  return { tokens, allowed: Array.from(tokens, () => decodeMask(from)) };
}

function decodePromptRows(from: Int32Reader): PromptRows {
  const rows = { start: from.next() as TokenCount, end: from.next() as TokenCount };
  const topCount = from.next();
  return topCount === hiddenStates ? rows : { ...rows, topCount };
}

function next<T>(values: Iterator<T>, what: string): T {
  const { value, done } = values.next();
  assert(done !== true, `the message has no further ${what}`);
  return value;
}

function mirrorOf(tables: TableMirror[], group: number): TableMirror {
  for (let missing = tables.length; missing <= group; missing++) tables.push(new TableMirror());
  return tables[group]!;
}

function changed(from: Int32Reader, base: TableMirror): TableMirror {
  const table = new TableMirror();
  table.copy(base);
  applyDelta(from, table);
  return table;
}
