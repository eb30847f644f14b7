/*
 * The wide form of attention over a tile: many rows, one KV head.
 *
 * Element e of a head is lane e % LANES of vector e / LANES. The wide form has tokens in its lanes, so it computes the
 * LANES partial sums one after another, each as a chain of VECTORS multiply-adds. It adds chains in the order in which
 * `sums` adds lanes: chains come in bit-reversed order and are added as in a binary counter.
 */
INLINE int chain(int index) {
  int lane = 0;
  for (int bit = 1; bit < LANES; bit *= 2) lane = lane * 2 + ((index & bit) != 0);
  return lane;
}

/* K of tokens [from, to), transposed, with 0 for the other tokens of the tile; V as floats. */
static void unpack(struct scratch *s, const bytes *rows, int64_t at, int64_t value_offset, int from, int to) {
  for (int t = from; t < to; t++) {
    bytes v = rows[t] + at + value_offset;
    UNROLL for (int i = 0; i < VECTORS; i++) store(s->values + t * HEAD_DIM + i * LANES, load_kv(v, i));
  }
  for (int first = 0; first < TILE; first += LANES) {
    for (int i = 0; i < VECTORS; i++) {
      vec x[LANES];
      UNROLL for (int j = 0; j < LANES; j++) {
        const int t = first + j;
        x[j] = t >= from && t < to ? load_kv(rows[t] + at, i) : (vec){0};
      }
      transpose(x);
      UNROLL for (int c = 0; c < LANES; c++) store(s->keys + (c * VECTORS + i) * TILE + first, x[chain(c)]);
    }
  }
}

typedef vec block[QUERY_BLOCK][COLUMN_BLOCK];

/* Scores of `count` queries and COLUMN_BLOCK * LANES tokens. */
INLINE void wide_scores(const float *queries, const float *keys, float *scores, int count) {
  block pending[5];
  for (int c = 0; c < LANES; c++) {
    block x;
    UNROLL for (int q = 0; q < count; q++) UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[q][j] = (vec){0};
    for (int i = c * VECTORS; i < (c + 1) * VECTORS; i++) {
      vec key[COLUMN_BLOCK];
      UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) key[j] = load(keys + i * TILE + j * LANES);
      UNROLL for (int q = 0; q < count; q++) {
        const vec query = splat(queries[q * HEAD_DIM + i]);
        UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[q][j] = fma_(query, key[j], x[q][j]);
      }
    }
    int level = 0;
    for (; c >> level & 1; level++) {
      UNROLL for (int q = 0; q < count; q++) {
        UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[q][j] = pending[level][q][j] + x[q][j];
      }
    }
    UNROLL for (int q = 0; q < count; q++) {
      UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) pending[level][q][j] = x[q][j];
    }
  }
  const int last = LANES == 16 ? 4 : LANES == 8 ? 3 : 2;
  UNROLL for (int q = 0; q < count; q++) {
    UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) store(scores + q * SCORES + j * LANES, pending[last][q][j]);
  }
}

/* Half a block, for so few queries; the bits of a query do not depend on the size of its block. */
#define HALF_BLOCK (QUERY_BLOCK / 2)

static void scores_of_block(const float *queries, const float *keys, float *scores) {
  wide_scores(queries, keys, scores, QUERY_BLOCK);
}
static void scores_of_half_block(const float *queries, const float *keys, float *scores) {
  wide_scores(queries, keys, scores, HALF_BLOCK);
}

/* sum += weights * V of tokens [from, to), for `count` vectors of the head. */
INLINE void wide_values(const float *weights, const float *values, int from, int to, float *sum, int queries,
                        int count) {
  block x;
  UNROLL for (int q = 0; q < queries; q++) {
    UNROLL for (int j = 0; j < count; j++) x[q][j] = load(sum + q * HEAD_DIM + j * LANES);
  }
  for (int t = from; t < to; t++) {
    vec value[COLUMN_BLOCK];
    UNROLL for (int j = 0; j < count; j++) value[j] = load(values + t * HEAD_DIM + j * LANES);
    UNROLL for (int q = 0; q < queries; q++) {
      const vec w = splat(weights[q * SCORES + t]);
      UNROLL for (int j = 0; j < count; j++) x[q][j] = fma_(w, value[j], x[q][j]);
    }
  }
  UNROLL for (int q = 0; q < queries; q++) {
    UNROLL for (int j = 0; j < count; j++) store(sum + q * HEAD_DIM + j * LANES, x[q][j]);
  }
}

INLINE void values_of_queries(const float *weights, const float *values, int from, int to, float *sum, int queries) {
  int i = 0;
  for (; i + COLUMN_BLOCK <= VECTORS; i += COLUMN_BLOCK) {
    wide_values(weights, values + i * LANES, from, to, sum + i * LANES, queries, COLUMN_BLOCK);
  }
  for (; i < VECTORS; i++) wide_values(weights, values + i * LANES, from, to, sum + i * LANES, queries, 1);
}
static void values_of_block(const float *weights, const float *values, int from, int to, float *sum) {
  values_of_queries(weights, values, from, to, sum, QUERY_BLOCK);
}
static void values_of_half_block(const float *weights, const float *values, int from, int to, float *sum) {
  values_of_queries(weights, values, from, to, sum, HALF_BLOCK);
}
static void values_of_query(const float *weights, const float *values, int from, int to, float *sum) {
  for (int i = 0; i < VECTORS; i++) wide_values(weights, values + i * LANES, from, to, sum + i * LANES, 1, 1);
}

static void wide_tile(const struct layer *layer, struct scratch *s, const int32_t *positions, int query_count,
                      const bytes *rows, int64_t at, int64_t value_offset, int64_t tile, int from, int to) {
  unpack(s, rows, at, value_offset, from, to);
  for (int first = 0; first < query_count; first += QUERY_BLOCK) {
    const int count = query_count - first < QUERY_BLOCK ? query_count - first : QUERY_BLOCK;
    float *scores = s->scores + first * SCORES;
    float *sum = s->sum + first * HEAD_DIM;
    /* The tokens that all of these queries see, and the tokens that any of them sees. Their positions ascend. */
    const int first_position = positions[first / GROUP], last_position = positions[(first + count - 1) / GROUP];
    const int any_from = seen_from(layer, first_position, tile), any_to = seen_to(last_position, tile);
    const int all_from = seen_from(layer, last_position, tile), all_to = seen_to(first_position, tile);
    if (any_from >= any_to) continue;
    const int is_half = count <= HALF_BLOCK;
    for (int t = any_from / (COLUMN_BLOCK * LANES) * (COLUMN_BLOCK * LANES); t < any_to; t += COLUMN_BLOCK * LANES) {
      if (is_half) scores_of_half_block(s->query + first * HEAD_DIM, s->keys + t, scores + t);
      else scores_of_block(s->query + first * HEAD_DIM, s->keys + t, scores + t);
    }
    for (int q = 0; q < (is_half ? HALF_BLOCK : QUERY_BLOCK); q++) {
      float *weights = scores + q * SCORES;
      if (q >= count) {
        memset(weights, 0, TILE * sizeof(float));
        continue;
      }
      const int position = positions[(first + q) / GROUP];
      const int q_from = seen_from(layer, position, tile), q_to = seen_to(position, tile);
      if (q_from >= q_to) continue;
      weigh(layer, weights, q_from, q_to, s->top + first + q, s->weight + (first + q) * LANES, sum + q * HEAD_DIM);
      /* In the order of tokens: first those that not all queries see, then those that all see. */
      values_of_query(weights, s->values, q_from, all_from < all_to && all_from < q_to ? all_from : q_to,
                      sum + q * HEAD_DIM);
    }
    if (all_from >= all_to) continue;
    if (is_half) values_of_half_block(scores, s->values, all_from, all_to, sum);
    else values_of_block(scores, s->values, all_from, all_to, sum);
    for (int q = 0; q < count; q++) {
      const int q_to = seen_to(positions[(first + q) / GROUP], tile);
      values_of_query(scores + q * SCORES, s->values, all_to, q_to, sum + q * HEAD_DIM);
    }
  }
}
