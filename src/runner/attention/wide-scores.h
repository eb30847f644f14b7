/* Scores of the wide form: queries times COLUMNS tokens. */
#include "wide-keys.h"

/*
 * While a tile is computed, the next tile is prefetched. A processor can wait for about ten lines of memory at a time, so
 * the prefetches are spread among the arithmetic: K among the scores, V among the sums. Number `index` of the calls of a
 * kind prefetches the tokens whose number, masked, is `index`.
 */
struct ahead {
  const bytes *rows;
  int64_t value_offset;
  int mask;
  int index;
};
/* Into the second level of caches. The first level would not keep a tile so long. */
INLINE void fetch_line(bytes head, int i) {
  if (i * LANES % LINE_ELEMENTS == 0) __builtin_prefetch(head + KV_BYTES(i * LANES), 0, 2);
}
INLINE void fetch_keys(const struct ahead *ahead, int token, int count) {
  if (ahead->index > ahead->mask) return;
  for (int t = token + ((ahead->index - token) & ahead->mask); t < token + count; t += ahead->mask + 1) {
    UNROLL for (int i = 0; i < VECTORS; i++) fetch_line(ahead->rows[t], i);
  }
}
INLINE void fetch_value(const struct ahead *ahead, int token, int i) {
  if ((token & ahead->mask) == ahead->index) fetch_line(ahead->rows[token] + ahead->value_offset, i);
}

/* Scores of up to SCORE_QUERIES queries times COLUMNS tokens, or partial sums of these scores. */
typedef vec part[SCORE_QUERIES][COLUMN_BLOCK];

INLINE void add_part(part to, part added, int count) {
  UNROLL for (int q = 0; q < count; q++) {
    UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) to[q][j] = added[q][j] + to[q][j];
  }
}

/* gcc would load the vector again for each multiplication. */
#if LANES == 16
#define KEEP_IN_REGISTER(v) __asm__("" : "+v"(v))
#else
#define KEEP_IN_REGISTER(v) (void)(v)
#endif

/* The sum of CHAINS chains, which stays in registers. */
INLINE void sum_chains(const float *query, const float *key, part x, int count) {
  part before[2];
  UNROLL for (int c = 0; c < CHAINS; c++, query += CHAIN) {
    UNROLL for (int q = 0; q < count; q++) UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[q][j] = (vec){0};
    for (int i = 0; i < CHAIN; i++, key += COLUMNS) {
      vec k[COLUMN_BLOCK];
      UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) {
        k[j] = load(key + j * LANES);
        KEEP_IN_REGISTER(k[j]);
      }
      UNROLL for (int q = 0; q < count; q++) {
        const vec element = splat(query[q * HEAD_DIM + i]);
        UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) x[q][j] = fma_(element, k[j], x[q][j]);
      }
    }
    if (CHAINS == 1) return;
    if ((c & 1) == 0) memcpy(before[0], x, sizeof(part));
    else add_part(x, before[0], count);
    if ((c & 3) == 1) memcpy(before[1], x, sizeof(part));
    if ((c & 3) == 3) add_part(x, before[1], count);
  }
}

#define STEPS (WIDTH / CHAINS)
#define STEP_TOKENS (COLUMNS / STEPS) /* that a step prefetches */

/* `token`: number in its tile of the first token. */
INLINE void wide_scores(const float *queries, const float *keys, float *scores, int count, int token,
                        const struct ahead *ahead) {
  part pending[5], x;
  for (int step = 0; step < STEPS - 1; step++) {
    sum_chains(queries + step * CHAINS * CHAIN, keys + step * CHAINS * CHAIN * COLUMNS, x, count);
    int level = 0;
    for (; step >> level & 1; level++) add_part(x, pending[level], count);
    memcpy(pending[level], x, sizeof x);
    fetch_keys(ahead, token + step * STEP_TOKENS, STEP_TOKENS);
  }
  sum_chains(queries + (HEAD_DIM - CHAINS * CHAIN), keys + (HEAD_DIM - CHAINS * CHAIN) * COLUMNS, x, count);
  UNROLL for (int level = 0; 1 << level < STEPS; level++) add_part(x, pending[level], count);
  fetch_keys(ahead, token + COLUMNS - STEP_TOKENS, STEP_TOKENS);
  UNROLL for (int q = 0; q < count; q++) {
    UNROLL for (int j = 0; j < COLUMN_BLOCK; j++) store(scores + q * SCORES + token + j * LANES, x[q][j]);
  }
}

/* Each number of queries has a function of its own: if they are inlined into one, gcc 12 keeps addresses in the wrong registers. */
#define NOT_INLINED static __attribute__((noinline))
NOT_INLINED void scores_of_third(const float *queries, const float *keys, float *scores, int token,
                                 const struct ahead *ahead) {
  wide_scores(queries, keys, scores, THIRD, token, ahead);
}
#if SCORE_QUERIES > THIRD
NOT_INLINED void scores_of_two_thirds(const float *queries, const float *keys, float *scores, int token,
                                      const struct ahead *ahead) {
  wide_scores(queries, keys, scores, 2 * THIRD, token, ahead);
}
NOT_INLINED void scores_of_whole(const float *queries, const float *keys, float *scores, int token,
                                 const struct ahead *ahead) {
  wide_scores(queries, keys, scores, QUERY_BLOCK, token, ahead);
}
#define QUERIES_PER_CALL QUERY_BLOCK
#else
#define QUERIES_PER_CALL THIRD
#endif

/* `count`: a multiple of THIRD. */
static void scores_of_block(const float *queries, const float *keys, float *scores, int count, int token,
                            struct ahead *ahead) {
#if SCORE_QUERIES > THIRD
  if (count == QUERY_BLOCK) scores_of_whole(queries, keys, scores, token, ahead);
  else if (count > THIRD) scores_of_two_thirds(queries, keys, scores, token, ahead);
  else scores_of_third(queries, keys, scores, token, ahead);
  ahead->index++;
#else
  for (int q = 0; q < count; q += THIRD, ahead->index++) {
    scores_of_third(queries + q * HEAD_DIM, keys, scores + q * SCORES, token, ahead);
  }
#endif
}
