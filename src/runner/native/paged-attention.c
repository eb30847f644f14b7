/*
 * Attention over KV that lies in pages, read in place through block tables: no copy of KV, no mask.
 *
 * Compiled once for a model's HEAD_DIM, GROUP (query heads per KV head) and BLOCK_SIZE, and the type of its KV. ggml's threads call `attend`;
 * they take units of work (a sequence's rows, some KV heads, perhaps one range of its KV) from a shared counter.
 *
 * Exactness. The bits of a row depend on its query, its position and the KV it sees, and on nothing else:
 *   - KV is walked in tiles of TILE tokens that start at multiples of TILE, and in ranges of RANGE tokens likewise;
 *   - within a range: one running maximum, sum and accumulator per query (online softmax), tile after tile, token after
 *     token; ranges are joined in ascending order;
 *   - a score is a dot product of LANES partial sums, added by `sums`.
 * Two forms do this same arithmetic. The narrow one (few queries) loads each K and V row once for the queries of a group;
 * the wide one turns a tile of K on its side and computes blocks of queries times tokens. Which form, which thread and
 * which cut of the work is chosen freely.
 *
 * Scores are in units of log2(e), so that the softmax needs powers of two only.
 */
#include "vector.h"

#define VECTORS (HEAD_DIM / LANES) /* of a head */
#define SCORES (TILE + 2 * LANES)  /* floats of a row of scores: the narrow form writes a little beyond a tile */
#define LOG2E 1.44269504088896340736f
#define PARTIAL_FLOATS (HEAD_DIM + 2) /* top, weight, sum of one query in one range */
#define NONE (-__builtin_inff())

/*
 * K and V of a token are rows of halves, or of ggml's q8_0: 32 elements share a factor that stands before their bytes.
 * `bytes` points to one head's part of a row.
 */
typedef const uint8_t *bytes;
#if KV_Q8_0
#define KV_BYTES(elements) ((int64_t)(elements) / 32 * 34)
INLINE vec load_kv(bytes head, int i) {
  bytes block = head + i * LANES / 32 * 34;
  return load_int8((const int8_t *)block + 2 + i * LANES % 32) * splat_half((const half *)block);
}
#else
#define KV_BYTES(elements) ((int64_t)(elements) * 2)
INLINE vec load_kv(bytes head, int i) { return load_half((const half *)head + i * LANES); }
#endif

/* The wide form multiplies blocks of QUERY_BLOCK queries and COLUMN_BLOCK vectors, as many as there are registers for. */
#if LANES == 16
#define QUERY_BLOCK 12
#define COLUMN_BLOCK 2
#define NARROW_BLOCK 24
#elif LANES == 8
#define QUERY_BLOCK 6
#define COLUMN_BLOCK 2
#define NARROW_BLOCK 8
#else
#define QUERY_BLOCK 6
#define COLUMN_BLOCK 4
#define NARROW_BLOCK 16
#endif
#define QUERIES_PADDED ((QUERIES_MAX + QUERY_BLOCK - 1) / QUERY_BLOCK * QUERY_BLOCK)

/* Written by TypeScript (work-units.ts, attention-native.ts). Rows are counted in the order of `row_of`. */
struct unit {
  int32_t table;     /* index of the sequence's first block in `tables` */
  int32_t first_row;
  int32_t row_count; /* several sequences' rows where all of them see all of these ranges in the same blocks */
  int32_t head_first; /* KV heads */
  int32_t head_end;
  int32_t range_first;
  int32_t range_end;
  int32_t is_split; /* other units compute the rows' other ranges, or other heads of split rows */
};
struct view {
  bytes pool;
  int64_t page_stride; /* bytes */
  const int32_t *tables;
  const int32_t *row_of;    /* where the row lies in q */
  const int32_t *positions; /* of the rows, ascending within a unit unless they see all of it */
  const int32_t *partial_of; /* of split rows: index of the first range's partial results, counted in rows of heads */
  const struct unit *units;
  float *partials;
  int32_t *done; /* of split rows: heads times ranges that have ended; all 0 between calls */
  void *scratch; /* 64 bytes more than all threads' */
  int32_t unit_count;
  int32_t heads; /* KV heads */
};
struct layer {
  const struct view *view;
  const float *sinks; /* one per query head, or none */
  int64_t part;       /* bytes from a page's start to this layer's K; V follows K */
  int32_t next_unit;  /* 0 when a step begins */
  int32_t window;     /* a row sees so many tokens, itself included; 0 = all */
  float scale;
  float soft_cap; /* 0 = none */
};

/* What one thread works with. */
struct scratch {
  float query[QUERIES_PADDED * HEAD_DIM];
  float sum[QUERIES_PADDED * HEAD_DIM];   /* of V, in this range */
  float total[QUERIES_PADDED * HEAD_DIM]; /* of V, in the ranges so far */
  float weight[QUERIES_PADDED * LANES];   /* partial sums of exponentials, in this range */
  float top[QUERIES_PADDED];              /* largest score of this range, and below of the ranges so far */
  float total_top[QUERIES_PADDED];
  float total_weight[QUERIES_PADDED];
  float scores[QUERIES_PADDED * SCORES];
  float keys[TILE * HEAD_DIM]; /* wide form: [element, in the order of chain()][token] */
  float values[TILE * HEAD_DIM];
} __attribute__((aligned(64)));

int64_t kvasir_scratch_bytes(void) { return sizeof(struct scratch); }

INLINE int clamp(int64_t x, int end) { return x < 0 ? 0 : x > end ? end : (int)x; }
INLINE int seen_from(const struct layer *layer, int position, int64_t tile) {
  return layer->window == 0 ? 0 : clamp(position + 1 - (int64_t)layer->window - tile, TILE);
}
INLINE int seen_to(int position, int64_t tile) { return clamp(position + 1 - tile, TILE); }

/* ---- softmax: shared by both forms -------------------------------------------------------------------------- */

/* Scores of the tokens [from, to) of a tile become weights; the rest weigh nothing. */
INLINE void weigh(const struct layer *layer, float *scores, int from, int to, float *top, float *weight, float *sum) {
  for (int t = 0; t < from; t++) scores[t] = NONE;
  for (int t = to; t < TILE; t++) scores[t] = NONE;
  if (layer->soft_cap != 0) {
    /* tanh x = 1 - 2 / (e^2x + 1); the queries were divided by the cap */
    for (int t = 0; t < TILE; t += LANES) {
      const vec x = load(scores + t);
      const vec e = exp2_(-max_(-max_(x * (2 * LOG2E), splat(-60.0f)), splat(-60.0f)));
      const vec capped = (1.0f - 2.0f / (e + 1.0f)) * (layer->soft_cap * LOG2E);
      store(scores + t, choose((ivec)(x == NONE), x, capped));
    }
  }
  vec most = load(scores);
  for (int t = LANES; t < TILE; t += LANES) most = max_(most, load(scores + t));
  const float highest = max_lanes(most);
  const float before = *top;
  vec w = load(weight);
  if (highest > before) {
    const vec shrink = splat(exp2_one(before - highest));
    UNROLL for (int i = 0; i < VECTORS; i++) store(sum + i * LANES, load(sum + i * LANES) * shrink);
    w *= shrink;
    *top = highest;
  }
  const vec base = splat(*top);
  for (int t = 0; t < TILE; t += LANES) {
    const vec e = exp2_(load(scores + t) - base);
    store(scores + t, e);
    w += e;
  }
  store(weight, w);
}

/* ---- narrow form: few rows, the queries of one group at a time ----------------------------------------------- */

/* Scores are computed GROUP_PART queries times LANES / GROUP_PART tokens at a time, which fills one `sums`. */
#if GROUP <= LANES && GROUP <= 8
#define GROUP_PART GROUP
#elif LANES >= 8 && GROUP % 8 == 0
#define GROUP_PART 8
#elif GROUP % 4 == 0
#define GROUP_PART 4
#elif GROUP % 3 == 0
#define GROUP_PART 3
#elif GROUP % 2 == 0
#define GROUP_PART 2
#else
#define GROUP_PART 1
#endif
#define TOKENS (LANES / GROUP_PART)

/*
 * Few queries are little arithmetic, and reading KV is what takes the time. It lies token after token, each with all
 * heads, and is read about as it lies: CHUNK tokens for one head after the other, then the next. A head at a time for a
 * whole tile would jump from row to row, and memory takes twice as long for that. While a chunk is computed the same
 * part of the next one is fetched, of V behind K and of the next tile's K behind V: the fetches are spread among the
 * arithmetic, as a processor drops them where too many are under way.
 */
#define CHUNK ((8 + TOKENS - 1) / TOKENS * TOKENS)
#define LINE_ELEMENTS (KV_Q8_0 ? 64 : 32) /* of K or V, in a cache line */

/* Of a head's part of a row, vector i. */
INLINE void fetch(bytes head, int i) {
  if (i * LANES % LINE_ELEMENTS == 0) __builtin_prefetch(head + KV_BYTES(i * LANES), 0, 0);
}

/* `rows`: of the first of `count` tokens, and beyond these as many as are read next. */
INLINE void narrow_scores(const float *query, const bytes *rows, int64_t at, int count, float *scores) {
  for (int part = 0; part < GROUP; part += GROUP_PART) {
    for (int t = 0; t < count; t += TOKENS) {
      bytes k[TOKENS], next[TOKENS];
      UNROLL for (int j = 0; j < TOKENS; j++) {
        k[j] = rows[t + j < count ? t + j : count - 1] + at;
        next[j] = rows[t + j + CHUNK] + at;
      }
      vec x[LANES];
      UNROLL for (int j = 0; j < LANES; j++) x[j] = (vec){0};
      UNROLL for (int i = 0; i < VECTORS; i++) {
        UNROLL for (int j = 0; j < TOKENS; j++) {
          const vec key = load_kv(k[j], i);
          fetch(next[j], i);
          UNROLL for (int g = 0; g < GROUP_PART; g++) {
            x[g * TOKENS + j] = fma_(load(query + (part + g) * HEAD_DIM + i * LANES), key, x[g * TOKENS + j]);
          }
        }
      }
      float s[LANES];
      store(s, sums(x));
      UNROLL for (int g = 0; g < GROUP_PART; g++) {
        memcpy(scores + (part + g) * SCORES + t, s + g * TOKENS, TOKENS * sizeof(float));
      }
    }
  }
}

/* sum += weights * V for `vectors` vectors of the head from vector `first` on. */
INLINE void narrow_values(const float *weights, const bytes *rows, int64_t at, int count, float *sum, int first,
                          int vectors) {
  vec x[NARROW_BLOCK];
  UNROLL for (int g = 0; g < GROUP_PART; g++) {
    UNROLL for (int i = 0; i < vectors; i++) x[g * vectors + i] = load(sum + g * HEAD_DIM + (first + i) * LANES);
  }
  for (int t = 0; t < count; t++) {
    bytes v = rows[t] + at, next = rows[t + CHUNK] + at;
    UNROLL for (int i = 0; i < vectors; i++) {
      const vec value = load_kv(v, first + i);
      fetch(next, first + i);
      UNROLL for (int g = 0; g < GROUP_PART; g++) {
        x[g * vectors + i] = fma_(splat(weights[g * SCORES + t]), value, x[g * vectors + i]);
      }
    }
  }
  UNROLL for (int g = 0; g < GROUP_PART; g++) {
    UNROLL for (int i = 0; i < vectors; i++) store(sum + g * HEAD_DIM + (first + i) * LANES, x[g * vectors + i]);
  }
}

#define NARROW_VECTORS (NARROW_BLOCK / GROUP_PART < VECTORS ? NARROW_BLOCK / GROUP_PART : VECTORS)

static void values_of_group(const float *weights, const bytes *rows, int64_t at, int count, float *sum) {
  const int whole = VECTORS / NARROW_VECTORS * NARROW_VECTORS;
  for (int part = 0; part < GROUP; part += GROUP_PART) {
    const float *part_weights = weights + part * SCORES;
    float *part_sum = sum + part * HEAD_DIM;
    UNROLL for (int i = 0; i < whole; i += NARROW_VECTORS) {
      narrow_values(part_weights, rows, at, count, part_sum, i, NARROW_VECTORS);
    }
    UNROLL for (int i = whole; i < VECTORS; i++) narrow_values(part_weights, rows, at, count, part_sum, i, 1);
  }
}

/* What rows see together of a tile: tokens [from, to). */
struct narrow {
  int64_t tile;
  const int32_t *positions;
  int row_count;
  int heads;
  int from;
  int to;
  /* Of the first head: rows of K, then of V, then what is read next. */
  bytes rows[2 * TILE + CHUNK + TOKENS];
};

static void narrow_tile(const struct layer *layer, struct scratch *s, const struct narrow *n) {
  const int from = n->from, to = n->to;
  for (int t = from; t < to; t += CHUNK) {
    const int end = t + CHUNK < to ? t + CHUNK : to;
    for (int head = 0, query = 0; head < n->heads; head++) {
      for (int row = 0; row < n->row_count; row++, query += GROUP) {
        /* Of a chunk that the row sees in part, `weigh` drops the rest. */
        const int position = n->positions[row];
        if (end <= seen_from(layer, position, n->tile) || t >= seen_to(position, n->tile)) continue;
        narrow_scores(s->query + query * HEAD_DIM, n->rows + t - from, head * KV_BYTES(HEAD_DIM), end - t,
                      s->scores + query * SCORES + t);
      }
    }
  }
  for (int query = 0; query < n->heads * n->row_count * GROUP; query++) {
    const int position = n->positions[query / GROUP % n->row_count];
    const int row_from = seen_from(layer, position, n->tile), row_to = seen_to(position, n->tile);
    if (row_from >= row_to) continue;
    weigh(layer, s->scores + query * SCORES, row_from, row_to, s->top + query, s->weight + query * LANES,
          s->sum + query * HEAD_DIM);
  }
  const bytes *values = n->rows + to - from;
  for (int t = from; t < to; t += CHUNK) {
    for (int head = 0, query = 0; head < n->heads; head++) {
      for (int row = 0; row < n->row_count; row++, query += GROUP) {
        const int row_from = seen_from(layer, n->positions[row], n->tile), row_to = seen_to(n->positions[row], n->tile);
        const int first = t > row_from ? t : row_from, end = t + CHUNK < row_to ? t + CHUNK : row_to;
        values_of_group(s->scores + query * SCORES + first, values + first - from, head * KV_BYTES(HEAD_DIM),
                        end - first, s->sum + query * HEAD_DIM);
      }
    }
  }
}

/* ---- wide form: many rows, one KV head ------------------------------------------------------------------------ */

/*
 * Element e of a head is lane e % LANES of vector e / LANES. The wide form has tokens in its lanes, so it computes each
 * of the LANES partial sums on its own, a chain of VECTORS products, and adds chains as `sums` adds lanes: as a binary
 * counter does when chains come in bit-reversed order.
 */
INLINE int chain(int index) {
  int lane = 0;
  for (int bit = 1; bit < LANES; bit *= 2) lane = lane * 2 + ((index & bit) != 0);
  return lane;
}

/* K of tokens [from, to) on its side, the rest of the tile 0; V as floats. */
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

/* Scores of QUERY_BLOCK queries and COLUMN_BLOCK * LANES tokens. */
static void wide_scores(const float *queries, const float *keys, float *scores) {
  block pending[5];
  for (int c = 0; c < LANES; c++) {
    block x;
    UNROLL for (int q = 0; q < QUERY_BLOCK; q++) UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[q][j] = (vec){0};
    for (int i = c * VECTORS; i < (c + 1) * VECTORS; i++) {
      vec key[COLUMN_BLOCK];
      UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) key[j] = load(keys + i * TILE + j * LANES);
      UNROLL for (int q = 0; q < QUERY_BLOCK; q++) {
        const vec query = splat(queries[q * HEAD_DIM + i]);
        UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[q][j] = fma_(query, key[j], x[q][j]);
      }
    }
    int level = 0;
    for (; c >> level & 1; level++) {
      UNROLL for (int q = 0; q < QUERY_BLOCK; q++) {
        UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[q][j] = pending[level][q][j] + x[q][j];
      }
    }
    UNROLL for (int q = 0; q < QUERY_BLOCK; q++) {
      UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) pending[level][q][j] = x[q][j];
    }
  }
  const int last = LANES == 16 ? 4 : LANES == 8 ? 3 : 2;
  UNROLL for (int q = 0; q < QUERY_BLOCK; q++) {
    UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) store(scores + q * SCORES + j * LANES, pending[last][q][j]);
  }
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

static void values_of_block(const float *weights, const float *values, int from, int to, float *sum) {
  int i = 0;
  for (; i + COLUMN_BLOCK <= VECTORS; i += COLUMN_BLOCK) {
    wide_values(weights, values + i * LANES, from, to, sum + i * LANES, QUERY_BLOCK, COLUMN_BLOCK);
  }
  for (; i < VECTORS; i++) wide_values(weights, values + i * LANES, from, to, sum + i * LANES, QUERY_BLOCK, 1);
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
    /* What all of these queries see, and what any of them does: their positions ascend. */
    const int first_position = positions[first / GROUP], last_position = positions[(first + count - 1) / GROUP];
    const int any_from = seen_from(layer, first_position, tile), any_to = seen_to(last_position, tile);
    const int all_from = seen_from(layer, last_position, tile), all_to = seen_to(first_position, tile);
    if (any_from >= any_to) continue;
    for (int t = any_from / (COLUMN_BLOCK * LANES) * (COLUMN_BLOCK * LANES); t < any_to; t += COLUMN_BLOCK * LANES) {
      wide_scores(s->query + first * HEAD_DIM, s->keys + t, scores + t);
    }
    for (int q = 0; q < QUERY_BLOCK; q++) {
      float *weights = scores + q * SCORES;
      if (q >= count) {
        memset(weights, 0, TILE * sizeof(float));
        continue;
      }
      const int position = positions[(first + q) / GROUP];
      const int q_from = seen_from(layer, position, tile), q_to = seen_to(position, tile);
      if (q_from >= q_to) continue;
      weigh(layer, weights, q_from, q_to, s->top + first + q, s->weight + (first + q) * LANES, sum + q * HEAD_DIM);
      /* Token after token: first what it alone sees, then what all see. */
      values_of_query(weights, s->values, q_from, all_from < all_to && all_from < q_to ? all_from : q_to,
                      sum + q * HEAD_DIM);
    }
    if (all_from >= all_to) continue;
    values_of_block(scores, s->values, all_from, all_to, sum);
    for (int q = 0; q < count; q++) {
      const int q_to = seen_to(positions[(first + q) / GROUP], tile);
      values_of_query(scores + q * SCORES, s->values, all_to, q_to, sum + q * HEAD_DIM);
    }
  }
}

/* ---- ranges --------------------------------------------------------------------------------------------------- */

/* Adds a range's result (top, weight, sum) to a query's total. */
INLINE void join(float *total_top, float *total_weight, float *total, float top, float weight, const float *sum) {
  if (top == NONE) return;
  if (*total_top == NONE) {
    *total_top = top;
    *total_weight = weight;
    memcpy(total, sum, HEAD_DIM * sizeof(float));
    return;
  }
  const float highest = top > *total_top ? top : *total_top;
  const float keep = exp2_one(*total_top - highest), take = exp2_one(top - highest);
  const vec kept = splat(keep), taken = splat(take);
  UNROLL for (int i = 0; i < VECTORS; i++) {
    store(total + i * LANES, fma_(load(sum + i * LANES), taken, load(total + i * LANES) * kept));
  }
  const float old = *total_weight * keep, added = weight * take;
  *total_weight = old + added;
  *total_top = highest;
}

INLINE void finish(const struct layer *layer, int head, float top, float weight, const float *total, float *out) {
  float share = 1.0f;
  if (layer->sinks != 0) {
    const float sink = layer->sinks[head] * LOG2E;
    const float highest = sink > top ? sink : top;
    share = exp2_one(top - highest);
    const float rescaled = weight * share;
    weight = rescaled + exp2_one(sink - highest);
  }
  const vec factor = splat(share / weight);
  UNROLL for (int i = 0; i < VECTORS; i++) store(out + i * LANES, load(total + i * LANES) * factor);
}

static void load_queries(const struct layer *layer, const struct unit *u, struct scratch *s, const float *q, int heads,
                         int is_wide) {
  const int32_t *row_of = layer->view->row_of;
  const float factor = layer->soft_cap != 0 ? layer->scale / layer->soft_cap : layer->scale * LOG2E;
  int index = 0;
  for (int head = u->head_first; head < u->head_end; head++) {
    for (int row = u->first_row; row < u->first_row + u->row_count; row++) {
      for (int g = 0; g < GROUP; g++, index++) {
        const float *from = q + ((int64_t)row_of[row] * heads * GROUP + head * GROUP + g) * HEAD_DIM;
        float *to = s->query + index * HEAD_DIM;
        if (is_wide) {
          for (int c = 0; c < LANES; c++) {
            for (int i = 0; i < VECTORS; i++) to[c * VECTORS + i] = from[i * LANES + chain(c)] * factor;
          }
        } else {
          for (int i = 0; i < HEAD_DIM; i++) to[i] = from[i] * factor;
        }
        s->total_top[index] = NONE;
        s->total_weight[index] = 0;
      }
    }
  }
  /* The last block of queries is filled up with zeros. */
  for (; is_wide && index % QUERY_BLOCK != 0; index++) {
    memset(s->query + index * HEAD_DIM, 0, HEAD_DIM * sizeof(float));
    memset(s->sum + index * HEAD_DIM, 0, HEAD_DIM * sizeof(float));
  }
}

/* Where K of a layer's token lies, from its first head on. */
INLINE bytes key_row(const struct layer *layer, const struct unit *u, int64_t token) {
  const struct view *view = layer->view;
  const int64_t row_stride = KV_BYTES((int64_t)view->heads * HEAD_DIM);
  const int64_t page = view->tables[u->table + token / BLOCK_SIZE];
  return view->pool + page * view->page_stride + layer->part + token % BLOCK_SIZE * row_stride;
}

INLINE int64_t value_offset(const struct layer *layer) {
  return BLOCK_SIZE * KV_BYTES((int64_t)layer->view->heads * HEAD_DIM);
}

static void walk_narrow(const struct layer *layer, const struct unit *u, struct scratch *s, int64_t tile, int from,
                        int to) {
  const int64_t at = u->head_first * KV_BYTES(HEAD_DIM);
  const int32_t *positions = layer->view->positions + u->first_row;
  struct narrow n;
  n.tile = tile;
  n.positions = positions;
  n.row_count = u->row_count;
  n.heads = u->head_end - u->head_first;
  n.from = from;
  n.to = to;
  const int count = to - from;
  for (int t = 0; t < count; t++) {
    n.rows[t] = key_row(layer, u, tile + from + t) + at;
    n.rows[count + t] = n.rows[t] + value_offset(layer);
  }
  const int64_t last = positions[u->row_count - 1], end = (int64_t)u->range_end * RANGE;
  for (int t = 0; t < CHUNK + TOKENS; t++) {
    const int64_t token = tile + TILE + t;
    n.rows[2 * count + t] = token <= last && token < end ? key_row(layer, u, token) + at : n.rows[2 * count + t - 1];
  }
  narrow_tile(layer, s, &n);
}

static void walk_wide(const struct layer *layer, const struct unit *u, struct scratch *s, int64_t tile, int from,
                      int to) {
  const int32_t *positions = layer->view->positions + u->first_row;
  bytes rows[TILE];
  for (int t = from; t < to; t++) rows[t] = key_row(layer, u, tile + t);
  wide_tile(layer, s, positions, u->row_count * GROUP, rows, u->head_first * KV_BYTES(HEAD_DIM), value_offset(layer),
            tile, from, to);
}

static void walk_range(const struct layer *layer, const struct unit *u, struct scratch *s, int64_t range, int is_wide) {
  const int32_t *positions = layer->view->positions + u->first_row;
  for (int64_t tile = range * RANGE; tile < (range + 1) * RANGE; tile += TILE) {
    const int from = seen_from(layer, positions[0], tile), to = seen_to(positions[u->row_count - 1], tile);
    if (from >= to) continue;
    if (is_wide) walk_wide(layer, u, s, tile, from, to);
    else walk_narrow(layer, u, s, tile, from, to);
  }
}

INLINE int first_range(const struct layer *layer, int position) {
  const int64_t from = layer->window == 0 ? 0 : position + 1 - (int64_t)layer->window;
  return from < 0 ? 0 : (int)(from / RANGE);
}
INLINE int end_range(int position) { return position / RANGE + 1; }

/* Where a range's result (top, weight, sum) of a split row and a query head lies. */
INLINE float *partial_at(const struct layer *layer, int row, int range, int head) {
  const struct view *view = layer->view;
  const int64_t index = view->partial_of[row] + range - first_range(layer, view->positions[row]);
  return view->partials + (index * view->heads * GROUP + head) * PARTIAL_FLOATS;
}

/* Whoever ends a split row's last unit joins its ranges, in their order. */
static void join_row(const struct layer *layer, struct scratch *s, int row, int ended, float *out) {
  const struct view *view = layer->view;
  const int position = view->positions[row];
  const int from = first_range(layer, position), to = end_range(position);
  if (__atomic_add_fetch(view->done + row, ended, __ATOMIC_ACQ_REL) != (to - from) * view->heads) return;
  view->done[row] = 0;
  for (int head = 0; head < view->heads * GROUP; head++) {
    float top = NONE, weight = 0;
    for (int range = from; range < to; range++) {
      const float *p = partial_at(layer, row, range, head);
      join(&top, &weight, s->total, p[0], p[1], p + 2);
    }
    finish(layer, head, top, weight, s->total,
           out + ((int64_t)view->row_of[row] * view->heads * GROUP + head) * HEAD_DIM);
  }
}

static void run_unit(const struct layer *layer, const struct unit *u, struct scratch *s, const float *q, float *out) {
  const struct view *view = layer->view;
  const int per_head = u->row_count * GROUP;
  const int queries = (u->head_end - u->head_first) * per_head;
  const int is_wide = u->head_end - u->head_first == 1 && queries >= QUERIES_WIDE;
  load_queries(layer, u, s, q, view->heads, is_wide);
  for (int64_t range = u->range_first; range < u->range_end; range++) {
    for (int query = 0; query < queries; query++) {
      s->top[query] = NONE;
      memset(s->weight + query * LANES, 0, LANES * sizeof(float));
      memset(s->sum + query * HEAD_DIM, 0, HEAD_DIM * sizeof(float));
    }
    walk_range(layer, u, s, range, is_wide);
    for (int query = 0; query < queries; query++) {
      const float weight = sum_lanes(load(s->weight + query * LANES));
      const float *sum = s->sum + query * HEAD_DIM;
      if (!u->is_split) {
        join(s->total_top + query, s->total_weight + query, s->total + query * HEAD_DIM, s->top[query], weight, sum);
        continue;
      }
      const int row = u->first_row + query % per_head / GROUP;
      const int head = (u->head_first + query / per_head) * GROUP + query % GROUP;
      /* A chunk of a prompt may have rows that end before this range, or windows that begin behind it. */
      if (range >= end_range(view->positions[row]) || range < first_range(layer, view->positions[row])) continue;
      float *p = partial_at(layer, row, (int)range, head);
      p[0] = s->top[query];
      p[1] = weight;
      memcpy(p + 2, sum, HEAD_DIM * sizeof(float));
    }
  }
  if (u->is_split) {
    for (int row = u->first_row; row < u->first_row + u->row_count; row++) {
      const int from = first_range(layer, view->positions[row]), to = end_range(view->positions[row]);
      const int begun = u->range_first > from ? u->range_first : from, ended = u->range_end < to ? u->range_end : to;
      if (ended > begun) join_row(layer, s, row, (ended - begun) * (u->head_end - u->head_first), out);
    }
    return;
  }
  for (int query = 0; query < queries; query++) {
    const int row = view->row_of[u->first_row + query % per_head / GROUP];
    const int head = (u->head_first + query / per_head) * GROUP + query % GROUP;
    finish(layer, head, s->total_top[query], s->total_weight[query], s->total + query * HEAD_DIM,
           out + ((int64_t)row * view->heads * GROUP + head) * HEAD_DIM);
  }
}

/* ---- ggml's custom operation: one source, q ------------------------------------------------------------------- */

INLINE char *pointer_at(const char *p, int offset) {
  char *q;
  memcpy(&q, p + offset, sizeof q);
  return q;
}

static void attend(char *tensor, int thread, int threads, void *userdata) {
  (void)threads;
  struct layer *layer = userdata;
  const float *q = (const float *)pointer_at(pointer_at(tensor, TENSOR_SOURCE), TENSOR_DATA);
  float *out = (float *)pointer_at(tensor, TENSOR_DATA);
  /* A vector that crosses cache lines costs twice. */
  struct scratch *s = (struct scratch *)(((uintptr_t)layer->view->scratch + 63) & ~(uintptr_t)63) + thread;
  for (;;) {
    const int index = __atomic_fetch_add(&layer->next_unit, 1, __ATOMIC_RELAXED);
    if (index >= layer->view->unit_count) return;
    run_unit(layer, layer->view->units + index, s, q, out);
  }
}

uintptr_t kvasir_attend_pointer(void) { return (uintptr_t)attend; }
