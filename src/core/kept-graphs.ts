/**
 * For how many numbers of rows a runner keeps its compute graph, those that were computed last. A step with another number of rows takes
 * longer, because its graph must be built. One request with up to 15 drafts needs as many. A step with some layers of a chunk (ADR 27) has
 * a graph of its own, too.
 */
export const keptGraphsMax = 16;
