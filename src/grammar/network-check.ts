import type { Network, State } from './network.ts';
import { NetworkError } from './network-error.ts';

/**
 * Removes edges from which no end can be reached, so that an output never gets stuck, and marks counters whose body can
 * be empty. Throws NetworkError if the grammar matches nothing, or if a rule can begin with itself: the matcher would
 * enter the rule without end.
 */
export function checkNetwork(network: Network, ruleAt: (state: number) => string): void {
  const { counters, start } = network;
  const canFinish = fixpoint(network, true, (state, known) => {
    if (state.isEnd || state.edges.some(({ target }) => known[target] === 1)) return true;
    if (state.jumps.some((target) => known[target] === 1)) return true;
    if (state.calls.some((call) => known[call.start] === 1 && known[call.back] === 1)) return true;
    return state.counters.some((i) => {
      const { min, start: body, exit } = counters[i]!;
      return known[exit] === 1 && (min === 0 || known[body] === 1);
    });
  });
  if (canFinish[start] === 0) throw new NetworkError({ kind: 'matchesNothing' });
  if (canFinish.includes(0)) removeDeadEnds(network, canFinish);
  const canBeEmpty = fixpoint(network, false, (state, known) => {
    if (state.isEnd || state.jumps.some((target) => known[target] === 1)) return true;
    if (state.calls.some((call) => known[call.start] === 1 && known[call.back] === 1)) return true;
    return state.counters.some((i) => {
      const { min, start: body, exit } = counters[i]!;
      return known[exit] === 1 && (min === 0 || known[body] === 1);
    });
  });
  for (const counter of counters) counter.canBeEmpty = canBeEmpty[counter.start] === 1;
  const recursive = findLeftRecursion(network, canBeEmpty);
  if (recursive !== undefined) throw new NetworkError({ kind: 'leftRecursion', rule: ruleAt(recursive) });
}

function removeDeadEnds({ states, counters }: Network, canFinish: Uint8Array): void {
  for (const state of states) {
    state.edges = state.edges.filter(({ target }) => canFinish[target] === 1);
    state.jumps = state.jumps.filter((target) => canFinish[target] === 1);
    state.calls = state.calls.filter((call) => canFinish[call.start] === 1 && canFinish[call.back] === 1);
    state.counters = state.counters.filter((i) => canFinish[counters[i]!.exit] === 1);
  }
}

/** The smallest set of states for which `holds` is true, given the set. A state is asked again when one that it needs joins. */
function fixpoint(
  { states, counters }: Network,
  withEdges: boolean,
  holds: (state: State, known: Uint8Array) => boolean,
): Uint8Array {
  const known = new Uint8Array(states.length);
  // The users of each state, as linked lists.
  const lists = new Int32Array(states.length).fill(-1);
  const users: number[] = [];
  const following: number[] = [];
  const use = (target: number, from: number): void => {
    following.push(lists[target]!);
    lists[target] = users.push(from) - 1;
  };
  for (let from = 0; from < states.length; from++) {
    const state = states[from]!;
    if (withEdges) for (const { target } of state.edges) use(target, from);
    for (const target of state.jumps) use(target, from);
    for (const { start, back } of state.calls) {
      use(start, from);
      use(back, from);
    }
    for (const i of state.counters) {
      use(counters[i]!.start, from);
      use(counters[i]!.exit, from);
    }
  }
  // Most states lead to states with higher numbers, so the last is asked first.
  const open = states.map((_, index) => index);
  for (let index = open.pop(); index !== undefined; index = open.pop()) {
    if (known[index] === 1 || !holds(states[index]!, known)) continue;
    known[index] = 1;
    for (let i = lists[index]!; i !== -1; i = following[i]!) if (known[users[i]!] === 0) open.push(users[i]!);
  }
  return known;
}

/** A state that is entered again without reading a symbol, with a call in between. Tarjan's components, without recursion. */
function findLeftRecursion(network: Network, canBeEmpty: Uint8Array): number | undefined {
  const { states, counters } = network;
  if (states.every((state) => state.calls.length + state.counters.length === 0)) return undefined;
  const entered = (state: State): number[] => [
    ...state.calls.map((call) => call.start),
    ...state.counters.map((i) => counters[i]!.start),
  ];
  const others = (state: State): number[] => [
    ...state.jumps,
    ...state.calls.filter((call) => canBeEmpty[call.start] === 1).map((call) => call.back),
    ...state.counters.flatMap((i) => {
      const { start, min, exit } = counters[i]!;
      return min === 0 || canBeEmpty[start] === 1 ? [exit] : [];
    }),
  ];
  const isPlain = (state: State): boolean => state.jumps.length + state.calls.length + state.counters.length === 0;
  const component = components(states.map((state) => (isPlain(state) ? none : [...others(state), ...entered(state)])));
  for (const [index, state] of states.entries()) {
    if (entered(state).some((target) => component[target] === component[index])) return index;
  }
  return undefined;
}

const none: readonly number[] = [];

/** The number of each node's strongly connected component. */
function components(targets: readonly (readonly number[])[]): Int32Array {
  const count = targets.length;
  const order = new Int32Array(count).fill(-1);
  const low = new Int32Array(count);
  const component = new Int32Array(count).fill(-1);
  const open: number[] = [];
  let visited = 0;
  let found = 0;
  for (let root = 0; root < count; root++) {
    if (order[root] !== -1) continue;
    if (targets[root]!.length === 0) {
      order[root] = low[root] = visited++;
      component[root] = found++;
      continue;
    }
    const path: { readonly node: number; next: number }[] = [{ node: root, next: 0 }];
    order[root] = low[root] = visited++;
    open.push(root);
    for (let top = path[path.length - 1]; top !== undefined; top = path[path.length - 1]) {
      const target = targets[top.node]![top.next++];
      if (target === undefined) {
        path.pop();
        const parent = path[path.length - 1];
        if (parent !== undefined) low[parent.node] = Math.min(low[parent.node]!, low[top.node]!);
        if (low[top.node] !== order[top.node]) continue;
        let member: number;
        do {
          member = open.pop()!;
          component[member] = found;
        } while (member !== top.node);
        found++;
      } else if (order[target] === -1) {
        order[target] = low[target] = visited++;
        open.push(target);
        path.push({ node: target, next: 0 });
      } else if (component[target] === -1) low[top.node] = Math.min(low[top.node]!, order[target]!);
    }
  }
  return component;
}
