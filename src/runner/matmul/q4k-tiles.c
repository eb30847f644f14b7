/*
 * Matmuls with Q4_K matrices. A weight is d * scale * nibble - dmin * minimum; 32 inputs share a scale and a minimum,
 * which have six bits.
 *
 * The nibbles of 32 inputs are multiplied as integers and scaled; the minima of 256 inputs are multiplied by sums of
 * inputs as integers. Where upper nibbles count sixteen times, their scales are a sixteenth: both are exact.
 */
#define WITH_MINIMA
#include "tiles.h"
#include "k-rows.h"

#define SCALE_INPUTS 32
#include "block-scales.h"
#include "six-bit-scales.h"

struct packed {
  f16 d, dmin;
  uint8_t scales[12];
  uint8_t nibbles[128]; /* of each 64 inputs 32 bytes: the first 32 are the lower nibbles */
};
struct tile { /* 256 inputs */
  f16 d[TILE_OUTPUTS], dmin[TILE_OUTPUTS];
  uint8_t scales[12][TILE_OUTPUTS];
  uint8_t nibbles[4][8][TILE_OUTPUTS][4];
};

INLINE void set_test_scales(struct packed *p) {
  p->d = 0x2c7c ^ (p->d & 3);
  p->dmin = 0x2c7c ^ (p->dmin & 3);
}

INLINE struct factors factors_of(const struct tile *t, const struct block_scales *scales) {
  return factors_with_minima(load_f16(t->d), load_f16(t->dmin), scales);
}

#if defined(ROW_PAIRS)
/* The bits of `tile_matmul`, for an even number of rows. */
INLINE void tile_matmul_of_pairs(const uint8_t *tiles, const struct quantized *x, int64_t blocks, float *out,
                                 int64_t out_stride, int rows) {
  vec sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = splat(0);
  for (int64_t b = 0; b < blocks; b++) {
    const struct tile *t = (const struct tile *)tiles + b;
    struct block_scales u;
    unpack_scales(t->scales, &u);
    struct pair part[ROWS_AT_ONCE / 2];
    UNROLL for (int p = 0; p < rows / 2; p++) part[p] = (struct pair){{0}, {0}};
    for (int chunk = 0; chunk < 4; chunk++) {
      prefetch((const char *)t + chunk * sizeof *t / 4, sizeof *t / 4, rows);
      UNROLL for (int upper = 0; upper < 2; upper++) {
        ivec w[8];
        struct pair pairs[4];
        UNROLL for (int g = 0; g < 8; g++) {
          const ivec two = load_ints(t->nibbles[chunk][g]);
          w[g] = upper ? upper_nibbles(two) : lower_nibbles(two);
        }
        pair_weights(w, 8, pairs);
        const ivec scale = widen_signed(u.of[2 * chunk + upper]);
        UNROLL for (int p = 0; p < rows / 2; p++) {
          const struct quantized *y = x + 2 * p * row_blocks(blocks) + b, *z = y + row_blocks(blocks);
          const int at = chunk * 64 + upper * 32;
          part[p] = add_scaled_pair(part[p], pair_products(pairs, 8, y->values + at, z->values + at), scale);
        }
      }
    }
    const struct factors f = factors_of(t, &u);
    UNROLL for (int r = 0; r < rows; r++) {
      const ivec products = r % 2 == 0 ? first_row(part[r / 2]) : second_row(part[r / 2]);
      sum[r] = add_block(&f, x + r * row_blocks(blocks) + b, floats(products), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) store(out + r * out_stride, sum[r]);
}
#endif

/* Adds the products of 64 inputs. */
INLINE void add_chunk(const struct tile *t, const struct block_scales *u, int chunk, const struct quantized *x,
                      int64_t row_bytes, scaled *part, int rows) {
  prefetch((const char *)t + chunk * sizeof *t / 4, sizeof *t / 4, rows);
  UNROLL for (int upper = 0; upper < 2; upper++) {
    ivec w[8];
    UNROLL for (int g = 0; g < 8; g++) {
      const ivec two = load_ints(t->nibbles[chunk][g]);
      w[g] = upper ? upper_nibbles(two) : two & splat_byte(15);
    }
    const ivec factors = widen_signed(u->of[2 * chunk + upper]);
    const scales scale = upper ? scales_of_nibbles(factors) : scales_of(factors);
    const struct quantized *y = x;
    UNROLL for (int r = 0; r < rows; r++) {
      if (r > 0) y = next_row(y, row_bytes, rows);
      const int8_t *values = y->values + chunk * 64 + upper * 32;
      ivec products = splat_int(0);
      UNROLL for (int g = 0; g < 8; g++) products = add_products(products, w[g], values + 4 * g);
      part[r] = add_scaled(part[r], products, scale);
      ROW_IS_ADDED(part[r], rows);
    }
  }
}

INLINE void tile_matmul(const uint8_t *tiles, const struct quantized *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
#if defined(ROW_PAIRS)
  if (rows > 1) {
    tile_matmul_of_pairs(tiles, x, blocks, out, out_stride, rows);
    return;
  }
#endif
  const int64_t row_bytes = row_blocks(blocks) * (int64_t)sizeof *x;
  vec sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = splat(0);
  for (int64_t b = 0; b < blocks; b++) {
    const struct tile *t = (const struct tile *)tiles + b;
    struct block_scales u;
    unpack_scales(t->scales, &u);
    scaled part[ROWS_AT_ONCE], first[ROWS_AT_ONCE];
    UNROLL for (int r = 0; r < rows; r++) part[r] = (scaled){0};
#define ADD_CHUNK(chunk) add_chunk(t, &u, chunk, x + b, row_bytes, part, rows)
    if (rows == 1) { /* Memory limits a single row: without a loop, loads begin earlier. */
      ADD_CHUNK(0);
      ADD_CHUNK(1);
      first[0] = part[0], part[0] = (scaled){0};
      ADD_CHUNK(2);
      ADD_CHUNK(3);
    } else {
      for (int chunk = 0; chunk < 4; chunk++) {
        if (chunk == 2) {
          UNROLL for (int r = 0; r < rows; r++) first[r] = part[r], part[r] = (scaled){0};
        }
        ADD_CHUNK(chunk);
      }
    }
#undef ADD_CHUNK
    const struct factors f = factors_of(t, &u);
    const struct quantized *y = x + b;
    UNROLL for (int r = 0; r < rows; r++) {
      if (r > 0) y = next_row(y, row_bytes, rows);
      sum[r] = add_block(&f, y, floats_of(first[r], part[r]), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) store(out + r * out_stride, sum[r]);
}

#if defined(AMX)
/* 15 times a scale of 63 is more than a byte: 8 * (nibble * (scale / 8)) + nibble * (scale % 8). */
#define AMX_UPPER 8
#define amx_scales factors

INLINE void amx_expand_weights(const uint8_t *tile, int64_t blocks, int64_t b, int k, ivec upper[16], ivec lower[16]) {
  (void)blocks;
  const struct tile *t = (const struct tile *)tile + b;
  struct block_scales u;
  unpack_scales(t->scales, &u);
  UNROLL for (int half = 0; half < 2; half++) {
    const ivec scale = widen_signed(u.of[2 * k + half]), both = scale | scale << 16;
    const shorts eighths = (shorts)(both >> 3 & splat_int(0x00070007)), rest = (shorts)(both & splat_int(0x00070007));
    UNROLL for (int g = 0; g < 8; g++) {
      const shorts nibbles = (shorts)(load_ints(t->nibbles[k][g]) >> 4 * half & splat_byte(15));
      upper[8 * half + g] = (ivec)(nibbles * eighths);
      lower[8 * half + g] = (ivec)(nibbles * rest);
    }
  }
}

INLINE void amx_expand_scales(const uint8_t *tile, int64_t blocks, int64_t b, struct amx_scales *to) {
  (void)blocks;
  const struct tile *t = (const struct tile *)tile + b;
  struct block_scales u;
  unpack_scales(t->scales, &u);
  *to = factors_of(t, &u);
}

INLINE vec amx_add(const struct amx_scales *scales, const struct quantized *y, ivec products, vec sum) {
  return add_block(scales, y, floats(products), sum);
}
#endif
#include "amx-by-256.h"

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tiles) {
  const int64_t row_bytes = blocks * (int64_t)sizeof *rows;
  for (int64_t b = 0; b < blocks; b++, rows++) {
    struct tile *t = (struct tile *)tiles + b;
    EACH_OUTPUT t->d[output] = rows[output * blocks].d;
    EACH_OUTPUT t->dmin[output] = rows[output * blocks].dmin;
    lay_out_bytes(rows->scales, row_bytes, 12, t->scales);
    lay_out_words(rows->nibbles, row_bytes, 32, t->nibbles);
  }
}

INLINE void read_block(const uint8_t *tiles, int64_t blocks, int64_t b, int row, float *out) {
  (void)blocks;
  const struct tile *t = (const struct tile *)tiles + b;
  struct block_scales u;
  unpack_scales(t->scales, &u);
  const float d = float_of(t->d[row]), dmin = float_of(t->dmin[row]);
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t two = t->nibbles[i / 64][i % 32 / 4][row][i % 4];
    const float scale = d * u.of[i / 32][row], minimum = dmin * u.minima[i / 32][row];
    out[i] = scale * (float)(i / 32 % 2 ? two >> 4 : two & 15) - minimum;
  }
}

#include "tile-operations.h"
