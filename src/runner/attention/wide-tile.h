/* The wide form of attention over a tile: many rows, one KV head. */
#include "wide-scores.h"
#include "wide-values.h"

/* A tile of one KV head, and the tile that is read next. */
struct wide {
  int64_t tile;
  /* The tokens of the tile that at least one of the rows sees: [from, to). */
  int from;
  int to;
  /* K of each token, zeros for the tokens that no row sees; V is `value_offset` bytes after K. */
  bytes rows[TILE];
  /* The current rows if no tile follows. */
  bytes next[TILE];
  int64_t value_offset;
};

/* Queries that are computed together, and the tokens of the tile that any of them sees, and that all of them see. */
struct block {
  int first;
  int count;
  int padded; /* a multiple of THIRD: the bits of a query do not depend on the size of its block */
  int any_from;
  int any_to;
  int all_from;
  int all_to;
};

/* The queries of the next block: one third of a block is slow, so two blocks of two thirds replace one and a third. */
INLINE int block_size(int queries_left) {
  if (queries_left > QUERY_BLOCK && queries_left <= QUERY_BLOCK + THIRD) return 2 * THIRD;
  return queries_left < QUERY_BLOCK ? queries_left : QUERY_BLOCK;
}

static int blocks_of(const struct layer *layer, const int32_t *positions, int query_count, int64_t tile,
                     struct block *blocks) {
  int n = 0;
  for (int first = 0; first < query_count; n++) {
    const int count = block_size(query_count - first);
    /* Positions ascend. */
    const int first_position = positions[first / GROUP], last_position = positions[(first + count - 1) / GROUP];
    blocks[n] = (struct block){
      .first = first,
      .count = count,
      .padded = (count + THIRD - 1) / THIRD * THIRD,
      .any_from = seen_from(layer, first_position, tile),
      .any_to = seen_to(last_position, tile),
      .all_from = seen_from(layer, last_position, tile),
      .all_to = seen_to(first_position, tile),
    };
    first += count;
  }
  return n;
}

/* K is unpacked COLUMNS tokens at a time, so that it stays in the first level of caches while all queries use it. */
static void scores_of_tile(struct scratch *s, const struct wide *w, const struct block *blocks, int block_count,
                           int mask) {
  for (int t = w->from / COLUMNS * COLUMNS; t < w->to; t += COLUMNS) {
    UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) unpack_keys(s->unpacked + j * LANES, w->rows + t + j * LANES);
    struct ahead ahead = {w->next, w->value_offset, mask, 0};
    for (const struct block *b = blocks; b < blocks + block_count; b++) {
      if (b->any_from >= t + COLUMNS || b->any_to <= t) continue;
      scores_of_block(s->query + b->first * HEAD_DIM, s->unpacked, s->scores + b->first * SCORES, b->padded, t, &ahead);
    }
  }
}

static void weigh_tile(const struct layer *layer, struct scratch *s, const int32_t *positions, int query_count,
                       int64_t tile) {
  for (int q = 0; q < query_count; q++) {
    const int from = seen_from(layer, positions[q / GROUP], tile), to = seen_to(positions[q / GROUP], tile);
    if (from >= to) continue;
    weigh(layer, s->scores + q * SCORES, from, to, s->top + q, s->weight + q * WIDTH, s->sum + q * HEAD_DIM);
  }
  for (int q = query_count; q % THIRD != 0; q++) memset(s->scores + q * SCORES, 0, TILE * sizeof(float));
}

/* Sums of a block in a slice of V, in the order of tokens: those that not all queries see come first and last. */
static void sums_of_block(const struct layer *layer, struct scratch *s, const int32_t *positions, const struct block *b,
                          int64_t tile, int vector, int width, const struct ahead *ahead) {
  const float *weights = s->scores + b->first * SCORES;
  float *sum = s->sum + b->first * HEAD_DIM + vector * LANES;
  const int is_shared = b->all_from < b->all_to;
  for (int q = 0; q < b->count && b->any_from < (is_shared ? b->all_from : b->any_to); q++) {
    const int position = positions[(b->first + q) / GROUP];
    const int from = seen_from(layer, position, tile), to = seen_to(position, tile);
    values_of_query(weights + q * SCORES, s->unpacked, from, is_shared && b->all_from < to ? b->all_from : to,
                    sum + q * HEAD_DIM, width);
  }
  if (!is_shared) return;
  values_of_block(weights, s->unpacked, b->all_from, b->all_to, sum, width, b->padded, ahead);
  for (int q = 0; q < b->count && b->all_to < b->any_to; q++) {
    const int to = seen_to(positions[(b->first + q) / GROUP], tile);
    values_of_query(weights + q * SCORES, s->unpacked, b->all_to, to, sum + q * HEAD_DIM, width);
  }
}

/* The largest power of two up to `calls`, minus 1. */
INLINE int mask_of(int calls) {
  int power = 1;
  while (2 * power <= calls) power *= 2;
  return power - 1;
}

static void wide_tile(const struct layer *layer, struct scratch *s, const int32_t *positions, int query_count,
                      const struct wide *w) {
  struct block blocks[QUERIES_PADDED / THIRD];
  const int block_count = blocks_of(layer, positions, query_count, w->tile, blocks);
  scores_of_tile(s, w, blocks, block_count, mask_of(query_count / QUERIES_PER_CALL));
  weigh_tile(layer, s, positions, query_count, w->tile);
  const int mask = mask_of(query_count / QUERY_BLOCK);
  for (int vector = 0; vector < VECTORS; vector += SLICE) {
    const int width = VECTORS % SLICE == 0 || vector + SLICE <= VECTORS ? SLICE : VECTORS % SLICE;
    for (int t = w->from; t < w->to; t++) {
      bytes v = w->rows[t] + w->value_offset;
      for (int i = 0; i < width; i++) store(s->unpacked + value_at(t, i), load_kv(v, vector + i));
    }
    const struct ahead ahead = {w->next, w->value_offset + KV_BYTES(vector * LANES), mask, 0};
    for (int i = 0; i < block_count; i++) {
      struct ahead of_block = ahead;
      of_block.index = i;
      sums_of_block(layer, s, positions, blocks + i, w->tile, vector, width, &of_block);
    }
  }
}
