import { assert } from '../../base/assert.ts';

/**
 * For each suffix of a text that occurred before: its place in a tree. `nodes[length]` is the node at the end of the edge on which the
 * suffix of this length ends. The suffix of length 0 is at a root.
 */
export interface SuffixPlaces {
  readonly nodes: Int32Array;
  /** Of the longest suffix that occurred before. */
  length: number;
}

/** The continuation of a string, see `SuffixTree.continuation`. */
export interface CountedTokens {
  readonly tokens: Int32Array;
  readonly shares: Float64Array;
}

/**
 * All strings of up to `depthMax` tokens of one or several texts, and how often each occurred. An edge stands for tokens that always followed
 * each other, so a text of n tokens has at most 2n nodes.
 *
 *   of "a b c a b d":   root --a b--> (2 times) --c a b d
 *                        |             +--------d
 *                        +---b----> (2 times) --c a b d
 *                        |             +--------d
 *                        +---c a b d
 *                        +---d
 *
 * An appended token moves the places of all suffixes that occurred before, at most `depthMax`. Each other suffix has a leaf already, whose edge
 * ends with the text, as in Ukkonen's construction. So the work for a token is the length of its longest match.
 *
 * Texts of different roots share nothing. They are written one after the other. This class does not forget: its owner replaces it.
 */
export class SuffixTree {
  readonly depthMax: number;
  /** All texts, each with `END` after it. */
  #text: Int32Array;
  #length = 0;
  /** The string of a node is in the text from `#start` on, and has `#depth` tokens. A leaf has `depthMax`, but its text may end before. */
  #start: Int32Array;
  #depth: Int32Array;
  #parent: Int32Array;
  /** How often the first token of the edge to this node followed the parent's string. */
  #count: Int32Array;
  /** The sum over the children. */
  #followed: Int32Array;
  /** The child with the largest count, of equal ones the latest. 0: a leaf. */
  #best: Int32Array;
  /** Nodes by hash of their parent and first token. 0: empty. The size is a power of two. */
  #slots: Int32Array;
  /** Nodes in use. There is no node 0: the number 0 means that there is no node. */
  #nodes = 1;
  /** Of the text that is being written. */
  readonly #places: SuffixPlaces;

  /** `capacity`: tokens for which there is room before the tree grows. */
  constructor(depthMax: number, capacity: number) {
    assert(depthMax >= 1 && capacity >= 1, `a suffix tree of depth ${depthMax} for ${capacity} tokens`);
    this.depthMax = depthMax;
    const nodes = 2 ** Math.ceil(Math.log2(2 * capacity + 2));
    this.#text = new Int32Array(capacity);
    this.#start = new Int32Array(nodes);
    this.#depth = new Int32Array(nodes);
    this.#parent = new Int32Array(nodes);
    this.#count = new Int32Array(nodes);
    this.#followed = new Int32Array(nodes);
    this.#best = new Int32Array(nodes);
    this.#slots = new Int32Array(2 * nodes);
    this.#places = this.places();
  }

  /** Tokens of all texts, and one for the end of each. */
  get length(): number {
    return this.#length;
  }

  get byteLength(): number {
    const perNode = [this.#start, this.#depth, this.#parent, this.#count, this.#followed, this.#best];
    return [this.#text, this.#slots, ...perNode].reduce((sum, array) => sum + array.byteLength, 0);
  }

  /** Room for the suffixes of a text; then call `restart`. */
  places(): SuffixPlaces {
    return { nodes: new Int32Array(this.depthMax), length: 0 };
  }

  addRoot(): number {
    return this.#add(0, 0, 0, 0);
  }

  /** Begins to write a text. */
  begin(root: number): void {
    restart(this.#places, root);
  }

  /** The suffixes of the text that is being written, without the text itself. Valid until the next token. */
  get written(): SuffixPlaces {
    return this.#places;
  }

  append(token: number): void {
    assert(token >= 0, `a token ${token}`);
    const position = this.#push(token);
    const places = this.#places;
    const { nodes } = places;
    let longest = 0;
    for (let length = places.length; length >= 0; length--) {
      let node = this.#nodeAt(nodes[length]!, length);
      let next = 0;
      if (length === this.#depth[node]) {
        next = this.#child(node, token);
        if (next !== 0) this.#enter(next);
      } else if (this.#text[this.#start[node]! + length] === token) next = node;
      else node = this.#split(node, length);
      if (next === 0) this.#addLeaf(node, position - length, token);
      else if (longest === 0 && length + 1 < this.depthMax) longest = length + 1;
      if (length + 1 < this.depthMax) nodes[length + 1] = next;
    }
    places.length = longest;
  }

  /** Ends the text: what follows in `#text` is another text. */
  end(): void {
    const { nodes, length: longest } = this.#places;
    // These suffixes end within edges, which other texts may have to split. A node at each end keeps counts right.
    for (let length = longest; length > 0; length--) {
      const node = this.#nodeAt(nodes[length]!, length);
      if (length < this.#depth[node]!) this.#split(node, length);
    }
    this.#push(END);
    this.#places.length = 0;
  }

  /** A text that is not written got a token. Its places must be new since the last `append`. */
  follow(places: SuffixPlaces, token: number): void {
    const { nodes } = places;
    let length = Math.min(places.length, this.depthMax - 2);
    let next = 0;
    // If a suffix occurred with the token, all shorter ones did.
    while (length >= 0) {
      next = this.#next(nodes[length]!, length, token);
      if (next !== 0) break;
      length--;
    }
    places.length = length + 1;
    for (; length >= 0; length--) {
      nodes[length + 1] = next;
      if (length > 0) next = this.#next(nodes[length - 1]!, length - 1, token);
    }
  }

  /**
   * The most frequent continuation of the last `length` tokens, of which at least the first exists: at most `countMax` tokens, as long as their
   * share of all occurrences is at least `shareMin`. If it reaches the end of the text that is being written, it continues with itself.
   */
  continuation(places: SuffixPlaces, length: number, countMax: number, shareMin: number): CountedTokens | undefined {
    const tokens = new Int32Array(countMax);
    const shares = new Float64Array(countMax);
    let node = this.#nodeAt(places.nodes[length]!, length);
    let count = 0;
    let product = 1;
    for (; count < countMax; count++) {
      const depth = length + count;
      shares[count] = 1;
      if (depth === this.#depth[node]) {
        const best = this.#best[node]!;
        if (best === 0) break;
        shares[count] = this.#count[best]! / this.#followed[node]!;
        product *= shares[count]!;
        if (product < shareMin) break;
        node = best;
      }
      const at = this.#start[node]! + depth;
      const token = at < this.#length ? this.#text[at]! : tokens[at - this.#length]!;
      if (token === END) break;
      tokens[count] = token;
    }
    return count === 0 ? undefined : { tokens: tokens.subarray(0, count), shares: shares.subarray(0, count) };
  }

  /** No token followed the last `length` tokens where they occurred before: texts ended there. */
  isEnd({ nodes }: SuffixPlaces, length: number): boolean {
    const node = this.#nodeAt(nodes[length]!, length);
    if (length === this.#depth[node]) return this.#best[node] === 0;
    return this.#text[this.#start[node]! + length] === END;
  }

  /** Called by tests: O(nodes). */
  checkInvariants(): void {
    const followed = new Int32Array(this.#nodes);
    for (let node = 1; node < this.#nodes; node++) {
      const parent = this.#parent[node]!;
      if (parent === 0) continue;
      const depth = this.#depth[parent]!;
      assert(depth < this.#depth[node]!, `node ${node} is not below its parent`);
      assert(this.#depth[node]! <= this.depthMax, `node ${node} has depth ${this.#depth[node]!}`);
      assert(this.#child(parent, this.#text[this.#start[node]! + depth]!) === node, `node ${node} is not found`);
      assert(this.#count[node]! > 0, `node ${node} never occurred`);
      assert(this.#count[this.#best[parent]!]! >= this.#count[node]!, `node ${node} occurred more often than the best`);
      followed[parent]! += this.#count[node]!;
    }
    for (let node = 1; node < this.#nodes; node++)
      assert(followed[node] === this.#followed[node], `the children of node ${node} occurred ${followed[node]} times`);
  }

  #push(token: number): number {
    if (this.#length === this.#text.length) this.#text = grown(this.#text);
    this.#text[this.#length] = token;
    return this.#length++;
  }

  #next(node: number, length: number, token: number): number {
    if (length === this.#depth[node]) return this.#child(node, token);
    return this.#text[this.#start[node]! + length] === token ? node : 0;
  }

  /** The edge may have been split since the place was noted. */
  #nodeAt(noted: number, length: number): number {
    let node = noted;
    while (this.#parent[node] !== 0 && this.#depth[this.#parent[node]!]! >= length) node = this.#parent[node]!;
    return node;
  }

  #enter(node: number): void {
    const parent = this.#parent[node]!;
    this.#count[node]!++;
    this.#followed[parent]!++;
    const best = this.#best[parent]!;
    if (best === 0 || this.#count[node]! >= this.#count[best]!) this.#best[parent] = node;
  }

  #addLeaf(parent: number, start: number, token: number): void {
    const leaf = this.#add(parent, start, this.depthMax, 0);
    this.#slots[this.#slotOf(parent, token)] = leaf;
    this.#enter(leaf);
  }

  /** Makes a node at this length on the edge to `node`, and returns it. The suffixes of the written text that end there have not passed it yet. */
  #split(node: number, length: number): number {
    const next = this.#text[this.#start[node]! + length]!;
    if (next === END) {
      // The leaf ends there.
      this.#depth[node] = length;
      return node;
    }
    const { nodes } = this.#places;
    let waiting = 0;
    for (let other = length; other > 0; other--) if (this.#nodeAt(nodes[other]!, other) === node) waiting++;
    const parent = this.#parent[node]!;
    const start = this.#start[node]!;
    const upper = this.#add(parent, start, length, this.#count[node]!);
    this.#slots[this.#slotOf(parent, this.#text[start + this.#depth[parent]!]!)] = upper;
    if (this.#best[parent] === node) this.#best[parent] = upper;
    this.#parent[node] = upper;
    this.#slots[this.#slotOf(upper, next)] = node;
    this.#count[node]! -= waiting;
    this.#followed[upper] = this.#count[node]!;
    this.#best[upper] = node;
    return upper;
  }

  #add(parent: number, start: number, depth: number, count: number): number {
    if (this.#nodes === this.#start.length) this.#grow();
    const node = this.#nodes++;
    this.#start[node] = start;
    this.#depth[node] = depth;
    this.#parent[node] = parent;
    this.#count[node] = count;
    return node;
  }

  #child(parent: number, token: number): number {
    return this.#slots[this.#slotOf(parent, token)]!;
  }

  /** The slot of the child, or an empty one. */
  #slotOf(parent: number, token: number): number {
    const mask = this.#slots.length - 1;
    const hash = Math.imul(Math.imul(parent, 0x9e3779b1) ^ token, 0x85ebca6b);
    let slot = (hash ^ (hash >>> 15)) & mask;
    for (;;) {
      const node = this.#slots[slot]!;
      if (node === 0) return slot;
      if (this.#parent[node] === parent && this.#text[this.#start[node]! + this.#depth[parent]!] === token) return slot;
      slot = (slot + 1) & mask;
    }
  }

  #grow(): void {
    this.#start = grown(this.#start);
    this.#depth = grown(this.#depth);
    this.#parent = grown(this.#parent);
    this.#count = grown(this.#count);
    this.#followed = grown(this.#followed);
    this.#best = grown(this.#best);
    this.#slots = new Int32Array(2 * this.#slots.length);
    for (let node = 1; node < this.#nodes; node++) {
      const parent = this.#parent[node]!;
      if (parent === 0) continue;
      this.#slots[this.#slotOf(parent, this.#text[this.#start[node]! + this.#depth[parent]!]!)] = node;
    }
  }
}

/** The text begins: only the suffix of length 0. */
export function restart(places: SuffixPlaces, root: number): void {
  places.nodes[0] = root;
  places.length = 0;
}

function grown(array: Int32Array): Int32Array {
  const copy = new Int32Array(2 * array.length);
  copy.set(array);
  return copy;
}

/** After each text. No token equals it. */
const END = -1;
