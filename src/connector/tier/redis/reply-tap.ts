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
  /** Called for a reply that is longer than any that a tier asks for. The client would keep it in memory. */
  readonly refuse: (reason: string) => void;
}

/** `body`: a value for the client. `end`: the line end after a payload. `refused`: all bytes are dropped. */
type State = 'line' | 'body' | 'header' | 'payload' | 'end' | 'refused';

/** A longer line is not Redis's protocol. */
const lineMax = 65_536;
const elementsMax = 65_536;
/** A value under the key of a block may be longer than the block: that is a miss. */
const otherBytesMax = 16 * 1024 ** 2;
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
  /** Bytes until the end of the state. */
  #left = 0;
  #sink: OpenSink | undefined;

  constructor(options: ReplyTapOptions) {
    this.#options = options;
  }

  /** Keeps none of the bytes. */
  write(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) at += this.#take(bytes.subarray(at));
  }

  /** Returns how many bytes it has taken, which is at least one. */
  #take(bytes: Uint8Array): number {
    if (this.#state === 'line') return this.#takeLine(bytes);
    if (this.#state === 'refused') return bytes.length;
    const part = bytes.subarray(0, this.#left);
    if (this.#state === 'header') this.#header.set(part, headerBytes - this.#left);
    else if (this.#state === 'body') this.#options.pass(Buffer.from(part));
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
    const length = this.#text.startsWith('$') ? Number(this.#text.slice(1, -2)) : -1;
    if (length === valueBytes) {
      this.#begin('header', headerBytes);
      this.#text = '';
      return;
    }
    if (length > valueBytes + otherBytesMax) {
      this.#refuse(`a value of ${length} bytes`);
      return;
    }
    if (this.#text.startsWith('*') && Number(this.#text.slice(1, -2)) > elementsMax) {
      this.#refuse(`more than ${elementsMax} elements`);
      return;
    }
    this.#passText();
    // With the end of the line after the body.
    if (length >= 0) this.#begin('body', length + 2);
  }

  /** The end of a state. */
  #next(): void {
    const { valueBytes, sinks, pass } = this.#options;
    const payloadBytes = valueBytes - headerBytes;
    if (this.#state === 'header') {
      this.#sink = sinks.take(this.#header);
      if (this.#sink !== undefined) {
        this.#begin('payload', payloadBytes);
        return;
      }
      pass(Buffer.concat([ascii(`$${valueBytes}\r\n`), this.#header]));
      this.#begin('body', payloadBytes + 2);
    } else if (this.#state === 'payload') this.#begin('end', 2);
    else {
      if (this.#state === 'end') this.#endBlock();
      this.#begin('line', 0);
    }
  }

  #refuse(what: string): void {
    this.#text = '';
    this.#state = 'refused';
    this.#options.refuse(`the server sends ${what}`);
  }

  #begin(state: State, left: number): void {
    this.#state = state;
    this.#left = left;
  }

  /** The rest of a block whose sink was removed is dropped. */
  #fill(part: Uint8Array): void {
    const { sinks, pass } = this.#options;
    if (this.#sink !== undefined && sinks.isOpen(this.#sink))
      this.#sink.into.set(part, this.#sink.into.length - this.#left);
    // The client sees that the server answers.
    pass(empty);
  }

  #endBlock(): void {
    if (this.#sink !== undefined) this.#sink.isFilled = true;
    this.#sink = undefined;
    this.#options.pass(Buffer.concat([ascii(`$${headerBytes}\r\n`), this.#header, ascii('\r\n')]));
  }

  #passText(): void {
    this.#options.pass(Buffer.from(this.#text, 'latin1'));
    this.#text = '';
  }
}

const ascii = (text: string): Buffer => Buffer.from(text, 'latin1');
