/** A server behind the router: requests to it, and whether it answers. */
import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

const probeEveryMs = 1_000;
/** The event loop of a Kvasir server is free while it computes, so a server without an answer for this long hangs. */
const probeTimeoutMs = 5_000;

export interface UpstreamRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Buffer;
}

export class Upstream {
  readonly origin: string;
  /** The last probe succeeded. Servers that do not answer are asked last. */
  isReady = true;
  /** Requests in progress. */
  open = 0;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #closing = new AbortController();
  #lost = new AbortController();

  constructor(origin: string) {
    this.origin = origin;
    void this.#watch();
  }

  /** Sends a request. Rejects if the server dies before the head of its answer, hangs, or if `signal` is aborted. */
  async send({ method, path, headers, body }: UpstreamRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const sent = request(this.origin + path, {
      method,
      agent: this.#agent,
      headers: { ...headers, 'content-length': String(Buffer.byteLength(body)) },
      signal: AbortSignal.any([signal, this.#lost.signal]),
    });
    // `once` rejects if an error comes first; later errors destroy the answer, whose reader sees them.
    sent.on('error', () => undefined);
    const answered = once(sent, 'response') as Promise<[IncomingMessage]>;
    sent.end(body);
    this.open++;
    sent.once('close', () => this.open--);
    const [answer] = await answered;
    return answer;
  }

  close(): void {
    this.#closing.abort();
    this.#agent.destroy();
  }

  /** A process that was killed closes its sockets. A process that hangs does not, so its requests are aborted here. */
  async #watch(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      const health = await this.#probe();
      this.isReady = health === 200;
      if (health === 'hangs') {
        this.#lost.abort();
        this.#lost = new AbortController();
      }
      await sleep(probeEveryMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  async #probe(): Promise<number | 'refused' | 'hangs'> {
    const timeout = AbortSignal.timeout(probeTimeoutMs);
    try {
      const response = await fetch(`${this.origin}/health`, {
        signal: AbortSignal.any([timeout, this.#closing.signal]),
      });
      await response.arrayBuffer();
      return response.status;
    } catch {
      return timeout.aborted ? 'hangs' : 'refused';
    }
  }
}

/** The whole body. Rejects if the server dies before its end. */
export const bodyOf = (answer: IncomingMessage): Promise<Buffer> => buffer(answer);

/** The data of server-sent events. Throws if the connection breaks; ends early if the server closes it. */
export async function* eventsOf(answer: IncomingMessage): AsyncGenerator<string> {
  answer.setEncoding('utf8');
  let text = '';
  for await (const piece of answer as AsyncIterable<string>) {
    text += piece;
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const event = text.slice(0, end);
      text = text.slice(end + 2);
      if (event.startsWith('data: ')) yield event.slice('data: '.length);
    }
  }
}
