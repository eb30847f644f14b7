/* The narrow form of attention over a tile: few rows, the queries of one group at a time. */

/* Scores of GROUP_PART queries times LANES / GROUP_PART tokens are computed at a time, with one call of `sums`. */
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
 * With few queries, reading KV takes most of the time. KV is stored token after token, each with all heads. It is read
 * in nearly that order: CHUNK tokens, head after head, then the next chunk. Reading one head of a whole tile at a time
 * would jump from row to row, which takes memory twice as long. While a chunk is computed, the same part of a later
 * chunk is prefetched. After K this is V, and after V the next tile's K. The prefetches are spread among the
 * arithmetic, because a processor drops prefetches if too many are pending.
 */
#define CHUNK ((8 + TOKENS - 1) / TOKENS * TOKENS)
#define AHEAD (2 * CHUNK) /* tokens from the one that is computed to the one that is prefetched */
#define LINE_ELEMENTS (KV_Q8_0 ? 64 : 32) /* of K or V, in a cache line */

/* Prefetches vector i of a head's part of a row, into the second level of caches. Into the first level took twice as long. */
INLINE void fetch(bytes head, int i) {
  if (i * LANES % LINE_ELEMENTS == 0) __builtin_prefetch(head + KV_BYTES(i * LANES), 0, 2);
}

/* `rows`: the rows of `count` tokens, and after them the rows that are read later. */
INLINE void narrow_scores(const float *query, const bytes *rows, int64_t at, int count, float *scores) {
  for (int part = 0; part < GROUP; part += GROUP_PART) {
    for (int t = 0; t < count; t += TOKENS) {
      bytes k[TOKENS], next[TOKENS];
      UNROLL for (int j = 0; j < TOKENS; j++) {
        k[j] = rows[t + j < count ? t + j : count - 1] + at;
        next[j] = rows[t + j + AHEAD] + at;
      }
      vec x[PARTS * LANES];
      UNROLL for (int j = 0; j < PARTS * LANES; j++) x[j] = (vec){0};
      /* One part after the other, because the registers hold the sums of one. */
      UNROLL for (int p = 0; p < PARTS; p++) {
        vec *y = x + p * LANES;
        UNROLL for (int i = p; i < VECTORS; i += PARTS) {
          UNROLL for (int j = 0; j < TOKENS; j++) {
            const vec key = load_kv(k[j], i);
            fetch(next[j], i);
            UNROLL for (int g = 0; g < GROUP_PART; g++) {
              y[g * TOKENS + j] = fma_(load(query + (part + g) * HEAD_DIM + i * LANES), key, y[g * TOKENS + j]);
            }
          }
        }
      }
      UNROLL for (int j = 0; j < LANES; j++) add_parts(x + j, LANES);
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
    bytes v = rows[t] + at, next = rows[t + AHEAD] + at;
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

/* The tokens of a tile that at least one of the rows sees: [from, to). */
struct narrow {
  int64_t tile;
  const int32_t *positions;
  int row_count;
  int heads;
  int from;
  int to;
  /* At the first head: rows of K, then of V, then the rows that are read next. */
  bytes rows[2 * TILE + AHEAD + TOKENS];
};

static void narrow_tile(const struct layer *layer, struct scratch *s, const struct narrow *n) {
  const int from = n->from, to = n->to;
  for (int t = from; t < to; t += CHUNK) {
    const int end = t + CHUNK < to ? t + CHUNK : to;
    for (int head = 0, query = 0; head < n->heads; head++) {
      for (int row = 0; row < n->row_count; row++, query += GROUP) {
        /* If the row sees only a part of the chunk, `weigh` ignores the other scores. */
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
    weigh(layer, s->scores + query * SCORES, row_from, row_to, s->top + query, s->weight + query * WIDTH,
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
