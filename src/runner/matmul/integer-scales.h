/*
 * Rows times tiles of which 256 inputs have integer scales (block-scales.h). Products of 256 inputs are summed as integers,
 * which are rounded once to floats. The factors of some blocks come before these blocks (scale-groups.h). Before the include,
 * a kernel defines:
 *
 *   SCALE_INPUTS     16 or 32
 *   ADDED            what was added to weights of at most six bits, to make them unsigned: 0, or 32 if SCALE_INPUTS is 16
 *   SIGNED_WEIGHTS   instead of ADDED: weights are those of Q8_0. SCALE_INPUTS is 32
 *   UNITS            weights are so many times as large as in the file: a power of two
 *   struct packed    a block in ggml's layout
 *   struct block     a block of a tile, without its factors
 *   scale_bits       the factors of a block, of which d is the first; WITH_MINIMA they are d and dmin
 *
 * and after it:
 *
 *   load_weights     32 inputs of a block: four in each vector
 *   scales_in        the scales of a block; `space` is for those that must be unpacked
 *   lay_out_block    a block of all outputs, of which output o is `from[o * blocks]`
 */
#include "block-scales.h"

#define WEIGHT_BYTES ((int)sizeof(struct block))
#include "scale-groups.h"

#if defined(SIGNED_WEIGHTS)
#define ADDED ((int)(SIGN_BITS & 255))
#endif

INLINE void load_weights(const struct block *t, int thirty_two, ivec w[8]);
INLINE const struct block_scales *scales_in(const uint8_t *factors, const struct block *t, struct block_scales *space);
INLINE void lay_out_block(const struct packed *from, int64_t blocks, uint8_t *factors, struct block *t);

INLINE struct block *block_at(const uint8_t *tile, int64_t blocks, int64_t b) {
  return (struct block *)(tile + weights_at(blocks, b));
}

INLINE struct factors factors_of(const uint8_t *factors, const struct block_scales *scales) {
  const vec d = load_f16((const f16 *)factors) * splat(1.0f / UNITS);
#if defined(WITH_MINIMA)
  return factors_with_minima(d, load_minima(factors), scales);
#else
  (void)scales;
  return (struct factors){d};
#endif
}

/* Prefetches a quarter of what follows a block, and once for each cache line the factors. */
INLINE void prefetch_quarter(const uint8_t *tile, const struct block *t, int64_t b, int quarter, int rows) {
  if (quarter == 0 && b % TOGETHER == 0) prefetch(tile + scales_at(b), 64, rows);
  prefetch((const char *)t + quarter * (sizeof *t / 4), sizeof *t / 4, rows);
}

#if defined(ROW_PAIRS)
/* The bits of `tile_matmul`, for an even number of rows. Weights become signed here, so sums need no correction. */
INLINE void tile_matmul_of_pairs(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out,
                                 int64_t out_stride, int rows) {
  vec sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = splat(0);
  for (int64_t b = 0; b < blocks; b++) {
    const struct block *t = block_at(tile, blocks, b);
    struct block_scales space;
    const struct block_scales *scales = scales_in(tile + scales_at(b), t, &space);
    struct pair part[ROWS_AT_ONCE / 2];
    UNROLL for (int p = 0; p < rows / 2; p++) part[p] = (struct pair){{0}, {0}};
    for (int i = 0; i < 8; i++) {
      if (i % 2 == 0) prefetch_quarter(tile, t, b, i / 2, rows);
      ivec w[8];
      load_weights(t, i, w);
      UNROLL for (int g = 0; g < 8; g++) w[g] = (ivec)vsubq_s8((int8x16_t)w[g], vdupq_n_s8((int8_t)ADDED));
      UNROLL for (int s = 0; s < 32 / SCALE_INPUTS; s++) {
        enum { groups = SCALE_INPUTS / 4 };
        struct pair pairs[groups / 2];
        pair_weights(w + s * groups, groups, pairs);
        const int at = 32 * i + s * SCALE_INPUTS;
        const ivec scale = widen_signed(scales->of[at / SCALE_INPUTS]);
        UNROLL for (int p = 0; p < rows / 2; p++) {
          const struct quantized *y = x + 2 * p * row_blocks(blocks) + b, *z = y + row_blocks(blocks);
          part[p] = add_scaled_pair(part[p], pair_products(pairs, groups, y->values + at, z->values + at), scale);
        }
      }
    }
    const struct factors f = factors_of(tile + scales_at(b), scales);
    UNROLL for (int r = 0; r < rows; r++) {
      const ivec products = r % 2 == 0 ? first_row(part[r / 2]) : second_row(part[r / 2]);
      sum[r] = add_block(&f, x + r * row_blocks(blocks) + b, floats(products), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) store(out + r * out_stride, sum[r]);
}
#endif

/* Adds the products of 32 inputs to those of other inputs: inputs 32 * i and following. */
INLINE ivec add_inputs(ivec part, const ivec w[8], const struct quantized *y, int i, const ivec scales[2]) {
  const int8_t *values = y->values + 32 * i;
#if defined(SIGNED_WEIGHTS)
  ivec products = signed_start(-ADDED * y->sums[i]);
  UNROLL for (int g = 0; g < 8; g++) products = add_signed_products(products, w[g], values + 4 * g);
  return part + products * scales[0];
#elif SCALE_INPUTS == 32
  return add_thirty_two(part, w, values, scales[0]);
#else
  static const int16_t none[2][2];
  return add_two_sixteens(part, w, values, ADDED == 0 ? none : y->corrections + 2 * i, scales);
#endif
}
#if defined(SIGNED_WEIGHTS)
#define SCALE_OPERAND(scale) (scale)
#else
#define SCALE_OPERAND(scale) signed_scales_of(scale)
#endif

INLINE void tile_matmul(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
#if defined(ROW_PAIRS)
  if (rows > 1) {
    tile_matmul_of_pairs(tile, x, blocks, out, out_stride, rows);
    return;
  }
#endif
  const int64_t row_bytes = row_blocks(blocks) * (int64_t)sizeof *x;
  vec sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = splat(0);
  for (int64_t b = 0; b < blocks; b++) {
    const struct block *t = block_at(tile, blocks, b);
    struct block_scales space;
    const struct block_scales *scales = scales_in(tile + scales_at(b), t, &space);
    ivec part[ROWS_AT_ONCE];
    UNROLL for (int r = 0; r < rows; r++) part[r] = splat_int(0);
    for (int chunk = 0; chunk < 4; chunk++) {
      prefetch_quarter(tile, t, b, chunk, rows);
      UNROLL for (int half = 0; half < 2; half++) {
        const int i = 2 * chunk + half, first = 32 * i / SCALE_INPUTS;
        ivec w[8];
        load_weights(t, i, w);
        const ivec of[2] = {SCALE_OPERAND(widen_signed(scales->of[first])),
                            SCALE_OPERAND(widen_signed(scales->of[first + 32 / SCALE_INPUTS - 1]))};
        const struct quantized *y = x + b;
        UNROLL for (int r = 0; r < rows; r++) {
          if (r > 0) y = next_row(y, row_bytes, rows);
          part[r] = add_inputs(part[r], w, y, i, of);
          ROW_IS_ADDED(part[r], rows);
        }
      }
    }
    const struct factors f = factors_of(tile + scales_at(b), scales);
    const struct quantized *y = x + b;
    UNROLL for (int r = 0; r < rows; r++) {
      if (r > 0) y = next_row(y, row_bytes, rows);
      sum[r] = add_block(&f, y, floats(part[r]), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) store(out + r * out_stride, sum[r]);
}

#if defined(AMX)
/* A product of a weight and its scale has at most 13 bits and a sign: 128 times the upper byte, plus the lower seven bits. */
#define AMX_UPPER 128
#define amx_scales factors

INLINE void amx_expand_weights(const uint8_t *tile, int64_t blocks, int64_t b, int k, ivec upper[16], ivec lower[16]) {
  const struct block *t = block_at(tile, blocks, b);
  struct block_scales space;
  const struct block_scales *scales = scales_in(tile + scales_at(b), t, &space);
  const ivec bytes = splat_int(0x00ff00ff);
  const shorts added = (shorts)splat_int(ADDED | ADDED << 16), seven_bits = (shorts)splat_int(0x007f007f);
  UNROLL for (int half = 0; half < 2; half++) {
    ivec w[8];
    load_weights(t, 2 * k + half, w);
    UNROLL for (int g = 0; g < 8; g++) {
      const int input = 64 * k + 32 * half + 4 * g;
      const ivec signed_scale = widen_signed(scales->of[input / SCALE_INPUTS]) & splat_int(0xffff);
      const shorts scale = (shorts)(signed_scale | signed_scale << 16);
      const shorts even = ((shorts)(w[g] & bytes) - added) * scale, odd = ((shorts)(w[g] >> 8 & bytes) - added) * scale;
      upper[8 * half + g] = ((ivec)(even >> 7) & bytes) | ((ivec)(odd >> 7) & bytes) << 8;
      lower[8 * half + g] = (ivec)((even & seven_bits) | (odd & seven_bits) << 8);
    }
  }
}

INLINE void amx_expand_scales(const uint8_t *tile, int64_t blocks, int64_t b, struct amx_scales *to) {
  struct block_scales space;
  *to = factors_of(tile + scales_at(b), scales_in(tile + scales_at(b), block_at(tile, blocks, b), &space));
}

INLINE vec amx_add(const struct amx_scales *scales, const struct quantized *y, ivec products, vec sum) {
  return add_block(scales, y, floats(products), sum);
}
#endif
#include "amx-by-256.h"

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  for (int64_t b = 0; b < blocks; b++) lay_out_block(rows + b, blocks, tile + scales_at(b), block_at(tile, blocks, b));
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const struct block *t = block_at(tile, blocks, b);
  const f16 *factors = (const f16 *)(tile + scales_at(b));
  struct block_scales space;
  const struct block_scales *scales = scales_in((const uint8_t *)factors, t, &space);
  const float d = float_of(factors[row]);
  for (int i = 0; i < 8; i++) {
    ivec w[8];
    uint8_t bytes[8][TILE_OUTPUTS][4];
    load_weights(t, i, w);
    memcpy(bytes, w, sizeof bytes);
    for (int input = 32 * i; input < 32 * i + 32; input++) {
      const uint8_t byte = bytes[input % 32 / 4][row][input % 4];
#if defined(SIGNED_WEIGHTS)
      const int weight = (int8_t)(byte ^ ADDED);
#else
      const int weight = (byte - ADDED) / UNITS;
#endif
      out[input] = d * (float)scales->of[input / SCALE_INPUTS][row] * (float)weight;
#if defined(WITH_MINIMA)
      out[input] -= float_of(factors[TILE_OUTPUTS + row]) * (float)scales->minima[input / SCALE_INPUTS][row];
#endif
    }
  }
}

#include "tile-operations.h"
