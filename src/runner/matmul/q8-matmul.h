/*
 * Rows times tiles in which 32 inputs have one scale:
 *
 *   scales  [inputs / 32][TILE_OUTPUTS]   scale_bits
 *   weights [inputs / 32][...]            in the kernel's layout
 *
 * Before the include, a kernel defines: scale_bits, a stored scale; load_scales; WEIGHT_BYTES, of 32 inputs;
 * load_weights; dot, the dot products of a block as integers; dot_start, with which these sums begin.
 */
INLINE void tile_matmul(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  const scale_bits *scales = (const scale_bits *)tile;
  const uint8_t *weights = tile + blocks * TILE_OUTPUTS * sizeof(scale_bits);
  vec sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = splat(0);
  for (int64_t b = 0; b < blocks; b++) {
    prefetch(weights + b * WEIGHT_BYTES, WEIGHT_BYTES, rows);
    /* Scales are stored apart from weights, so the next tile's scales are prefetched here. */
    __builtin_prefetch((const char *)(scales + b * TILE_OUTPUTS) + tile_bytes(blocks), 0, 3);
    ivec w[8];
    load_weights(weights + b * WEIGHT_BYTES, w);
    const vec scale = load_scales(scales + b * TILE_OUTPUTS);
#if defined(ROW_PAIRS)
    if (rows > 1) {
      struct pair pairs[4];
      pair_weights(w, 8, pairs);
      UNROLL for (int r = 0; r < rows; r += 2) {
        const struct quantized *y = x + r * row_blocks(blocks) + b, *z = y + row_blocks(blocks);
        const struct pair products = pair_products(pairs, 8, y->values, z->values);
        sum[r] = fma_(floats(dot_start(y) + first_row(products)), scale * splat(y->scale), sum[r]);
        sum[r + 1] = fma_(floats(dot_start(z) + second_row(products)), scale * splat(z->scale), sum[r + 1]);
      }
      continue;
    }
#endif
    UNROLL for (int r = 0; r < rows; r++) {
      const struct quantized *y = x + r * row_blocks(blocks) + b;
      sum[r] = fma_(floats(dot(w, y)), scale * splat(y->scale), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) store(out + r * out_stride, sum[r]);
}

#include "amx-by-32.h"
