/*
 * What kernels for products with tiled matrices share. A matrix lies in tiles of LANES outputs, one in each lane: four
 * weights of each output are multiplied by four inputs that all outputs share (dot.h).
 *
 * Exactness. An output's bits depend on its weights and its row and on nothing else: not on how many rows there are, on
 * which thread, or on which tile. Products are summed as integers, exact in any order, as far as one scale reaches, and
 * then by fused multiply-adds, blocks of inputs in ascending order.
 *
 * A kernel defines what follows and then includes tile-operations.h:
 *
 *   TILE_OUTPUTS, ROWS_AT_ONCE   before it includes this, where the usual will not do
 *   BLOCK            inputs of a block
 *   struct packed    a block as ggml has it; a tile has as many bytes as TILE_OUTPUTS rows of them
 *   struct rounded   a block of a row, rounded to 8 bits
 *   round_block      F32 to `rounded`
 *   tile_product     rows times a tile
 *   lay_out_tile     TILE_OUTPUTS rows of `packed` to a tile
 *   read_block       a block of one of a tile's rows to F32, with the bits that ggml gives it
 */
#if defined(__AVX512F__) && !defined(__AVX512VNNI__)
#undef __AVX512F__ /* There vectors of 256 bits are better: dot.h has no other form for them. */
#endif
#include "vector.h"
#include "dot.h"

#ifndef TILE_OUTPUTS
#define TILE_OUTPUTS LANES
#endif
/* Rows that are multiplied together. */
#ifndef ROWS_AT_ONCE
#define ROWS_AT_ONCE 16
#endif
/* Rounded rows that are to stay in the second cache while all tiles pass by. */
#define ROWS_BYTES (512 << 10)

struct matrix { /* written by TypeScript */
  uint8_t *tiles;
  int64_t inputs;
  int64_t outputs;
};

INLINE char *pointer_at(const char *p, int offset) {
  char *q;
  memcpy(&q, p + offset, sizeof q);
  return q;
}
INLINE int64_t int64_at(const char *p, int offset) {
  int64_t x;
  memcpy(&x, p + offset, sizeof x);
  return x;
}
#define SOURCE(tensor) pointer_at(tensor, TENSOR_SOURCE)
#define DATA(tensor) pointer_at(tensor, TENSOR_DATA)
#define ROW_COUNT(tensor) int64_at(tensor, TENSOR_NE + 8)

/*
 * Few rows are bound by memory, and the CPU's own prefetching stops at the end of each page. The bytes that are wanted
 * `AHEAD` of these; beyond the end of a matrix it does no harm.
 */
#define AHEAD 8192
INLINE void prefetch(const void *p, int bytes) {
  UNROLL for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)p + AHEAD + i, _MM_HINT_T1);
}

#define tile_bytes(blocks) ((blocks) * TILE_OUTPUTS * (int64_t)sizeof(struct packed))

/* From one row to the next. Rows that are a multiple of 4096 bytes apart would push each other out of the first cache. */
INLINE int64_t row_blocks(int64_t blocks) { return blocks | 1; }

INLINE float float_of(half x) { return splat_half(&x)[0]; }
