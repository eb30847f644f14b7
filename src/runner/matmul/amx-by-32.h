/*
 * AMX for matrices of which 32 inputs share a scale: a scale reaches no further than 32 inputs, so the sums of every
 * block are stored, scaled and added, as `tile_matmul` does. Weights lose the 128 that makes them unsigned; those with
 * minima have none.
 */
#if defined(AMX)

#define AMX_INPUTS 32 /* of a register */
#define AMX_ROWS_MIN 32 /* with fewer rows, `tile_matmul` is as fast */
#define AMX_CHUNK_BLOCKS 32
#define AMX_PREFETCHES(rows, blocks) ((rows) / 16 * (blocks))

struct amx_block {
  ivec weights[8];
  vec scale;
#if defined(WITH_MINIMA)
  vec minimum;
#endif
};

INLINE void amx_expand(const uint8_t *tile, int64_t blocks, int64_t b, struct amx_block *to) {
  load_weights(tile + weights_at(blocks, b), to->weights);
  to->scale = load_scales(tile + scales_at(b));
#if defined(WITH_MINIMA)
  to->minimum = load_minima(tile + scales_at(b));
#else
  UNROLL for (int g = 0; g < 8; g++) to->weights[g] ^= splat_byte(-128);
#endif
}

/* Stores the products of a block of 16 rows. Neighbours take different registers, so that one block's products are
 * computed while those of the block before it are stored. */
INLINE void amx_multiply(const struct amx_block *weights, const struct quantized *x, int64_t row_bytes, int place,
                         int32_t (*products)[16]) {
#define MULTIPLY(sums, rows, columns)         \
  AMX_LOAD(columns, weights->weights, 64);    \
  AMX_LOAD(rows, x->values, row_bytes);       \
  AMX_ZERO(sums);                             \
  AMX_ADD_PRODUCTS(sums, rows, columns);      \
  AMX_STORE(sums, products, 64)
  if (place == 0) {
    MULTIPLY(0, 4, 6);
  } else if (place == 1) {
    MULTIPLY(1, 5, 7);
  } else if (place == 2) {
    MULTIPLY(2, 4, 6);
  } else {
    MULTIPLY(3, 5, 7);
  }
#undef MULTIPLY
}

/* Adds the products of `count` blocks of 16 rows to `sums`. With `out`, the sums are complete and go to the rows there.
 * Products are read two blocks after they are stored: a CPU waits if it reads at once. */
INLINE void amx_add_to_16(const struct amx_block *weights, const struct quantized *x, int64_t stride, int64_t count,
                          float (*sums)[TILE_OUTPUTS], float *const *out, struct amx_ahead *ahead) {
  const int64_t row_bytes = stride * (int64_t)sizeof *x, prefetched = out == NULL ? 0 : 16;
  int32_t products[4][16][16] __attribute__((aligned(64)));
  vec sum[16];
  UNROLL for (int r = 0; r < 16; r++) sum[r] = load(sums[r]);
  UNROLL for (int i = 0; i < 2; i++) {
    if (i < count) amx_multiply(weights + i, x + i, row_bytes, i, products[i]);
  }
  for (int64_t first = 0; first < count; first += 4) {
    UNROLL for (int i = 0; i < 4; i++) {
      const int64_t b = first + i;
      if (b == count) break;
      const int next = (i + 2) % 4;
      if (b + 2 < count) amx_multiply(weights + b + 2, x + b + 2, row_bytes, next, products[next]);
      amx_prefetch(ahead);
      if (b < prefetched) __builtin_prefetch(out[b], 1);
      const vec scale = weights[b].scale;
#if defined(WITH_MINIMA)
      const vec minimum = weights[b].minimum;
#endif
      const struct quantized *y = x + b;
      UNROLL for (int r = 0; r < 16; r++) {
        if (r > 0) y = next_row(y, row_bytes, 16);
        sum[r] = fma_(floats(load_ints(products[i][r])), scale * splat(y->scale), sum[r]);
        ADD_MINIMA(sum[r], y);
      }
    }
  }
  UNROLL for (int r = 0; r < 16; r++) store(out == NULL ? sums[r] : out[r], sum[r]);
}

/* The same for `rows`, a multiple of 16. */
INLINE void amx_add_blocks(const struct amx_block *weights, const struct quantized *x, int64_t stride, int64_t count,
                           float (*sums)[TILE_OUTPUTS], int64_t rows, float *const *out, struct amx_ahead *ahead) {
  for (int64_t r = 0; r < rows; r += 16) {
    amx_add_to_16(weights, x + r * stride, stride, count, sums + r, out == NULL ? NULL : out + r, ahead);
  }
}

#endif
