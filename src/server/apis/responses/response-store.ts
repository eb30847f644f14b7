import { assert } from '../../../base/assert.ts';
import type { ConversationItem } from './conversation-items.ts';

/** What one response added to its conversation. Later responses of the conversation refer to it. */
interface Turn {
  readonly items: readonly ConversationItem[];
  readonly bytes: number;
  readonly previous: Turn | undefined;
  /** Stored responses and later turns that need this turn. */
  users: number;
}

interface StoredResponse {
  /** The JSON of the response. */
  readonly json: string;
  readonly bytes: number;
  readonly turn: Turn;
  /** By id, for references to them. */
  readonly outputItems: ReadonlyMap<string, ConversationItem>;
}

export interface ResponseToStore {
  readonly id: string;
  readonly json: string;
  /** The id of the response that this one continues. It may have been removed since the request came. */
  readonly history: History | undefined;
  /** The input and the output of the response. */
  readonly items: readonly ConversationItem[];
  readonly outputItems: ReadonlyMap<string, ConversationItem>;
}

/** The responses of a store as plain data, for another process. Several may need the same turn. */
export interface StoredState {
  /** Each after the turn before it, which `previous` names by its place here. */
  readonly turns: readonly { readonly items: readonly ConversationItem[]; readonly previous: number | undefined }[];
  /** Least recently used first. The output is the last items of the turn. */
  readonly responses: readonly {
    readonly id: string;
    readonly json: string;
    readonly turn: number;
    readonly outputIds: readonly string[];
  }[];
}

declare const historyBrand: unique symbol;
/** A conversation up to the end of a stored response. It stays readable if the response is removed. */
export type History = Turn & { readonly [historyBrand]: true };

/** Memory of an entry besides its texts: an upper bound for the objects and map entries. */
const BYTES_PER_ENTRY = 1024;
const BYTES_PER_ITEM = 256;
/** Of a text, in UTF-16 units. */
const BYTES_PER_UNIT = 2;

/**
 * The ended responses of one tenant. All stores of a server have at most `bytesMax` of memory: the store with the most loses the response
 * that was unused for the longest time, so a tenant cannot push out the responses of others. A response
 * can be continued after an earlier response of its conversation was deleted: it keeps the turns that it needs, and they
 * count as long as a stored response needs them.
 *
 *     responses:  A        B        D          B and D continue A
 *     turns:      a <----- b        |
 *                 ^-----------------d
 */
export class ResponseStore {
  readonly #bytesMax: number;
  /** Those that share the memory, this one included. */
  readonly #all: Set<ResponseStore>;
  /** Least recently used first. */
  readonly #responses = new Map<string, StoredResponse>();
  readonly #items = new Map<string, ConversationItem>();
  #bytes = 0;

  /** @param all the stores that share `bytesMax`; this one is added to them */
  constructor(bytesMax: number, all: Set<ResponseStore> = new Set()) {
    this.#bytesMax = bytesMax;
    this.#all = all.add(this);
  }

  /** A longer JSON is not stored. */
  get jsonLengthMax(): number {
    return Math.floor(this.#bytesMax / BYTES_PER_UNIT);
  }

  get size(): number {
    return this.#responses.size;
  }

  /** An upper bound for the memory in use. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Stores a response unless it is larger than the memory. */
  put({ id, json, history, items, outputItems }: ResponseToStore): void {
    assert(!this.#responses.has(id), 'a response is stored once');
    this.#add(id, json, { items, bytes: bytesOf(items), previous: history, users: 0 }, outputItems);
  }

  #add(id: string, json: string, turn: Turn, outputItems: StoredResponse['outputItems']): void {
    const bytes = BYTES_PER_ENTRY + BYTES_PER_UNIT * json.length + outputItems.size * BYTES_PER_ITEM;
    this.#responses.set(id, { json, bytes, turn, outputItems });
    for (const [itemId, item] of outputItems) this.#items.set(itemId, item);
    this.#bytes += bytes;
    this.#count(turn);
    while (this.#bytesOfAll() > this.#bytesMax) {
      const largest = [...this.#all].reduce((most, store) => (store.bytes > most.bytes ? store : most));
      const [oldest] = largest.#responses.keys();
      assert(oldest !== undefined && largest.delete(oldest), 'a store with bytes has responses');
    }
  }

  /** The JSON of a response. */
  json(id: string): string | undefined {
    return this.#use(id)?.json;
  }

  /** The new items of the request for a response. */
  input(id: string): readonly ConversationItem[] | undefined {
    const stored = this.#use(id);
    return stored?.turn.items.slice(0, stored.turn.items.length - stored.outputItems.size);
  }

  /** The conversation up to the end of a response. */
  history(id: string): History | undefined {
    return this.#use(id)?.turn as History | undefined;
  }

  /** An output item of any stored response. */
  item(id: string): ConversationItem | undefined {
    return this.#items.get(id);
  }

  delete(id: string): boolean {
    const stored = this.#responses.get(id);
    if (stored === undefined) return false;
    this.#responses.delete(id);
    for (const itemId of stored.outputItems.keys()) this.#items.delete(itemId);
    this.#bytes -= stored.bytes;
    for (let turn: Turn | undefined = stored.turn; turn !== undefined && --turn.users === 0; turn = turn.previous) {
      this.#bytes -= turn.bytes;
    }
    return true;
  }

  state(): StoredState {
    const places = new Map<Turn, number>();
    const turns: StoredState['turns'][number][] = [];
    for (const { turn } of this.#responses.values()) {
      const missing: Turn[] = [];
      for (let each: Turn | undefined = turn; each !== undefined && !places.has(each); each = each.previous)
        missing.push(each);
      for (const each of missing.reverse()) {
        places.set(each, turns.length);
        turns.push({ items: each.items, previous: each.previous && places.get(each.previous) });
      }
    }
    const responses = Array.from(this.#responses, ([id, { json, turn, outputItems }]) => {
      return { id, json, turn: places.get(turn)!, outputIds: [...outputItems.keys()] };
    });
    return { turns, responses };
  }

  /** Stores the responses of another store. Called first. */
  restore({ turns: given, responses }: StoredState): void {
    assert(this.#responses.size === 0, 'a store is restored first');
    const turns: Turn[] = [];
    for (const { items, previous } of given) {
      const before = previous === undefined ? undefined : turns[previous];
      turns.push({ items, bytes: bytesOf(items), previous: before, users: 0 });
    }
    for (const { id, json, turn: place, outputIds } of responses) {
      const turn = turns[place]!;
      const output = turn.items.slice(turn.items.length - outputIds.length);
      this.#add(id, json, turn, new Map(outputIds.map((itemId, i) => [itemId, output[i]!])));
    }
  }

  /** For tests: recounts everything. */
  checkInvariants(): void {
    const users = new Map<Turn, number>();
    const use = (turn: Turn): void => {
      const before = users.get(turn) ?? 0;
      users.set(turn, before + 1);
      if (before === 0 && turn.previous !== undefined) use(turn.previous);
    };
    let bytes = 0;
    let items = 0;
    for (const stored of this.#responses.values()) {
      bytes += stored.bytes;
      items += stored.outputItems.size;
      use(stored.turn);
    }
    for (const [turn, count] of users) {
      assert(turn.users === count, 'a turn knows the number of its users');
      bytes += turn.bytes;
    }
    assert(bytes === this.#bytes, 'the bytes are those of the responses and their turns');
    assert(items === this.#items.size, 'each item belongs to a stored response');
    assert(this.#bytesOfAll() <= this.#bytesMax, 'the stores are within their limit');
  }

  #bytesOfAll(): number {
    let sum = 0;
    for (const { bytes } of this.#all) sum += bytes;
    return sum;
  }

  /** A response needs its turn, and a turn the turns before it. Those that no stored response needed count from now on. */
  #count(turn: Turn): void {
    for (let each: Turn | undefined = turn; each !== undefined && ++each.users === 1; each = each.previous) {
      this.#bytes += each.bytes;
    }
  }

  #use(id: string): StoredResponse | undefined {
    const stored = this.#responses.get(id);
    if (stored === undefined) return undefined;
    this.#responses.delete(id);
    this.#responses.set(id, stored);
    return stored;
  }
}

/** The items of a conversation, first to last. */
export function itemsOf(history: History | undefined): ConversationItem[] {
  const turns: (readonly ConversationItem[])[] = [];
  for (let turn: Turn | undefined = history; turn !== undefined; turn = turn.previous) turns.push(turn.items);
  return turns.reverse().flat();
}

/** Two bytes for each UTF-16 unit of its texts, and a constant. */
function bytesOf(items: readonly ConversationItem[]): number {
  return items.reduce((sum, item) => {
    const units = Object.values(item).reduce((length: number, text: string) => length + text.length, 0);
    return sum + BYTES_PER_ITEM + 2 * units;
  }, BYTES_PER_ENTRY);
}
