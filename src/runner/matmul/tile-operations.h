/* ggml's custom operations over a tiled matrix, from the definitions that tiles.h lists. */

/* A copy for each caller would double the time of compiling. */
#define COMPILED_ONCE static __attribute__((noinline, noclone))

/* F32 [inputs, rows] becomes [row_blocks(inputs / BLOCK), rows] of `quantized`. */
static void quantize_rows(char *tensor, int thread, int threads, void *userdata) {
  const int64_t blocks = ((const struct matrix *)userdata)->inputs / BLOCK, all = blocks * ROW_COUNT(tensor);
  const int64_t begin = all * thread / threads, end = all * (thread + 1) / threads;
  const float *x = (const float *)DATA(SOURCE(tensor, 0));
  struct quantized *out = (struct quantized *)DATA(tensor);
  for (int64_t b = begin, row = begin / blocks; b < end; row++) {
    struct quantized *to = out + row * (row_blocks(blocks) - blocks);
    for (; b < end && b < (row + 1) * blocks; b++) quantize_block(x + b * BLOCK, to + b);
  }
}

/* Rows times one tile: ROWS_AT_ONCE rows at a time, then the remaining rows in smaller groups. The result of row r is
 * written to row `targets[r]` of `out`, or to row r if there are no targets. */
COMPILED_ONCE void rows_matmul(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out, int64_t stride,
                         int64_t rows, const int32_t *targets) {
  float part[ROWS_AT_ONCE * TILE_OUTPUTS];
  int64_t r = 0;
#define TIMES(n)                                                                             \
  for (; n <= ROWS_AT_ONCE && rows - r >= n; r += n) {                                       \
    float *to = targets == NULL ? out + r * stride : part;                                   \
    const int64_t to_stride = targets == NULL ? stride : TILE_OUTPUTS;                       \
    tile_matmul(tile, x + r * row_blocks(blocks), blocks, to, to_stride, n);                 \
    if (targets == NULL) continue;                                                           \
    for (int i = 0; i < n; i++)                                                              \
      memcpy(out + targets[r + i] * stride, part + i * TILE_OUTPUTS, TILE_OUTPUTS * sizeof(float)); \
  }
  TIMES(ROWS_AT_ONCE) TIMES(8) TIMES(4) TIMES(2) TIMES(1)
#undef TIMES
}

/* Quantized rows that stay in the second-level cache, in whole groups of ROWS_AT_ONCE. */
INLINE int64_t rows_together(int64_t blocks) {
  const int64_t rows = ROWS_BYTES / (row_blocks(blocks) * (int64_t)sizeof(struct quantized)) / ROWS_AT_ONCE * ROWS_AT_ONCE;
  return rows < ROWS_AT_ONCE ? ROWS_AT_ONCE : rows;
}

/* Quantized rows become F32 [outputs, rows]. */
static void multiply(char *tensor, int thread, int threads, void *userdata) {
  const struct matrix *m = userdata;
  const int64_t rows = ROW_COUNT(tensor), blocks = m->inputs / BLOCK, tiles = m->outputs / TILE_OUTPUTS;
  const struct quantized *x = (const struct quantized *)DATA(SOURCE(tensor, 0));
  float *out = (float *)DATA(tensor);
  const int64_t together = rows_together(blocks);
  for (int64_t first = 0; first < rows; first += together) {
    const int64_t count = rows - first < together ? rows - first : together;
    for (int64_t t = tiles * thread / threads; t < tiles * (thread + 1) / threads; t++) {
      rows_matmul(m->tiles + t * tile_bytes(blocks), x + first * row_blocks(blocks), blocks,
                   out + first * m->outputs + t * TILE_OUTPUTS, m->outputs, count, NULL);
    }
  }
}

/* One quantized row times tiles [first, end). */
COMPILED_ONCE void row_matmul(const uint8_t *tiles, const struct quantized *row, int64_t blocks, float *out, int64_t first,
                       int64_t end) {
  for (int64_t t = first; t < end; t++) {
    tile_matmul(tiles + t * tile_bytes(blocks), row, blocks, out + t * TILE_OUTPUTS, 0, 1);
  }
}

INLINE void quantize_row(const float *x, int64_t blocks, struct quantized *row) {
  for (int64_t b = 0; b < blocks; b++) quantize_block(x + b * BLOCK, row + b);
}

/* The same for one row of F32: every thread quantizes the whole row, which is cheaper than waiting. */
static void multiply_row(char *tensor, int thread, int threads, void *userdata) {
  const struct matrix *m = userdata;
  const int64_t blocks = m->inputs / BLOCK, tiles = m->outputs / TILE_OUTPUTS;
  const float *x = (const float *)DATA(SOURCE(tensor, 0));
  float *out = (float *)DATA(tensor);
  struct quantized row[INPUTS_MAX / BLOCK];
  quantize_row(x, blocks, row);
  row_matmul(m->tiles, row, blocks, out, tiles * thread / threads, tiles * (thread + 1) / threads);
}

/* I32 [rows] becomes F32 [inputs, rows]: the matrix's rows with these indices. */
static void take_rows(char *tensor, int thread, int threads, void *userdata) {
  const struct matrix *m = userdata;
  const int64_t rows = ROW_COUNT(tensor), blocks = m->inputs / BLOCK;
  const int32_t *wanted = (const int32_t *)DATA(SOURCE(tensor, 0));
  float *out = (float *)DATA(tensor);
  for (int64_t r = rows * thread / threads; r < rows * (thread + 1) / threads; r++) {
    const uint8_t *tile = m->tiles + wanted[r] / TILE_OUTPUTS * tile_bytes(blocks);
    for (int64_t b = 0; b < blocks; b++) {
      read_block(tile, blocks, b, wanted[r] % TILE_OUTPUTS, out + r * m->inputs + b * BLOCK);
    }
  }
}

/* Lays ggml's rows out as tiles [first, end), in place; `scratch` holds a tile. */
void kvasir_tile(uint8_t *matrix, uint8_t *scratch, int64_t inputs, int64_t first, int64_t end) {
  const int64_t blocks = inputs / BLOCK;
  for (int64_t t = first; t < end; t++) {
    uint8_t *tile = matrix + t * tile_bytes(blocks);
    memcpy(scratch, tile, tile_bytes(blocks));
    lay_out_tile((const struct packed *)scratch, blocks, tile);
  }
}

const char *kvasir_form(void) { return FORM; }
int64_t kvasir_tile_outputs(void) { return TILE_OUTPUTS; }
int64_t kvasir_quantized_bytes(int64_t inputs) { return row_blocks(inputs / BLOCK) * (int64_t)sizeof(struct quantized); }
uintptr_t kvasir_quantize_rows_pointer(void) { return (uintptr_t)quantize_rows; }
uintptr_t kvasir_multiply_pointer(void) { return (uintptr_t)multiply; }
uintptr_t kvasir_multiply_row_pointer(void) { return (uintptr_t)multiply_row; }
uintptr_t kvasir_take_rows_pointer(void) { return (uintptr_t)take_rows; }

#include "expert-operations.h"
