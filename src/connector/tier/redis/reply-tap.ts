import { byName } from '../../../base/by-name.ts';
import { headerBytes } from '../block-header.ts';

/** Memory for one block that a command asks for. */
export interface BlockSink {
  readonly into: Uint8Array;
  /** All bytes of the block have arrived, with a header that was accepted. The checksum of the payload is not verified. */
  readonly isFilled: boolean;
}

interface OpenSink extends BlockSink {
  readonly accepts: (header: Uint8Array) => boolean;
  isTaken: boolean;
  isFilled: boolean;
}

/** The blocks that commands in flight ask for, on all connections of a tier. */
export class BlockSinks {
  readonly #open = new Set<OpenSink>();

  /** `accepts`: whether a header is that of the block. */
  add(into: Uint8Array, accepts: (header: Uint8Array) => boolean): BlockSink {
    const sink = { into, accepts, isTaken: false, isFilled: false };
    this.#open.add(sink);
    return sink;
  }

  /** Nothing writes the memory of the sink any more. */
  remove(sink: BlockSink): void {
    this.#open.delete(sink as OpenSink);
  }

  /** The oldest sink for the block. Each sink is taken once. */
  take(header: Uint8Array): OpenSink | undefined {
    for (const sink of this.#open) {
      if (sink.isTaken || !sink.accepts(header)) continue;
      sink.isTaken = true;
      return sink;
    }
    return undefined;
  }

  isOpen(sink: OpenSink): boolean {
    return this.#open.has(sink);
  }
}

export interface ReplyTapOptions {
  /** The length of a stored block: header and payload. */
  readonly valueBytes: number;
  readonly sinks: BlockSinks;
  /** Gets all bytes for the client; it may keep them. */
  readonly pass: (bytes: Buffer) => void;
  /**
   * Called for a reply that is longer or deeper than any that a tier asks for, or that is not Redis's protocol 2: the client
   * would keep it in memory, or take long to read it.
   */
  readonly refuse: (reason: string) => void;
}

/** `body`: a value for the client. `end`: the line end after a payload. `refused`: all bytes are dropped. */
type State = 'line' | 'body' | 'header' | 'payload' | 'end' | 'refused';

/** A longer line is not Redis's protocol. */
const lineMax = 65_536;
/** Of one reply. Descriptions of clusters have a few for each range of slots, of which there are at most 16,384. */
const elementsMax = 2 ** 19;
/** Of arrays in arrays. Descriptions of clusters have four. The client's time for each part of a reply grows with the depth. */
const depthMax = 8;
/** Of one reply. A value under the key of a block may be longer than the block: that is a miss. */
const otherBytesMax = 16 * 1024 ** 2;
/** The client would read other texts as other numbers. */
const lineForms: Readonly<Record<string, RegExp>> = byName({
  '+': /^[^\r]*$/,
  '-': /^[^\r]*$/,
  ':': /^[+-]?\d{1,19}$/,
  $: /^(-1|\d{1,12})$/,
  '*': /^(-1|\d{1,12})$/,
});
const empty = Buffer.alloc(0);

/**
 * Between a socket and the client: writes the payloads of blocks where the tier wants them. The client itself collects the pieces of a
 * value, and copies them into new memory.
 *
 *     server  $1835168 header payload         +OK         $1835168 header (of no sink) payload
 *                         |
 *     client  $160 header | (when filled)     +OK         $1835168 header payload
 *                       sink
 *
 * The client gets a block's header as the whole value, after the payload is in its sink. All other replies pass unchanged, also a value whose
 * header no sink accepts. Replies are Redis's protocol 2; elements of arrays count as replies.
 */
export class ReplyTap {
  readonly #options: ReplyTapOptions;
  readonly #header = new Uint8Array(headerBytes);
  #state: State = 'line';
  /** Of a line. */
  #text = '';
  /** Whole lines for the client. */
  #lines = '';
  /** How many elements each open array of the reply still needs, the outermost first. */
  readonly #arrays: number[] = [];
  /** Of the reply so far. */
  #elements = 0;
  #bytes = 0;
  /** Bytes until the end of the state. */
  #left = 0;
  #sink: OpenSink | undefined;

  constructor(options: ReplyTapOptions) {
    this.#options = options;
  }

  /** Keeps none of the bytes. */
  write(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) at += this.#take(bytes.subarray(at));
    this.#passLines();
  }

  /** Returns how many bytes it has taken, which is at least one. */
  #take(bytes: Uint8Array): number {
    if (this.#state === 'line') return this.#takeLine(bytes);
    if (this.#state === 'refused') return bytes.length;
    const part = bytes.subarray(0, this.#left);
    if (this.#state === 'header') this.#header.set(part, headerBytes - this.#left);
    else if (this.#state === 'body') this.#pass(Buffer.from(part));
    else if (this.#state === 'payload') this.#fill(part);
    this.#left -= part.length;
    if (this.#left === 0) this.#next();
    return part.length;
  }

  #takeLine(bytes: Uint8Array): number {
    const end = bytes.indexOf(0x0a);
    const part = end < 0 ? bytes : bytes.subarray(0, end + 1);
    this.#text += Buffer.from(part.buffer, part.byteOffset, part.length).toString('latin1');
    if (end >= 0) this.#endLine();
    else if (this.#text.length > lineMax) this.#refuse(`a line of more than ${lineMax} bytes`);
    return part.length;
  }

  #endLine(): void {
    const { valueBytes } = this.#options;
    const line = this.#text;
    this.#text = '';
    const kind = line[0]!;
    if (!line.endsWith('\r\n') || lineForms[kind]?.test(line.slice(1, -2)) !== true) {
      this.#refuse(`a line that is not Redis's protocol 2`);
      return;
    }
    const length = kind === '$' || kind === '*' ? Number(line.slice(1, -2)) : -1;
    const reason = this.#excess(kind, line.length, length);
    if (reason !== undefined) {
      this.#refuse(reason);
      return;
    }
    if (kind === '$' && length === valueBytes) this.#begin('header', headerBytes);
    else {
      this.#lines += line;
      // With the end of the line after the body.
      if (kind === '$' && length >= 0) this.#begin('body', length + 2);
      else if (kind === '*' && length > 0) this.#arrays.push(length);
      else this.#endElement();
    }
  }

  /** Counts a line of a reply. Returns what is too much. */
  #excess(kind: string, lineBytes: number, length: number): string | undefined {
    const bytesMax = this.#options.valueBytes + otherBytesMax;
    this.#bytes += lineBytes + (kind === '$' ? Math.max(length, 0) : 0);
    this.#elements += kind === '*' ? Math.max(length, 0) : 0;
    if (kind === '$' && length > bytesMax) return `a value of ${length} bytes`;
    if (this.#bytes > bytesMax) return `a reply of more than ${bytesMax} bytes`;
    if (this.#elements > elementsMax) return `more than ${elementsMax} elements`;
    if (kind === '*' && length > 0 && this.#arrays.length === depthMax) return `arrays in more than ${depthMax} others`;
    return undefined;
  }

  /** A value or an empty array is complete, and with it all arrays of which it is the last element. */
  #endElement(): void {
    while (this.#arrays.length > 0) {
      const left = this.#arrays.at(-1)! - 1;
      if (left > 0) {
        this.#arrays[this.#arrays.length - 1] = left;
        return;
      }
      this.#arrays.pop();
    }
    this.#elements = 0;
    this.#bytes = 0;
  }

  /** The end of a state. */
  #next(): void {
    const { valueBytes, sinks } = this.#options;
    const payloadBytes = valueBytes - headerBytes;
    if (this.#state === 'header') {
      this.#sink = sinks.take(this.#header);
      if (this.#sink !== undefined) {
        this.#begin('payload', payloadBytes);
        return;
      }
      this.#pass(Buffer.concat([ascii(`$${valueBytes}\r\n`), this.#header]));
      this.#begin('body', payloadBytes + 2);
    } else if (this.#state === 'payload') this.#begin('end', 2);
    else {
      if (this.#state === 'end') this.#endBlock();
      this.#begin('line', 0);
      this.#endElement();
    }
  }

  #refuse(what: string): void {
    this.#text = '';
    this.#passLines();
    this.#state = 'refused';
    this.#options.refuse(`the server sends ${what}`);
  }

  #begin(state: State, left: number): void {
    this.#state = state;
    this.#left = left;
  }

  /** The rest of a block whose sink was removed is dropped. */
  #fill(part: Uint8Array): void {
    const { sinks } = this.#options;
    if (this.#sink !== undefined && sinks.isOpen(this.#sink))
      this.#sink.into.set(part, this.#sink.into.length - this.#left);
    // The client sees that the server answers.
    this.#pass(empty);
  }

  #endBlock(): void {
    if (this.#sink !== undefined) this.#sink.isFilled = true;
    this.#sink = undefined;
    this.#pass(Buffer.concat([ascii(`$${headerBytes}\r\n`), this.#header, ascii('\r\n')]));
  }

  #pass(bytes: Buffer): void {
    this.#passLines();
    this.#options.pass(bytes);
  }

  /** Many lines at once: each call of the client takes about a microsecond. */
  #passLines(): void {
    if (this.#lines === '') return;
    const lines = ascii(this.#lines);
    this.#lines = '';
    this.#options.pass(lines);
  }
}

const ascii = (text: string): Buffer => Buffer.from(text, 'latin1');
