/*
 * Weighted sums of V in the wide form. V is unpacked a slice of SLICE vectors at a time, so that it stays in the first
 * level of caches while all queries use it.
 */

#define SLICE (2 * COLUMN_BLOCK)
/* Where vector `i` of a slice of V is. Each pass over a slice reads adjacent memory. */
INLINE int value_at(int token, int i) {
  return (i / COLUMN_BLOCK * TILE + token) * COLUMNS + i % COLUMN_BLOCK * LANES;
}

/* sum += weights * V of tokens [from, to), for `count` vectors of the slice from vector `first` on. */
INLINE void wide_values(const float *weights, const float *values, int from, int to, float *sum, int queries, int first,
                        int count, const struct ahead *ahead) {
  vec x[QUERY_BLOCK][SLICE];
  sum += first * LANES;
  UNROLL for (int q = 0; q < queries; q++) {
    UNROLL for (int j = 0; j < count; j++) x[q][j] = load(sum + q * HEAD_DIM + j * LANES);
  }
  for (int t = from; t < to; t++) {
    vec value[SLICE];
    UNROLL for (int j = 0; j < count; j++) value[j] = load(values + value_at(t, first + j));
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

/* The same for all `width` vectors of the slice, `count` at a time. */
INLINE void values_of_queries(const float *weights, const float *values, int from, int to, float *sum, int width,
                              int queries, int count, const struct ahead *ahead) {
  UNROLL for (int i = 0; i < SLICE; i += count) {
    if (VECTORS % SLICE == 0 || i + count <= width) wide_values(weights, values, from, to, sum, queries, i, count, ahead);
    else for (int j = i; j < width; j++) wide_values(weights, values, from, to, sum, queries, j, 1, ahead);
  }
}
static void values_of_block(const float *weights, const float *values, int from, int to, float *sum, int width,
                            int queries, const struct ahead *ahead) {
  if (queries == QUERY_BLOCK) values_of_queries(weights, values, from, to, sum, width, QUERY_BLOCK, COLUMN_BLOCK, ahead);
  else if (queries > THIRD) values_of_queries(weights, values, from, to, sum, width, 2 * THIRD, COLUMN_BLOCK, ahead);
  else values_of_queries(weights, values, from, to, sum, width, THIRD, SLICE, ahead);
}
static void values_of_query(const float *weights, const float *values, int from, int to, float *sum, int width) {
  if (from < to) values_of_queries(weights, values, from, to, sum, width, 1, SLICE, 0);
}
