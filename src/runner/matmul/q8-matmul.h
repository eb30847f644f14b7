/*
 * Rows times tiles of which 32 inputs have one scale:
 *
 *   scales  [inputs / 32][TILE_OUTPUTS]   halves
 *   weights [inputs / 32][...]            as the kernel has them
 *
 * A kernel defines before: WEIGHT_BYTES, of 32 inputs; UNIT, what its weights are to be multiplied by; load_weights; dot,
 * the products of a block as integers.
 */
INLINE void tile_product(const uint8_t *tile, const struct rounded *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  const half *scales = (const half *)tile;
  const uint8_t *weights = tile + blocks * TILE_OUTPUTS * sizeof(half);
  vec sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = splat(0);
  for (int64_t b = 0; b < blocks; b++) {
    prefetch(weights + b * WEIGHT_BYTES, WEIGHT_BYTES);
    /* Scales lie apart from weights, so the next tile's are asked for. */
    _mm_prefetch((const char *)(scales + b * TILE_OUTPUTS) + tile_bytes(blocks), _MM_HINT_T1);
    ivec w[8];
    load_weights(weights + b * WEIGHT_BYTES, w);
    const vec scale = load_half(scales + b * TILE_OUTPUTS) * splat(UNIT);
    UNROLL for (int r = 0; r < rows; r++) {
      const struct rounded *y = x + r * row_blocks(blocks) + b;
      sum[r] = fma_(floats(dot(w, y)), scale * splat(y->scale), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) store(out + r * out_stride, sum[r]);
}
