/*
 * What kernels for matmuls with tiled matrices share. A matrix consists of tiles of LANES outputs, one in each lane.
 * Four weights of each output are multiplied by four inputs that all outputs share (dot.h).
 *
 * Exactness. An output's bits depend only on its weights and its row, not on the number of rows, the thread or the
 * tile. The products of inputs with one scale are summed as integers, exact in any order. These sums are then added by
 * fused multiply-adds, blocks of inputs in ascending order.
 *
 * A kernel defines these names and then includes tile-operations.h:
 *
 *   TILE_OUTPUTS, ROWS_AT_ONCE, PREFETCH_ROWS_MIN, ROW_BY_ROW_MIN   before it includes this file, if the defaults do not fit
 *   BLOCK              inputs of a block
 *   struct packed      a block in ggml's layout; a tile has as many bytes as TILE_OUTPUTS rows of them
 *   struct quantized   a block of a row, quantized to 8 bits
 *   quantize_block     F32 to `quantized`
 *   tile_matmul        rows times a tile
 *   lay_out_tile       TILE_OUTPUTS rows of `packed` to a tile
 *   read_block         a block of one of a tile's rows to F32, with the bits that ggml gives it
 */
#if defined(__AVX512F__) && !defined(__AVX512VNNI__)
#undef __AVX512F__ /* Without VNNI, dot.h has a form for vectors of 256 bits only. */
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include "vector.h"
#include "tensor.h"
#include "dot.h"
#include "row-pairs.h"
#include "amx.h"

#ifndef TILE_OUTPUTS
#define TILE_OUTPUTS LANES
#endif
#include "lay-out.h"
/* Rows that are multiplied together. */
#ifndef ROWS_AT_ONCE
#define ROWS_AT_ONCE 16
#endif
/* Bytes of quantized rows that stay in the second-level cache while all tiles are multiplied. */
#define ROWS_BYTES (512 << 10)

struct matrix { /* written by TypeScript */
  const uint8_t *tiles;
  int64_t inputs;
  int64_t outputs;
  int64_t experts; /* matrices of this shape, one after another */
  /* NULL: `tiles` are tiles. Else they are rows in ggml's layout, of a file in memory, and each thread has room for a tile. */
  uint8_t *room;
  int64_t room_bytes; /* of a thread */
};

#define ROW_COUNT(tensor) NE(tensor, 1)

/* A Zen 4: the only CPUs of AMD's family 25 with AVX-512. */
#if defined(__x86_64__)
static int is_zen4;
__attribute__((constructor)) static void find_cpu(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || !__get_cpuid(1, &a, &b, &c, &d)) return;
  const unsigned family = (a >> 8 & 15) + (a >> 20 & 255);
  is_zen4 = family == 25 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 16 & 1);
}
#else
#define is_zen4 0
#endif

/*
 * Memory limits matmuls of few rows, and the CPU's own prefetching falls behind, or stops at the end of each page. This
 * prefetches the bytes that follow these at two distances: into the second-level cache, and later into the first-level
 * cache. A prefetch beyond the end of a matrix has no effect.
 *
 * A single row computes so little that a Zen 4 is faster with its own prefetching alone.
 */
#define FAR_AHEAD 6144
#define AHEAD 3072
#ifndef PREFETCH_ROWS_MIN
#define PREFETCH_ROWS_MIN (is_zen4 ? 2 : 1)
#endif
INLINE void prefetch(const void *p, int bytes, int rows) {
  if (rows < PREFETCH_ROWS_MIN) return;
  UNROLL for (int i = 0; i < bytes; i += 64) {
    __builtin_prefetch((const char *)p + FAR_AHEAD + i, 0, 2);
    __builtin_prefetch((const char *)p + AHEAD + i, 0, 3);
  }
}

#define tile_bytes(blocks) ((blocks) * TILE_OUTPUTS * (int64_t)sizeof(struct packed))

/* Blocks from one row to the next. Rows that are a multiple of 4096 bytes apart would evict each other from the
 * first-level cache. */
INLINE int64_t row_blocks(int64_t blocks) { return blocks | 1; }

/*
 * A pointer to the same block of the next of `rows` rows. The assembly is empty. It stops GCC from keeping a pointer for
 * each row, and clang from multiplying all rows by one vector of weights before it loads the next one: both need more
 * registers than x86 has. Where there are other sums to keep, ROW_IS_ADDED(sum, rows) also helps clang with more than
 * eight rows, or from ROW_BY_ROW_MIN rows on.
 */
INLINE const void *next_row(const void *x, int64_t row_bytes, int rows) {
  x = (const char *)x + row_bytes;
#if defined(__x86_64__)
  if (rows > 4) __asm__ volatile("" : "+r"(x));
#endif
  (void)rows;
  return x;
}
#if !defined(ROW_BY_ROW_MIN) && defined(__clang__)
#define ROW_BY_ROW_MIN 9
#endif
#if defined(ROW_BY_ROW_MIN) && LANES == 16
#define ROW_IS_ADDED(sum, rows) \
  if (rows >= ROW_BY_ROW_MIN) __asm__ volatile("" : "+v"(sum))
#else
#define ROW_IS_ADDED(sum, rows) (void)0
#endif

INLINE float float_of(f16 x) { return splat_f16(&x)[0]; }
