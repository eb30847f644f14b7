/* ggml's custom operations over a tiled matrix, from the definitions that tiles.h lists. */

/* A copy for each caller would double the time of compiling. */
#define COMPILED_ONCE static __attribute__((noinline, noclone))

/* Of a tensor that `kvasir_quantized_bytes` describes: where its rows begin. ggml aligns tensors less than blocks may need. */
INLINE struct quantized *quantized_rows(const char *tensor) {
  const uintptr_t alignment = _Alignof(struct quantized);
  return (struct quantized *)(((uintptr_t)DATA(tensor) + alignment - 1) & ~(alignment - 1));
}

/* F32 [inputs, rows] becomes [row_blocks(inputs / BLOCK), rows] of `quantized`. */
static void quantize_rows(char *tensor, int thread, int threads, void *userdata) {
  const int64_t blocks = ((const struct matrix *)userdata)->inputs / BLOCK, all = blocks * ROW_COUNT(tensor);
  const int64_t begin = all * thread / threads, end = all * (thread + 1) / threads;
  const float *x = (const float *)DATA(SOURCE(tensor, 0));
  struct quantized *out = quantized_rows(tensor);
  for (int64_t b = begin, row = begin / blocks; b < end; row++) {
    struct quantized *to = out + row * (row_blocks(blocks) - blocks);
    for (; b < end && b < (row + 1) * blocks; b++) quantize_block(x + b * BLOCK, to + b);
  }
}

COMPILED_ONCE void lay_out(const uint8_t *rows, int64_t blocks, uint8_t *tile) {
  lay_out_tile((const struct packed *)rows, blocks, tile);
}

/* Tile t. Of a matrix in ggml's layout it is laid out now, and stays until the thread asks for the next one. */
INLINE const uint8_t *tile_of(const struct matrix *m, int64_t t, int64_t blocks, int thread) {
  const uint8_t *tile = m->tiles + t * tile_bytes(blocks);
  if (m->room == NULL) return tile;
  uint8_t *laid_out = m->room + thread * m->room_bytes;
  lay_out(tile, blocks, laid_out);
  return laid_out;
}

#include "amx-operations.h"

#if defined(AMX_INPUTS)
static int amx_is_used;
/* How many of these rows AMX multiplies: the first ones, in groups of 16. */
INLINE int64_t rows_of_amx(int64_t rows) { return amx_is_used && rows >= AMX_ROWS_MIN ? rows / 16 * 16 : 0; }
#endif

/* Rows times one tile: ROWS_AT_ONCE rows at a time, then the remaining rows in smaller groups. If a group lacks one row, the
 * row before it is multiplied again, because that takes less time than several smaller groups. The result of row r is
 * written to row `targets[r]` of `out`, or to row r if there are no targets. */
COMPILED_ONCE void rows_matmul(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out, int64_t stride,
                         int64_t rows, const int32_t *targets) {
  float part[ROWS_AT_ONCE * TILE_OUTPUTS];
  int64_t r = 0;
#if defined(AMX_INPUTS)
  r = rows_of_amx(rows);
  if (r > 0) amx_matmul(tile, x, blocks, out, stride, r, targets);
#endif
#define LACKS_ONE(n) (n > 2 && r > 0 && rows - r == n - 1)
#define TIMES(n)                                                                             \
  for (; n <= ROWS_AT_ONCE && (rows - r >= n || LACKS_ONE(n)); r += n) {                     \
    if (rows - r < n) r--;                                                                   \
    float *to = targets == NULL ? out + r * stride : part;                                   \
    const int64_t to_stride = targets == NULL ? stride : TILE_OUTPUTS;                       \
    tile_matmul(tile, x + r * row_blocks(blocks), blocks, to, to_stride, n);                 \
    if (targets == NULL) continue;                                                           \
    for (int i = 0; i < n; i++)                                                              \
      memcpy(out + targets[r + i] * stride, part + i * TILE_OUTPUTS, TILE_OUTPUTS * sizeof(float)); \
  }
  TIMES(ROWS_AT_ONCE) TIMES(8) TIMES(4) TIMES(2) TIMES(1)
#undef TIMES
#undef LACKS_ONE
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
  const struct quantized *x = quantized_rows(SOURCE(tensor, 0));
  float *out = (float *)DATA(tensor);
  const int64_t together = rows_together(blocks);
  for (int64_t first = 0; first < rows; first += together) {
    const int64_t count = rows - first < together ? rows - first : together;
    for (int64_t t = tiles * thread / threads; t < tiles * (thread + 1) / threads; t++) {
      rows_matmul(tile_of(m, t, blocks, thread), x + first * row_blocks(blocks), blocks,
                   out + first * m->outputs + t * TILE_OUTPUTS, m->outputs, count, NULL);
    }
  }
}

/* One quantized row times tiles [first, end) of an expert. */
COMPILED_ONCE void row_matmul(const struct matrix *m, int64_t expert, const struct quantized *row, float *out, int64_t first,
                       int64_t end, int thread) {
  const int64_t blocks = m->inputs / BLOCK, tiles = m->outputs / TILE_OUTPUTS;
  for (int64_t t = first; t < end; t++) {
    tile_matmul(tile_of(m, expert * tiles + t, blocks, thread), row, blocks, out + t * TILE_OUTPUTS, 0, 1);
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
  row_matmul(m, 0, row, out, tiles * thread / threads, tiles * (thread + 1) / threads, thread);
}

/* I32 [rows] becomes F32 [inputs, rows]: the matrix's rows with these indices. */
static void take_rows(char *tensor, int thread, int threads, void *userdata) {
  const struct matrix *m = userdata;
  const int64_t rows = ROW_COUNT(tensor), blocks = m->inputs / BLOCK;
  const int32_t *wanted = (const int32_t *)DATA(SOURCE(tensor, 0));
  float *out = (float *)DATA(tensor);
  for (int64_t r = rows * thread / threads; r < rows * (thread + 1) / threads; r++) {
    const uint8_t *tile = tile_of(m, wanted[r] / TILE_OUTPUTS, blocks, thread);
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
    lay_out(scratch, blocks, tile);
  }
}

/* Uses AMX from now on if this library has a form for it and the CPU has AMX: 1 if AMX is used, 2 if the system does not
 * permit it, 3 if AMX gives other bits, else 0. */
int64_t kvasir_use_amx(int64_t cpu_has_amx) {
  (void)cpu_has_amx;
#if defined(AMX_INPUTS)
#if !defined(AMX_EMULATED)
  if (!cpu_has_amx) return 0;
#endif
  if (!amx_is_permitted()) return 2;
  if (!amx_has_same_bits()) return 3;
  amx_is_used = 1;
  return 1;
#else
  return 0;
#endif
}

const char *kvasir_form(void) {
#if defined(AMX_INPUTS)
  if (amx_is_used) return AMX_NAME;
#endif
  return FORM;
}
int64_t kvasir_tile_outputs(void) { return TILE_OUTPUTS; }
/* Of a row. Each has bytes to spare, because the first one may have to be aligned. */
int64_t kvasir_quantized_bytes(int64_t inputs) {
  return row_blocks(inputs / BLOCK) * (int64_t)sizeof(struct quantized) + (int64_t)_Alignof(struct quantized);
}
uintptr_t kvasir_quantize_rows_pointer(void) { return (uintptr_t)quantize_rows; }
uintptr_t kvasir_multiply_pointer(void) { return (uintptr_t)multiply; }
uintptr_t kvasir_multiply_row_pointer(void) { return (uintptr_t)multiply_row; }
uintptr_t kvasir_take_rows_pointer(void) { return (uintptr_t)take_rows; }

#include "expert-operations.h"
