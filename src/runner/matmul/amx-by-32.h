/*
 * AMX for matrices of which 32 inputs share a scale: a scale reaches no further than 32 inputs, so the sums of every
 * block are stored, scaled and added, as `tile_matmul` does. Weights lose the 128 that makes them unsigned.
 */
#if defined(AMX)

#define AMX_INPUTS 32     /* of a register */
#define AMX_ROWS_MIN 16   /* with fewer rows, `tile_matmul` is as fast */
#define AMX_CHUNK_BLOCKS 32

struct amx_block {
  ivec weights[8];
  vec scale;
};

INLINE void amx_expand(const uint8_t *tile, int64_t blocks, int64_t b, struct amx_block *to) {
  load_weights(tile + weights_at(blocks, b), to->weights);
  UNROLL for (int g = 0; g < 8; g++) to->weights[g] ^= splat_byte(-128);
  to->scale = load_scales((const scale_bits *)(tile + scales_at(b)));
}

/* Adds the products of `count` blocks of 16 or 32 rows to `sums`. */
INLINE void amx_add_blocks(const struct amx_block *weights, const struct quantized *x, int64_t stride, int64_t count,
                           float (*sums)[TILE_OUTPUTS], int groups) {
  const int64_t stride_bytes = stride * (int64_t)sizeof *x;
  int32_t products[32][16] __attribute__((aligned(64)));
  for (int64_t b = 0; b < count; b++) {
    AMX_LOAD(6, weights[b].weights, 64);
    AMX_LOAD(4, x[b].values, stride_bytes);
    AMX_ZERO(0);
    AMX_ADD_PRODUCTS(0, 4, 6);
    if (groups == 2) {
      AMX_LOAD(5, x[b + 16 * stride].values, stride_bytes);
      AMX_ZERO(1);
      AMX_ADD_PRODUCTS(1, 5, 6);
    }
    AMX_STORE(0, products, 64);
    if (groups == 2) AMX_STORE(1, products + 16, 64);
    for (int r = 0; r < 16 * groups; r++) {
      const vec scale = weights[b].scale * splat(x[b + r * stride].scale);
      store(sums[r], fma_(floats(load_ints(products[r])), scale, load(sums[r])));
    }
  }
}

#endif
