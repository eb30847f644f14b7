/*
 * Rows times tiles in which 32 inputs have one scale (scale-groups.h). Before the include, a kernel defines load_scales;
 * load_weights; dot, the dot products of a block as integers; dot_start, with which these sums begin. WITH_MINIMA, a
 * minimum is added to each weight: it is multiplied by the sum of the block's inputs.
 */
#if defined(WITH_MINIMA)
#define ADD_MINIMA(to, y) to = fma_(minimum, splat((y)->sum), to)
#else
#define ADD_MINIMA(to, y) (void)0
#endif

INLINE void tile_matmul(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  vec sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = splat(0);
  const int64_t row_bytes = row_blocks(blocks) * (int64_t)sizeof *x;
  const uint8_t *scales = tile, *weights = tile;
  for (int64_t b = 0; b < blocks; b++, scales += SCALE_BYTES, weights += WEIGHT_BYTES) {
    if (b % TOGETHER == 0) {
      scales = tile + group_at(b);
      weights = scales + blocks_of_group(blocks, b) * SCALE_BYTES;
      prefetch(scales, 64, rows);
    }
    prefetch(weights, WEIGHT_BYTES, rows);
    ivec w[8];
    load_weights(weights, w);
    const vec scale = load_scales(scales);
#if defined(WITH_MINIMA)
    const vec minimum = load_minima(scales);
#endif
#if defined(ROW_PAIRS)
    if (rows > 1) {
      struct pair pairs[4];
      pair_weights(w, 8, pairs);
      UNROLL for (int r = 0; r < rows; r += 2) {
        const struct quantized *y = x + r * row_blocks(blocks) + b, *z = y + row_blocks(blocks);
        const struct pair products = pair_products(pairs, 8, y->values, z->values);
        sum[r] = fma_(floats(dot_start(y) + first_row(products)), scale * splat(y->scale), sum[r]);
        sum[r + 1] = fma_(floats(dot_start(z) + second_row(products)), scale * splat(z->scale), sum[r + 1]);
        ADD_MINIMA(sum[r], y);
        ADD_MINIMA(sum[r + 1], z);
      }
      continue;
    }
#endif
    const struct quantized *y = x + b;
    UNROLL for (int r = 0; r < rows; r++) {
      if (r > 0) y = next_row(y, row_bytes, rows);
      sum[r] = fma_(floats(dot(w, y)), scale * splat(y->scale), sum[r]);
      ADD_MINIMA(sum[r], y);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) store(out + r * out_stride, sum[r]);
}

#include "amx-by-32.h"
