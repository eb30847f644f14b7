/*
 * AMX for matrices of which 256 inputs have one scale as a float. Integer scales are multiplied into the weights, so sums
 * reach over 256 inputs. A product of a weight and its scale takes two signed bytes: AMX_UPPER times the upper one, plus
 * the lower one. Before the include, a kernel defines AMX_UPPER; struct amx_scales; amx_expand_weights, of 64 inputs;
 * amx_expand_scales; amx_add, the products of a block as integers to the sums of a row.
 */
#if defined(AMX)

#define AMX_INPUTS 64
#define AMX_ROWS_MIN 32
#define AMX_CHUNK_BLOCKS 4

struct amx_block {
  ivec upper[4][16], lower[4][16];
  struct amx_scales scales;
};

INLINE void amx_expand(const uint8_t *tile, int64_t blocks, int64_t b, struct amx_block *to) {
  for (int k = 0; k < 4; k++) amx_expand_weights(tile, blocks, b, k, to->upper[k], to->lower[k]);
  amx_expand_scales(tile, blocks, b, &to->scales);
}

/* Adds the products of `count` blocks of 16 or 32 rows to `sums`. */
INLINE void amx_add_blocks(const struct amx_block *weights, const struct quantized *x, int64_t stride, int64_t count,
                           float (*sums)[TILE_OUTPUTS], int groups) {
  const int64_t stride_bytes = stride * (int64_t)sizeof *x;
  int32_t upper[32][16] __attribute__((aligned(64))), lower[32][16] __attribute__((aligned(64)));
  for (int64_t b = 0; b < count; b++) {
    const struct amx_block *w = weights + b;
    AMX_ZERO(0);
    AMX_ZERO(1);
    if (groups == 2) {
      AMX_ZERO(2);
      AMX_ZERO(3);
    }
    for (int k = 0; k < 4; k++) {
      AMX_LOAD(6, w->upper[k], 64);
      AMX_LOAD(7, w->lower[k], 64);
      AMX_LOAD(4, x[b].values + 64 * k, stride_bytes);
      AMX_ADD_PRODUCTS(0, 4, 6);
      AMX_ADD_PRODUCTS(1, 4, 7);
      if (groups == 2) {
        AMX_LOAD(5, x[b + 16 * stride].values + 64 * k, stride_bytes);
        AMX_ADD_PRODUCTS(2, 5, 6);
        AMX_ADD_PRODUCTS(3, 5, 7);
      }
    }
    AMX_STORE(0, upper, 64);
    AMX_STORE(1, lower, 64);
    if (groups == 2) {
      AMX_STORE(2, upper + 16, 64);
      AMX_STORE(3, lower + 16, 64);
    }
    for (int r = 0; r < 16 * groups; r++) {
      const ivec products = load_ints(upper[r]) * AMX_UPPER + load_ints(lower[r]);
      store(sums[r], amx_add(&w->scales, x + b + r * stride, products, load(sums[r])));
    }
  }
}

#endif
