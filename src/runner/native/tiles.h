/*
 * What kernels for products with tiled matrices share. A matrix lies in tiles of 16 outputs, one in each lane: one
 * instruction multiplies 64 weights, four of each output, by four inputs that all outputs share.
 *
 * Exactness. An output's bits depend on its weights and its row and on nothing else: not on how many rows there are, on
 * which thread, or on which tile. Products are summed as integers, exact in any order, as far as one scale reaches, and
 * then by fused multiply-adds, blocks of inputs in ascending order.
 *
 * A kernel defines what follows and then includes tile-operations.h:
 *
 *   BLOCK            inputs of a block
 *   struct packed    a block as ggml has it; a tile has as many bytes as 16 rows of them
 *   struct rounded   a block of a row, rounded to 8 bits
 *   round_block      F32 to `rounded`
 *   tile_product     rows times a tile
 *   lay_out_tile     16 rows of `packed` to a tile
 *   read_block       a block of one of a tile's rows to F32, with the bits that ggml gives it
 */
#include "vector.h"

#if !defined(__AVX512VNNI__) || LANES != 16
#error "without AVX-512 VNNI"
#endif

#define TILE_OUTPUTS 16
/* Rows whose sums are kept in registers. */
#define ROWS_AT_ONCE 16
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

/* The same four bytes in every lane. */
INLINE __m512i splat_bytes(const void *p) {
  int32_t four;
  memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}
INLINE __m512 load_halves(const half *p) { return (__m512)load_half(p); }
INLINE float float_of(half x) { return splat_half(&x)[0]; }
