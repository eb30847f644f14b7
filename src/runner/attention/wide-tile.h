/*
 * The wide form of attention over a tile: many rows, one KV head.
 *
 * Element e of a head is lane e % WIDTH of wide vector e / WIDTH. The wide form has tokens in its lanes, so it computes
 * the WIDTH partial sums one after another, each as a chain of CHAIN multiply-adds. It adds chains in the order in which
 * `add_parts` and `sums` add lanes: chains come in bit-reversed order and are added as in a binary counter.
 */
INLINE int chain(int index) {
  int lane = 0;
  for (int bit = 1; bit < WIDTH; bit *= 2) lane = lane * 2 + ((index & bit) != 0);
  return lane;
}

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

/*
 * While a tile is computed, the next tile is prefetched. A processor can wait for about ten lines of memory at a time, so
 * the prefetches are spread among the arithmetic: a block of queries prefetches the tokens whose number, masked, is
 * `block`.
 */
struct ahead {
  const bytes *rows;
  int64_t value_offset;
  int mask;
  int block;
};
/* Into the second level of caches. The first level would not keep a tile so long. */
INLINE void fetch_line(bytes head, int i) {
  if (i * LANES % LINE_ELEMENTS == 0) __builtin_prefetch(head + KV_BYTES(i * LANES), 0, 2);
}
INLINE void fetch_keys(const struct ahead *ahead, int token, int count) {
  for (int t = token; t < token + count; t++) {
    if ((t & ahead->mask) == ahead->block) UNROLL for (int i = 0; i < VECTORS; i++) fetch_line(ahead->rows[t], i);
  }
}
INLINE void fetch_value(const struct ahead *ahead, int token, int i) {
  if ((token & ahead->mask) == ahead->block) fetch_line(ahead->rows[token] + ahead->value_offset, i);
}

/* K of LANES tokens from `first` on, transposed. `chain` is its own inverse. */
#if LANES >= 8 && !KV_Q8_0
INLINE void unpack_keys(struct scratch *s, const bytes *rows, int first) {
  for (int at = 0; at < HEAD_DIM; at += 16) {
    const f16 *part[LANES];
    UNROLL for (int t = 0; t < LANES; t++) part[t] = (const f16 *)rows[first + t] + at;
    f16 columns[16 * LANES] __attribute__((aligned(64)));
    transpose_halves(part, columns);
    UNROLL for (int e = 0; e < 16; e++) {
      store(s->keys + (chain(e) * CHAIN + at / WIDTH) * TILE + first, load_f16(columns + e * LANES));
    }
  }
}
#else
INLINE void unpack_keys(struct scratch *s, const bytes *rows, int first) {
  for (int i = 0; i < VECTORS; i++) {
    vec x[LANES];
    UNROLL for (int t = 0; t < LANES; t++) x[t] = load_kv(rows[first + t], i);
    transpose(x);
    UNROLL for (int e = 0; e < LANES; e++) {
      const int lane = i % PARTS * LANES + e;
      store(s->keys + (chain(lane) * CHAIN + i / PARTS) * TILE + first, x[e]);
    }
  }
}
#endif

/* K transposed, V as floats. */
static void unpack(struct scratch *s, const struct wide *w) {
  for (int t = w->from; t < w->to; t++) {
    bytes v = w->rows[t] + w->value_offset;
    UNROLL for (int i = 0; i < VECTORS; i++) store(s->values + t * HEAD_DIM + i * LANES, load_kv(v, i));
  }
  for (int first = 0; first < TILE; first += LANES) unpack_keys(s, w->rows, first);
}

#define COLUMNS (COLUMN_BLOCK * LANES)
#define STEP_TOKENS (CHAINS * COLUMN_BLOCK / PARTS) /* that a step of `wide_scores` prefetches */
/* A block may have fewer queries; the bits of a query do not depend on the size of its block. */
#define THIRD (QUERY_BLOCK / 3)

/*
 * Scores of `count` queries and the COLUMNS tokens from `token` on. CHAINS chains are computed at a time, so their sum
 * stays in registers.
 */
INLINE void wide_scores(const float *queries, const float *keys, float *scores, int count, int token,
                        const struct ahead *ahead) {
  typedef vec part[QUERY_BLOCK / CHAINS][COLUMN_BLOCK];
  part pending[5];
  for (int step = 0; step < WIDTH / CHAINS; step++) {
    part x[CHAINS];
    UNROLL for (int c = 0; c < CHAINS; c++) {
      UNROLL for (int q = 0; q < count; q++) UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[c][q][j] = (vec){0};
    }
    const float *query = queries + CHAINS * step * CHAIN, *key = keys + CHAINS * step * CHAIN * TILE + token;
    for (int i = 0; i < CHAIN; i++, query++, key += TILE) {
      UNROLL for (int c = 0; c < CHAINS; c++) {
        vec k[COLUMN_BLOCK];
        UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) k[j] = load(key + c * CHAIN * TILE + j * LANES);
        UNROLL for (int q = 0; q < count; q++) {
          const vec element = splat(query[q * HEAD_DIM + c * CHAIN]);
          UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[c][q][j] = fma_(element, k[j], x[c][q][j]);
        }
      }
    }
    UNROLL for (int c = 1; c < CHAINS; c++) {
      UNROLL for (int q = 0; q < count; q++) {
        UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[0][q][j] = x[0][q][j] + x[c][q][j];
      }
    }
    int level = 0;
    for (; step >> level & 1; level++) {
      UNROLL for (int q = 0; q < count; q++) {
        UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[0][q][j] = pending[level][q][j] + x[0][q][j];
      }
    }
    UNROLL for (int q = 0; q < count; q++) {
      UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) pending[level][q][j] = x[0][q][j];
    }
    if (ahead != 0) fetch_keys(ahead, token + step * STEP_TOKENS, STEP_TOKENS);
  }
  int last = 0;
  while (CHAINS << last < WIDTH) last++;
  UNROLL for (int q = 0; q < count; q++) {
    UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) store(scores + q * SCORES + token + j * LANES, pending[last][q][j]);
  }
}

/* Scores of the COLUMNS tokens from `token` on; `width` queries are computed at a time. */
INLINE void scores_of_columns(const float *queries, const float *keys, float *scores, int count, int width, int token,
                              const struct ahead *ahead) {
  wide_scores(queries, keys, scores, width, token, ahead);
  for (int q = width; q < count; q += width) {
    wide_scores(queries + q * HEAD_DIM, keys, scores + q * SCORES, width, token, 0);
  }
}

/* Scores of `count` queries, a multiple of THIRD, and the tokens [from, to). */
static void scores_of_block(const float *queries, const float *keys, float *scores, int count, int from, int to,
                            const struct ahead *ahead) {
  const int narrower = 2 * THIRD / CHAINS;
  for (int t = from / COLUMNS * COLUMNS; t < to; t += COLUMNS) {
    if (count == QUERY_BLOCK) scores_of_columns(queries, keys, scores, count, QUERY_BLOCK / CHAINS, t, ahead);
    else if (count % narrower == 0) scores_of_columns(queries, keys, scores, count, narrower, t, ahead);
    else wide_scores(queries, keys, scores, THIRD, t, ahead);
  }
}

/* Vectors of the head that a weighted sum of one query computes at a time. */
#define VALUE_BLOCK 8

/* sum += weights * V of tokens [from, to), for `count` vectors of the head from vector `first` on. */
INLINE void wide_values(const float *weights, const float *values, int from, int to, float *sum, int queries, int first,
                        int count, const struct ahead *ahead) {
  vec x[QUERY_BLOCK][VALUE_BLOCK];
  values += first * LANES;
  sum += first * LANES;
  UNROLL for (int q = 0; q < queries; q++) {
    UNROLL for (int j = 0; j < count; j++) x[q][j] = load(sum + q * HEAD_DIM + j * LANES);
  }
  for (int t = from; t < to; t++) {
    vec value[VALUE_BLOCK];
    UNROLL for (int j = 0; j < count; j++) value[j] = load(values + t * HEAD_DIM + j * LANES);
    UNROLL for (int q = 0; q < queries; q++) {
      const vec w = splat(weights[q * SCORES + t]);
      UNROLL for (int j = 0; j < count; j++) x[q][j] = fma_(w, value[j], x[q][j]);
    }
    if (ahead != 0) UNROLL for (int j = 0; j < count; j++) fetch_value(ahead, t, first + j);
  }
  UNROLL for (int q = 0; q < queries; q++) {
    UNROLL for (int j = 0; j < count; j++) store(sum + q * HEAD_DIM + j * LANES, x[q][j]);
  }
}

INLINE void values_of_queries(const float *weights, const float *values, int from, int to, float *sum, int queries,
                              int count, const struct ahead *ahead) {
  int i = 0;
  for (; i + count <= VECTORS; i += count) wide_values(weights, values, from, to, sum, queries, i, count, ahead);
  for (; i < VECTORS; i++) wide_values(weights, values, from, to, sum, queries, i, 1, ahead);
}
static void values_of_block(const float *weights, const float *values, int from, int to, float *sum, int count,
                            const struct ahead *ahead) {
  if (count == QUERY_BLOCK) values_of_queries(weights, values, from, to, sum, QUERY_BLOCK, COLUMN_BLOCK, ahead);
  else if (count > THIRD) values_of_queries(weights, values, from, to, sum, 2 * THIRD, COLUMN_BLOCK, ahead);
  else values_of_queries(weights, values, from, to, sum, THIRD, 2 * COLUMN_BLOCK, ahead);
}
static void values_of_query(const float *weights, const float *values, int from, int to, float *sum) {
  if (from < to) values_of_queries(weights, values, from, to, sum, 1, VALUE_BLOCK, 0);
}

/* The queries of the next block: one third of a block is slow, so two blocks of two thirds replace one and a third. */
INLINE int block_size(int queries_left) {
  if (queries_left > QUERY_BLOCK && queries_left <= QUERY_BLOCK + THIRD) return 2 * THIRD;
  return queries_left < QUERY_BLOCK ? queries_left : QUERY_BLOCK;
}

static void wide_block(const struct layer *layer, struct scratch *s, const int32_t *positions, int first, int count,
                       const struct wide *w, const struct ahead *ahead) {
  const int64_t tile = w->tile;
  const int padded = (count + THIRD - 1) / THIRD * THIRD;
  float *scores = s->scores + first * SCORES;
  float *sum = s->sum + first * HEAD_DIM;
  /* The tokens that all of these queries see, and the tokens that any of them sees. Their positions ascend. */
  const int first_position = positions[first / GROUP], last_position = positions[(first + count - 1) / GROUP];
  const int any_from = seen_from(layer, first_position, tile), any_to = seen_to(last_position, tile);
  const int all_from = seen_from(layer, last_position, tile), all_to = seen_to(first_position, tile);
  if (any_from >= any_to) return;
  scores_of_block(s->query + first * HEAD_DIM, s->keys, scores, padded, any_from, any_to, ahead);
  for (int q = 0; q < count; q++) {
    float *weights = scores + q * SCORES;
    const int position = positions[(first + q) / GROUP];
    const int q_from = seen_from(layer, position, tile), q_to = seen_to(position, tile);
    if (q_from >= q_to) continue;
    weigh(layer, weights, q_from, q_to, s->top + first + q, s->weight + (first + q) * WIDTH, sum + q * HEAD_DIM);
    /* In the order of tokens: first those that not all queries see, then those that all see. */
    values_of_query(weights, s->values, q_from, all_from < all_to && all_from < q_to ? all_from : q_to,
                    sum + q * HEAD_DIM);
  }
  if (all_from >= all_to) return;
  for (int q = count; q < padded; q++) memset(scores + q * SCORES, 0, TILE * sizeof(float));
  values_of_block(scores, s->values, all_from, all_to, sum, padded, ahead);
  for (int q = 0; q < count; q++) {
    const int q_to = seen_to(positions[(first + q) / GROUP], tile);
    values_of_query(scores + q * SCORES, s->values, all_to, q_to, sum + q * HEAD_DIM);
  }
}

static void wide_tile(const struct layer *layer, struct scratch *s, const int32_t *positions, int query_count,
                      const struct wide *w) {
  unpack(s, w);
  int step = 1;
  while (2 * step * QUERY_BLOCK <= query_count) step *= 2;
  for (int first = 0, index = 0; first < query_count; index++) {
    const int count = block_size(query_count - first);
    const struct ahead ahead = {w->next, w->value_offset, step - 1, index};
    wide_block(layer, s, positions, first, count, w, &ahead);
    first += count;
  }
}
