/**
 * One stream for the client from the streams of several servers. Each server sends the same completion from its first token on, because
 * the tokens are a function of the prompt, the parameters and the seed. So a stream that breaks is asked for again elsewhere, and the part
 * that the client has is left out:
 *
 *     server A:   Once upon a ti|            the process is killed
 *     server B:   Once upon a time there was a fox.
 *     client:     Once upon a ti|me there was a fox.
 *
 * Servers may cut the same text into other chunks, so lengths are compared and not chunks.
 */
type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
type JsonObject = { readonly [name: string]: Json };

/** Texts and lists that grow with the chunks. Every other field is sent once. */
const growing = new Set([
  ...['text', 'content', 'reasoning', 'reasoning_content', 'refusal', 'arguments', 'token_ids'],
  ...['tokens', 'token_logprobs', 'top_logprobs', 'text_offset'],
]);
/** Lists whose elements say which choice or which call of a tool they continue. */
const indexed = new Set(['choices', 'tool_calls']);
/** Clients expect these in each chunk, also if they say nothing. */
const expected: JsonObject = { delta: {}, text: '' };
/** The same in each chunk: those of the first server. */
const repeated = ['id', 'object', 'created', 'model', 'system_fingerprint'];

export class ResumedStream {
  /** Sent to the client: the length of growing fields, 1 for others. */
  readonly #sent = new Map<string, number>();
  /** Received from the present server. */
  #received = new Map<string, number>();
  readonly #head: Record<string, Json> = {};

  /** Another server begins from the first token. */
  restart(): void {
    this.#received = new Map();
  }

  /** The part of a chunk that the client does not have; undefined: it has all. */
  take(chunk: JsonObject): JsonObject | undefined {
    for (const name of repeated) if (name in chunk) this.#head[name] ??= chunk[name]!;
    const { usage, ...rest } = chunk;
    const isLast = Array.isArray(chunk.choices) && chunk.choices.length === 0;
    const fresh = this.#rest('', isLast ? chunk : rest);
    if (fresh === undefined) return undefined;
    return { ...this.#head, choices: [], ...(fresh as JsonObject), ...(usage === undefined ? {} : { usage }) };
  }

  /** Undefined: the client has it. */
  #rest(path: string, value: Json): Json | undefined {
    if (value === null || typeof value !== 'object' || Array.isArray(value)) return this.#once(path, value);
    const fresh: Record<string, Json> = {};
    let hasNew = false;
    for (const [name, field] of Object.entries(value as JsonObject)) {
      if (path === '' && repeated.includes(name)) continue;
      const at = `${path}.${name}`;
      const left = indexed.has(name) && Array.isArray(field) ? this.#elements(at, field) : this.#field(at, name, field);
      if (left === undefined) {
        if (name in expected) fresh[name] = expected[name]!;
        continue;
      }
      fresh[name] = left;
      if (name !== 'index' && left !== null && left !== '') hasNew = true;
    }
    return hasNew ? fresh : undefined;
  }

  #field(path: string, name: string, field: Json): Json | undefined {
    if (name === 'index' || field === null) return field;
    const isGrowing = growing.has(name) && (typeof field === 'string' || Array.isArray(field));
    return isGrowing ? this.#tail(path, field as string | readonly Json[]) : this.#rest(path, field);
  }

  #elements(path: string, elements: readonly Json[]): Json | undefined {
    const left = elements.map((element) => this.#rest(`${path}.${(element as JsonObject).index}`, element));
    const fresh = left.filter((element) => element !== undefined);
    return fresh.length === 0 ? undefined : fresh;
  }

  /** The end of a text or list that the client does not have. */
  #tail(path: string, value: string | readonly Json[]): string | readonly Json[] | undefined {
    const before = this.#received.get(path) ?? 0;
    const sent = this.#sent.get(path);
    const after = before + value.length;
    this.#received.set(path, after);
    if (sent !== undefined && after <= sent && (value.length > 0 || before < sent)) return undefined;
    this.#sent.set(path, after);
    return value.slice(Math.max(0, (sent ?? 0) - before));
  }

  #once(path: string, value: Json): Json | undefined {
    if (this.#sent.has(path)) return undefined;
    this.#sent.set(path, 1);
    return value;
  }
}
