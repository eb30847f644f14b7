/*
 * What the two forms of attention share: rows of KV, the records that TypeScript writes, the memory of a thread, and
 * which tokens of a tile a row sees.
 */
#include "vector.h"

#define VECTORS (HEAD_DIM / LANES) /* of a head */
#define CHAIN (HEAD_DIM / WIDTH)   /* multiply-adds of a partial sum of a score */
#define SCORES (TILE + 2 * LANES)  /* floats of a row of scores: the narrow form writes a little beyond a tile */
#define LOG2E 1.44269504088896340736f
#define PARTIAL_FLOATS (HEAD_DIM + 2) /* top, weight, sum of one query in one range */
#define NONE (-__builtin_inff())

/*
 * K and V of a token are rows of f16, or of ggml's q8_0: 32 elements share a scale, which is stored before their bytes.
 * `bytes` points to one head's part of a row.
 */
typedef const uint8_t *bytes;
#if KV_Q8_0
#define KV_BYTES(elements) ((int64_t)(elements) / 32 * 34)
INLINE vec load_kv(bytes head, int i) {
  bytes block = head + i * LANES / 32 * 34;
  return load_int8((const int8_t *)block + 2 + i * LANES % 32) * splat_f16((const f16 *)block);
}
#else
#define KV_BYTES(elements) ((int64_t)(elements) * 2)
INLINE vec load_kv(bytes head, int i) { return load_f16((const f16 *)head + i * LANES); }
#endif

/*
 * The wide form multiplies blocks of QUERY_BLOCK queries and COLUMN_BLOCK vectors, which fill the registers. For scores,
 * the registers hold sums of CHAINS partial sums of SCORE_QUERIES queries.
 */
#if LANES == 16
#define QUERY_BLOCK 12
#define CHAINS 4
#define SCORE_QUERIES 4
#define COLUMN_BLOCK 2
#define NARROW_BLOCK 24
#elif LANES == 8
#define QUERY_BLOCK 6
#define CHAINS 1
#define SCORE_QUERIES 6
#define COLUMN_BLOCK 2
#define NARROW_BLOCK 8
#else
#define QUERY_BLOCK 6
#define CHAINS 1
#define SCORE_QUERIES 6
#define COLUMN_BLOCK 4
#define NARROW_BLOCK 16
#endif
#define THIRD (QUERY_BLOCK / 3)
#define COLUMNS (COLUMN_BLOCK * LANES)
#define QUERIES_PADDED ((QUERIES_MAX + QUERY_BLOCK - 1) / QUERY_BLOCK * QUERY_BLOCK)

/* Written by TypeScript (work-units.ts, attention-native.ts). Rows are counted in the order of `row_of`. */
struct unit {
  int32_t table;     /* index of the sequence's first block in `tables` */
  int32_t first_row;
  int32_t row_count; /* rows of several sequences only if all of them see all of these ranges in the same blocks */
  int32_t head_first; /* KV heads */
  int32_t head_end;
  int32_t range_first;
  int32_t range_end;
  int32_t is_split; /* other units compute the rows' other ranges, or other heads of split rows */
};
struct view {
  bytes pool;
  int64_t block_stride; /* bytes */
  const int32_t *tables;
  const int32_t *row_of;    /* index of the row in q */
  const int32_t *positions; /* of the rows; ascending within a unit unless all rows see all of the unit */
  const int32_t *partial_of; /* of split rows: index of the first range's partial results, counted in rows of heads */
  const struct unit *units;
  float *partials;
  int32_t *done; /* of split rows: heads times ranges that are finished; all 0 between calls */
  void *scratch; /* of all threads, and 64 bytes for alignment */
  int32_t unit_count;
  int32_t heads; /* KV heads */
  int32_t block_size; /* tokens */
};
struct layer {
  const struct view *view;
  const float *sinks; /* one per query head, or none */
  int64_t part;       /* bytes from a block's start to this layer's K; V follows K, or is in it */
  int32_t next_unit;  /* 0 when a step begins */
  int32_t window;     /* tokens that a row sees, itself included; 0 = all */
  float scale;
  float soft_cap; /* 0 = none */
};

/* The memory of one thread. */
struct scratch {
  float query[QUERIES_PADDED * HEAD_DIM];
  float sum[QUERIES_PADDED * HEAD_DIM];   /* of V, in this range */
  float total[QUERIES_PADDED * HEAD_DIM]; /* of V, in the ranges so far */
  float weight[QUERIES_PADDED * WIDTH];   /* partial sums of exponentials, in this range */
  float top[QUERIES_PADDED];              /* largest score of this range; total_top: of the ranges so far */
  float total_top[QUERIES_PADDED];
  float total_weight[QUERIES_PADDED];
  float scores[QUERIES_PADDED * SCORES];
  float unpacked[COLUMNS * (HEAD_DIM > 2 * TILE ? HEAD_DIM : 2 * TILE)]; /* wide form: K of COLUMNS tokens, or a slice of V */
} __attribute__((aligned(64)));

INLINE int clamp(int64_t x, int end) { return x < 0 ? 0 : x > end ? end : (int)x; }
INLINE int seen_from(const struct layer *layer, int position, int64_t tile) {
  return layer->window == 0 ? 0 : clamp(position + 1 - (int64_t)layer->window - tile, TILE);
}
INLINE int seen_to(int position, int64_t tile) { return clamp(position + 1 - tile, TILE); }
