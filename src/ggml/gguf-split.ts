import { ggufCorrupt, ggufPartNotFirst, ggufPartUnnamed } from './errors.ts';
import type { GgufMetadata } from './gguf-metadata.ts';
import type { GgufTensor } from './gguf-tensors.ts';

/** One file of a model. Most models have one. */
export interface PartHeader {
  readonly path: string;
  readonly metadata: GgufMetadata;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

const partName = /-(\d{5})-of-(\d{5})(\.gguf)$/i;

/**
 * The paths of the other parts of a split model, from the header of its first part; none if it is not split. Parts are
 * named `NAME-00001-of-00003.gguf`, as llama.cpp requires too.
 * @throws ggufPartNotFirst, ggufPartUnnamed
 */
export function otherPartPaths({ path, metadata }: PartHeader): string[] {
  const count = metadata.u32('split.count') ?? 0;
  if (count <= 1) return [];
  const index = metadata.u32('split.no') ?? 0;
  const match = partName.exec(path);
  const hasName = match !== null && Number(match[1]) === index + 1 && Number(match[2]) === count;
  if (!hasName) throw ggufPartUnnamed({ path, part: index + 1, count, name: `NAME${partEnding(index, count)}` });
  const pathOf = (part: number): string =>
    path.replace(partName, (_, _no, _of, ending: string) => partEnding(part, count, ending));
  if (index !== 0) throw ggufPartNotFirst({ path, part: index + 1, count, first: pathOf(0) });
  return Array.from({ length: count - 1 }, (_, i) => pathOf(i + 1));
}

/** The tensors of all parts, each with the index of its part. @throws ggufCorrupt if the parts do not fit together */
export function joinParts(parts: readonly PartHeader[]): Map<string, GgufTensor> {
  const joined = new Map<string, GgufTensor>();
  const count = parts[0]!.metadata.u32('split.count') ?? 1;
  for (const [part, { path, metadata, tensors }] of parts.entries()) {
    const corrupt = (problem: string) => ggufCorrupt({ path, problem, offset: 0 });
    if (part > 0 && (metadata.u32('split.no') !== part || metadata.u32('split.count') !== count)) {
      throw corrupt(`its header does not say that it is part ${part + 1} of ${count}`);
    }
    for (const [name, tensor] of tensors) {
      if (joined.has(name)) throw corrupt(`tensor ${name} is in an earlier part too`);
      joined.set(name, { ...tensor, part });
    }
  }
  const expected = parts[0]!.metadata.u32('split.tensors.count');
  if (parts.length > 1 && expected !== undefined && expected !== joined.size) {
    const problem = `it says that all parts together have ${expected} tensors, but they have ${joined.size}`;
    throw ggufCorrupt({ path: parts[0]!.path, problem, offset: 0 });
  }
  return joined;
}

const partEnding = (part: number, count: number, ending = '.gguf'): string =>
  `-${String(part + 1).padStart(5, '0')}-of-${String(count).padStart(5, '0')}${ending}`;
