/*
 * Rows times a Q8_0 matrix, 16 outputs at a time: the matrix lies in tiles of 16 outputs, so that one instruction
 * multiplies 64 weights by four inputs that all outputs share.
 *
 * Exactness. Within 32 inputs products are summed as integers, exact in any order; then, per output, one fused
 * multiply-add, blocks of inputs in ascending order. An output's bits depend on its weights and its row and on nothing
 * else: not on how many rows there are, on which thread, or on which tile.
 *
 * A tile of `inputs` x 16, as many bytes as 16 rows of ggml's Q8_0:
 *
 *   scales  [inputs / 32][16]              halves
 *   weights [inputs / 32][8][16][4]        bytes, each 128 more than the weight: the instruction wants one side unsigned
 *
 * The rows are rounded to 8 bits once, and are 40 bytes per 32 inputs.
 */
#include "vector.h"

#if !defined(__AVX512VNNI__) || LANES != 16
#error "without AVX-512 VNNI"
#endif

#define BLOCK 32
#define TILE_OUTPUTS 16
#define GROUPS 8 /* of four inputs, in a block */
/* Rows whose sums are kept in registers. */
#define ROWS_AT_ONCE 16
/* Rounded rows that are to stay in the second cache while all tiles pass by. */
#define ROWS_BYTES (512 << 10)

struct matrix { /* written by TypeScript */
  uint8_t *tiles;
  int64_t inputs;
  int64_t outputs;
};
struct rounded { /* 32 inputs of a row; ten floats to ggml */
  float scale;
  int32_t correction; /* what the 128 in each weight add up to, negated */
  int8_t values[BLOCK];
};
struct q8_0 { /* as ggml has it */
  half scale;
  int8_t values[BLOCK];
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

/* ---- rounding rows -------------------------------------------------------------------------------------------- */

INLINE void round_block(const float *x, struct rounded *y) {
  const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
  const __m512 factor = _mm512_set1_ps(largest == 0 ? 0 : 127.0f / largest);
  const __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(a, factor)), j = _mm512_cvtps_epi32(_mm512_mul_ps(b, factor));
  _mm_storeu_si128((__m128i *)y->values, _mm512_cvtsepi32_epi8(i));
  _mm_storeu_si128((__m128i *)(y->values + 16), _mm512_cvtsepi32_epi8(j));
  /* Zero for numbers: a row that has overflowed stays no number, whatever the comparisons above made of it. */
  const __m512 none = _mm512_setzero_ps();
  const float spoilt = _mm512_reduce_add_ps(_mm512_fmadd_ps(a, none, _mm512_mul_ps(b, none)));
  /* ggml keeps the scale as a half. */
  y->scale = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(largest / 127.0f + spoilt), 0)));
  y->correction = -128 * _mm512_reduce_add_epi32(_mm512_add_epi32(i, j));
}

/* ggml's custom operation: F32 [inputs, rows] becomes [inputs / 32, rows] of `rounded`. */
static void round_rows(char *tensor, int thread, int threads, void *userdata) {
  const int64_t blocks = ((const struct matrix *)userdata)->inputs / BLOCK * ROW_COUNT(tensor);
  const float *x = (const float *)DATA(SOURCE(tensor));
  struct rounded *out = (struct rounded *)DATA(tensor);
  for (int64_t b = blocks * thread / threads; b < blocks * (thread + 1) / threads; b++) {
    round_block(x + b * BLOCK, out + b);
  }
}

/* ---- products ------------------------------------------------------------------------------------------------- */

INLINE void tile_product(const uint8_t *tile, const struct rounded *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  const uint8_t *scales = tile, *weights = tile + blocks * TILE_OUTPUTS * sizeof(half);
  __m512 sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    __m512i w[GROUPS];
    UNROLL for (int g = 0; g < GROUPS; g++) w[g] = _mm512_loadu_si512(weights + (b * GROUPS + g) * 64);
    const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(scales + b * 32)));
    UNROLL for (int r = 0; r < rows; r++) {
      const struct rounded *y = x + r * blocks + b;
      __m512i products = _mm512_set1_epi32(y->correction);
      UNROLL for (int g = 0; g < GROUPS; g++) {
        int32_t four;
        memcpy(&four, y->values + 4 * g, 4);
        products = _mm512_dpbusd_epi32(products, w[g], _mm512_set1_epi32(four));
      }
      sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), _mm512_mul_ps(scale, _mm512_set1_ps(y->scale)), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(out + r * out_stride, sum[r]);
}

static void product_16(const uint8_t *t, const struct rounded *x, int64_t blocks, float *out, int64_t stride) {
  tile_product(t, x, blocks, out, stride, 16);
}
static void product_8(const uint8_t *t, const struct rounded *x, int64_t blocks, float *out, int64_t stride) {
  tile_product(t, x, blocks, out, stride, 8);
}
static void product_4(const uint8_t *t, const struct rounded *x, int64_t blocks, float *out, int64_t stride) {
  tile_product(t, x, blocks, out, stride, 4);
}
static void product_2(const uint8_t *t, const struct rounded *x, int64_t blocks, float *out, int64_t stride) {
  tile_product(t, x, blocks, out, stride, 2);
}
static void product_1(const uint8_t *t, const struct rounded *x, int64_t blocks, float *out, int64_t stride) {
  tile_product(t, x, blocks, out, stride, 1);
}

static void rows_product(const uint8_t *tile, const struct rounded *x, int64_t blocks, float *out, int64_t stride,
                         int64_t rows) {
  int64_t r = 0;
  for (; r + 16 <= rows; r += 16) product_16(tile, x + r * blocks, blocks, out + r * stride, stride);
  if (rows - r >= 8) product_8(tile, x + r * blocks, blocks, out + r * stride, stride), r += 8;
  if (rows - r >= 4) product_4(tile, x + r * blocks, blocks, out + r * stride, stride), r += 4;
  if (rows - r >= 2) product_2(tile, x + r * blocks, blocks, out + r * stride, stride), r += 2;
  if (rows - r >= 1) product_1(tile, x + r * blocks, blocks, out + r * stride, stride);
}

/* ggml's custom operation: rounded rows become F32 [outputs, rows]. */
static void multiply(char *tensor, int thread, int threads, void *userdata) {
  const struct matrix *m = userdata;
  const int64_t rows = ROW_COUNT(tensor), blocks = m->inputs / BLOCK, tiles = m->outputs / TILE_OUTPUTS;
  const struct rounded *x = (const struct rounded *)DATA(SOURCE(tensor));
  float *out = (float *)DATA(tensor);
  const int64_t tile_bytes = blocks * TILE_OUTPUTS * sizeof(struct q8_0);
  int64_t together = ROWS_BYTES / (blocks * (int64_t)sizeof(struct rounded)) / ROWS_AT_ONCE * ROWS_AT_ONCE;
  if (together < ROWS_AT_ONCE) together = ROWS_AT_ONCE;
  for (int64_t first = 0; first < rows; first += together) {
    const int64_t count = rows - first < together ? rows - first : together;
    for (int64_t t = tiles * thread / threads; t < tiles * (thread + 1) / threads; t++) {
      rows_product(m->tiles + t * tile_bytes, x + first * blocks, blocks, out + first * m->outputs + t * TILE_OUTPUTS,
                   m->outputs, count);
    }
  }
}

/* The same for one row that is not rounded yet: every thread does that for itself, which is cheaper than waiting. */
static void multiply_row(char *tensor, int thread, int threads, void *userdata) {
  const struct matrix *m = userdata;
  const int64_t blocks = m->inputs / BLOCK, tiles = m->outputs / TILE_OUTPUTS;
  const int64_t tile_bytes = blocks * TILE_OUTPUTS * sizeof(struct q8_0);
  const float *x = (const float *)DATA(SOURCE(tensor));
  float *out = (float *)DATA(tensor);
  struct rounded row[INPUTS_MAX / BLOCK];
  for (int64_t b = 0; b < blocks; b++) round_block(x + b * BLOCK, row + b);
  for (int64_t t = tiles * thread / threads; t < tiles * (thread + 1) / threads; t++) {
    product_1(m->tiles + t * tile_bytes, row, blocks, out + t * TILE_OUTPUTS, m->outputs);
  }
}

/* ---- the matrix itself ---------------------------------------------------------------------------------------- */

/* ggml's custom operation: I32 [rows] becomes F32 [inputs, rows], the matrix's rows of these numbers, as ggml has them. */
static void take_rows(char *tensor, int thread, int threads, void *userdata) {
  const struct matrix *m = userdata;
  const int64_t rows = ROW_COUNT(tensor), blocks = m->inputs / BLOCK;
  const int32_t *wanted = (const int32_t *)DATA(SOURCE(tensor));
  float *out = (float *)DATA(tensor);
  for (int64_t r = rows * thread / threads; r < rows * (thread + 1) / threads; r++) {
    const int64_t row = wanted[r] % TILE_OUTPUTS;
    const uint8_t *tile = m->tiles + wanted[r] / TILE_OUTPUTS * blocks * TILE_OUTPUTS * (int64_t)sizeof(struct q8_0);
    const uint8_t *weights = tile + blocks * TILE_OUTPUTS * (int64_t)sizeof(half);
    for (int64_t b = 0; b < blocks; b++) {
      const float scale = splat_half((const half *)tile + b * TILE_OUTPUTS + row)[0];
      for (int i = 0; i < BLOCK; i++) {
        const int weight = weights[((b * GROUPS + i / 4) * TILE_OUTPUTS + row) * 4 + i % 4] - 128;
        out[r * m->inputs + b * BLOCK + i] = (float)weight * scale;
      }
    }
  }
}

/* Tiles [first, end) of ggml's Q8_0 rows into their new order, in place; `scratch` holds a tile. */
void kvasir_tile_q8(uint8_t *matrix, uint8_t *scratch, int64_t inputs, int64_t first, int64_t end) {
  const int64_t blocks = inputs / BLOCK, tile_bytes = blocks * TILE_OUTPUTS * (int64_t)sizeof(struct q8_0);
  for (int64_t t = first; t < end; t++) {
    uint8_t *tile = matrix + t * tile_bytes, *weights = tile + blocks * TILE_OUTPUTS * (int64_t)sizeof(half);
    memcpy(scratch, tile, tile_bytes);
    const struct q8_0 *rows = (const struct q8_0 *)scratch;
    for (int64_t b = 0; b < blocks; b++) {
      for (int row = 0; row < TILE_OUTPUTS; row++) {
        const struct q8_0 *from = rows + row * blocks + b;
        memcpy(tile + (b * TILE_OUTPUTS + row) * sizeof(half), &from->scale, sizeof(half));
        for (int g = 0; g < GROUPS; g++) {
          uint32_t four;
          memcpy(&four, from->values + 4 * g, 4);
          four ^= 0x80808080u;
          memcpy(weights + ((b * GROUPS + g) * TILE_OUTPUTS + row) * 4, &four, 4);
        }
      }
    }
  }
}

uintptr_t kvasir_round_rows_pointer(void) { return (uintptr_t)round_rows; }
uintptr_t kvasir_multiply_pointer(void) { return (uintptr_t)multiply; }
uintptr_t kvasir_multiply_row_pointer(void) { return (uintptr_t)multiply_row; }
uintptr_t kvasir_take_rows_pointer(void) { return (uintptr_t)take_rows; }
