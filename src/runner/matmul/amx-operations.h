/*
 * Rows times a tile by AMX, and the test of its bits. amx-by-32.h and amx-by-256.h define:
 *
 *   AMX_INPUTS         inputs of a register
 *   AMX_ROWS_MIN       with fewer rows, `tile_matmul` computes
 *   AMX_CHUNK_BLOCKS   blocks that are expanded before rows are multiplied by them
 *   AMX_PREFETCHES     how often `amx_prefetch` is called for rows times a tile
 *   amx_expand         a block of weights to `struct amx_block`
 *   amx_add_blocks     adds the products of rows and expanded blocks to sums
 */
#if defined(AMX_INPUTS)

/* Rows whose sums stay in the first-level cache, beside the expanded weights. */
#define AMX_ROWS_MAX 256

/* For a multiple of 16 rows, with the parameters and the bits of `rows_matmul`. */
static void amx_matmul(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out, int64_t stride,
                       int64_t rows, const int32_t *targets) {
  const struct amx_shapes shapes = amx_shapes_for(AMX_INPUTS);
  float sums[AMX_ROWS_MAX][TILE_OUTPUTS] __attribute__((aligned(64))), *to[AMX_ROWS_MAX];
  struct amx_block weights[AMX_CHUNK_BLOCKS];
  /* ggml configures the registers once for each thread, and relies on it later. */
  struct amx_shapes before;
  AMX_CONFIGURATION(&before);
  AMX_CONFIGURE(&shapes);
  struct amx_ahead next_tile = amx_ahead_in(tile + tile_bytes(blocks), tile_bytes(blocks), AMX_PREFETCHES(rows, blocks));
  for (int64_t first = 0; first < rows; first += AMX_ROWS_MAX) {
    const int64_t count = rows - first < AMX_ROWS_MAX ? rows - first : AMX_ROWS_MAX;
    const struct quantized *from = x + first * row_blocks(blocks);
    for (int64_t r = 0; r < count; r++) to[r] = out + (targets == NULL ? first + r : targets[first + r]) * stride;
    memset(sums, 0, count * sizeof *sums);
    for (int64_t b = 0; b < blocks; b += AMX_CHUNK_BLOCKS) {
      const int64_t chunk = blocks - b < AMX_CHUNK_BLOCKS ? blocks - b : AMX_CHUNK_BLOCKS;
      for (int64_t i = 0; i < chunk; i++) amx_expand(tile, blocks, b + i, weights + i);
      amx_add_blocks(weights, from + b, row_blocks(blocks), chunk, sums, count, b + chunk == blocks ? to : NULL, &next_tile);
    }
  }
  AMX_CONFIGURE(&before);
}

/* Whether random rows times a random tile have the bits of `tile_matmul`. */
static int amx_has_same_bits(void) {
  enum { rows = 80, blocks = AMX_CHUNK_BLOCKS + 1, inputs = blocks * BLOCK };
  struct packed packed[TILE_OUTPUTS * blocks];
  struct quantized x[rows * (blocks | 1)];
  uint8_t tile[sizeof packed];
  float row[inputs], wanted[rows][TILE_OUTPUTS], found[rows][TILE_OUTPUTS];
  uint32_t state = 1;
#define RANDOM() (state = state * 1664525 + 1013904223, (int32_t)(state ^ state >> 15))
  for (size_t i = 0; i < sizeof packed; i++) ((uint8_t *)packed)[i] = (uint8_t)(RANDOM() >> 8);
  for (int i = 0; i < TILE_OUTPUTS * blocks; i++) set_test_scales(packed + i);
  lay_out_tile(packed, blocks, tile);
  for (int r = 0; r < rows; r++) {
    /* Some rows have only the largest values. */
    for (int i = 0; i < inputs; i++) row[i] = r % 8 == 0 ? 1 : r % 8 == 1 ? -1 : (float)RANDOM() * 0x1p-31f;
    for (int b = 0; b < blocks; b++) quantize_block(row + b * BLOCK, x + r * row_blocks(blocks) + b);
    tile_matmul(tile, x + r * row_blocks(blocks), blocks, wanted[r], 0, 1);
  }
#undef RANDOM
  amx_matmul(tile, x, blocks, found[0], TILE_OUTPUTS, rows, NULL);
  return memcmp(wanted, found, sizeof wanted) == 0;
}

#endif
