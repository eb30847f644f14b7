/*
 * AMX for matrices of which 256 inputs have one scale as a float. Integer scales are multiplied into the weights, so sums
 * reach over 256 inputs. A product of a weight and its scale takes two signed bytes: AMX_UPPER times the upper one, plus
 * the lower one. Before the include, a kernel defines AMX_UPPER; struct amx_scales; amx_expand_weights, of 64 inputs;
 * amx_expand_scales; amx_add, the products of a block as integers to the sums of a row.
 */
#if defined(AMX)

#define AMX_INPUTS 64
#define AMX_ROWS_MIN 32
#define AMX_CHUNK_BLOCKS 1
#define AMX_PREFETCHES(rows, blocks) ((rows) * (blocks))

struct amx_block {
  ivec upper[4][16], lower[4][16];
  struct amx_scales scales;
};

INLINE void amx_expand(const uint8_t *tile, int64_t blocks, int64_t b, struct amx_block *to) {
  for (int k = 0; k < 4; k++) amx_expand_weights(tile, blocks, b, k, to->upper[k], to->lower[k]);
  amx_expand_scales(tile, blocks, b, &to->scales);
}

/* Products of a block of 32 rows. */
struct amx_products {
  int32_t upper[32][16], lower[32][16];
} __attribute__((aligned(64)));

INLINE void amx_multiply(const struct amx_block *w, const struct quantized *x, int64_t stride, int64_t rows,
                         struct amx_products *products) {
  const int64_t row_bytes = stride * (int64_t)sizeof *x;
  AMX_ZERO(0);
  AMX_ZERO(1);
  if (rows == 32) {
    AMX_ZERO(2);
    AMX_ZERO(3);
  }
  for (int k = 0; k < 4; k++) {
    AMX_LOAD(6, w->upper[k], 64);
    AMX_LOAD(7, w->lower[k], 64);
    AMX_LOAD(4, x->values + 64 * k, row_bytes);
    AMX_ADD_PRODUCTS(0, 4, 6);
    AMX_ADD_PRODUCTS(1, 4, 7);
    if (rows == 32) {
      AMX_LOAD(5, x[16 * stride].values + 64 * k, row_bytes);
      AMX_ADD_PRODUCTS(2, 5, 6);
      AMX_ADD_PRODUCTS(3, 5, 7);
    }
  }
  AMX_STORE(0, products->upper, 64);
  AMX_STORE(1, products->lower, 64);
  if (rows == 32) {
    AMX_STORE(2, products->upper + 16, 64);
    AMX_STORE(3, products->lower + 16, 64);
  }
}

/* Adds the products of a block to the sums of `rows`, a multiple of 16. With `out`, the sums are complete and go to the rows there.
 * The next rows are multiplied before the products of these are read, and what they will write is prefetched. */
INLINE void amx_add_blocks(const struct amx_block *weights, const struct quantized *x, int64_t stride, int64_t count,
                           float (*sums)[TILE_OUTPUTS], int64_t rows, float *const *out, struct amx_ahead *ahead) {
  (void)count; /* AMX_CHUNK_BLOCKS is 1 */
  struct amx_products products[2];
#define ROWS_FROM(first) (rows - (first) < 32 ? rows - (first) : 32)
  amx_multiply(weights, x, stride, ROWS_FROM(0), products);
  for (int64_t first = 0; first < rows; first += 32) {
    const int64_t next = first + 32, end = next < rows ? next : rows;
    const struct amx_products *from = products + first / 32 % 2;
    if (next < rows) amx_multiply(weights, x + next * stride, stride, ROWS_FROM(next), products + next / 32 % 2);
    for (int64_t r = first; r < end; r++) {
      const ivec sum = load_ints(from->upper[r - first]) * AMX_UPPER + load_ints(from->lower[r - first]);
      amx_prefetch(ahead);
      if (out != NULL && r + 32 < rows) __builtin_prefetch(out[r + 32], 1);
      store(out == NULL ? sums[r] : out[r], amx_add(&weights->scales, x + r * stride, sum, load(sums[r])));
    }
  }
#undef ROWS_FROM
}

#endif
