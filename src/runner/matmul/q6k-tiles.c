/*
 * Matmuls with Q6_K matrices. A weight is d * scale * (q - 32). q has six bits; 16 inputs share a scale of eight bits.
 *
 * Three bytes have the weights of four inputs: three in the lower six bits, and the fourth in the upper two bits of all
 * three. These inputs are 16 apart. The factors d of some blocks come before these blocks (scale-groups.h). A block in a
 * tile:
 *
 *   weights [4][3][4][TILE_OUTPUTS][4]  bytes: of 64 inputs, three sixteens, four groups of four
 *   scales  [16][TILE_OUTPUTS]          signed bytes
 */
#define PREFETCH_ROWS_MIN 1 /* more computing per byte than other types */
#define ROW_BY_ROW_MIN 2    /* also faster with GCC */
#include "tiles.h"
#include "k-rows.h"

struct packed {
  uint8_t lower[128], upper[64];
  int8_t scales[16];
  f16 d;
};

INLINE void set_test_scales(struct packed *p) { p->d = 0x2c7c ^ (p->d & 3); }

struct block {
  uint8_t weights[4][3][4][TILE_OUTPUTS][4];
  int8_t scales[16][TILE_OUTPUTS];
};
typedef f16 scale_bits;
#define WEIGHT_BYTES ((int)sizeof(struct block))
#include "scale-groups.h"

INLINE struct block *block_at(const uint8_t *tile, int64_t blocks, int64_t b) {
  return (struct block *)(tile + weights_at(blocks, b));
}
INLINE f16 *d_at(const uint8_t *tile, int64_t b) { return (f16 *)(tile + scales_at(b)); }
/* Prefetches the factors that follow, once for each cache line. */
INLINE void prefetch_d(const uint8_t *tile, int64_t b, int rows) {
  if (b % TOGETHER == 0) prefetch(d_at(tile, b), 64, rows);
}

/* Four weights of each output, group g of the s-th sixteen inputs. */
INLINE ivec six_bits(const uint8_t bytes[3][4][TILE_OUTPUTS][4], int s, int g) {
  const ivec six = splat_byte(63);
  if (s < 3) return load_ints(bytes[s][g]) & six;
  const ivec a = load_ints(bytes[0][g]) >> 6, b = load_ints(bytes[1][g]) >> 4, c = load_ints(bytes[2][g]) >> 2;
  return select_bits(splat_byte(15), select_bits(splat_byte(3), a, b), c) & six;
}

#if defined(ROW_PAIRS)
/* The bits of `tile_matmul`, for an even number of rows. Weights become signed here, so sums need no correction. */
INLINE void tile_matmul_of_pairs(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out,
                                 int64_t out_stride, int rows) {
  vec sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = splat(0);
  for (int64_t b = 0; b < blocks; b++) {
    const struct block *t = block_at(tile, blocks, b);
    prefetch_d(tile, b, rows);
    struct pair part[ROWS_AT_ONCE / 2];
    UNROLL for (int p = 0; p < rows / 2; p++) part[p] = (struct pair){{0}, {0}};
    for (int chunk = 0; chunk < 4; chunk++) {
      prefetch(t->weights[chunk], sizeof t->weights[chunk], rows);
      prefetch(t->scales[4 * chunk], sizeof *t->scales * 4, rows);
      UNROLL for (int s = 0; s < 4; s++) {
        ivec w[4];
        struct pair pairs[2];
        UNROLL for (int g = 0; g < 4; g++) {
          w[g] = (ivec)vsubq_s8((int8x16_t)six_bits(t->weights[chunk], s, g), vdupq_n_s8(32));
        }
        pair_weights(w, 4, pairs);
        const ivec scale = widen_signed(t->scales[chunk * 4 + s]);
        UNROLL for (int p = 0; p < rows / 2; p++) {
          const struct quantized *y = x + 2 * p * row_blocks(blocks) + b, *z = y + row_blocks(blocks);
          const int at = chunk * 64 + s * 16;
          part[p] = add_scaled_pair(part[p], pair_products(pairs, 4, y->values + at, z->values + at), scale);
        }
      }
    }
    const vec d = load_f16(d_at(tile, b));
    UNROLL for (int r = 0; r < rows; r++) {
      const ivec products = r % 2 == 0 ? first_row(part[r / 2]) : second_row(part[r / 2]);
      sum[r] = fma_(floats(products), d * splat(x[r * row_blocks(blocks) + b].scale), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) store(out + r * out_stride, sum[r]);
}
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
    prefetch_d(tile, b, rows);
    ivec part[ROWS_AT_ONCE];
    UNROLL for (int r = 0; r < rows; r++) part[r] = splat_int(0);
    for (int chunk = 0; chunk < 4; chunk++) {
      prefetch(t->weights[chunk], sizeof t->weights[chunk], rows);
      prefetch(t->scales[4 * chunk], sizeof *t->scales * 4, rows);
      UNROLL for (int s = 0; s < 4; s += 2) {
        ivec w[8];
        UNROLL for (int g = 0; g < 8; g++) w[g] = six_bits(t->weights[chunk], s + g / 4, g % 4);
        const int first = chunk * 4 + s;
        const int8_t(*of)[TILE_OUTPUTS] = t->scales + first;
        const signed_scales scales[2] = {signed_scales_of(widen_signed(of[0])), signed_scales_of(widen_signed(of[1]))};
        const struct quantized *y = x + b;
        UNROLL for (int r = 0; r < rows; r++) {
          if (r > 0) y = next_row(y, row_bytes, rows);
          part[r] = add_two_sixteens(part[r], w, y->values + first * 16, y->corrections + first, scales);
          ROW_IS_ADDED(part[r], rows);
        }
      }
    }
    const vec d = load_f16(d_at(tile, b));
    const struct quantized *y = x + b;
    UNROLL for (int r = 0; r < rows; r++) {
      if (r > 0) y = next_row(y, row_bytes, rows);
      sum[r] = fma_(floats(part[r]), d * splat(y->scale), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) store(out + r * out_stride, sum[r]);
}

#if defined(AMX)
/* A product of a weight and its scale has 13 bits and a sign: 128 times the upper byte, plus the lower seven bits. */
#define AMX_UPPER 128
struct amx_scales {
  vec d;
};

INLINE void amx_expand_weights(const uint8_t *tile, int64_t blocks, int64_t b, int k, ivec upper[16], ivec lower[16]) {
  const struct block *t = block_at(tile, blocks, b);
  const ivec bytes = splat_int(0x00ff00ff);
  const shorts added = (shorts)splat_int(0x00200020), seven_bits = (shorts)splat_int(0x007f007f);
  UNROLL for (int s = 0; s < 4; s++) {
    const ivec signed_scale = widen_signed(t->scales[4 * k + s]) & splat_int(0xffff);
    const shorts scale = (shorts)(signed_scale | signed_scale << 16);
    UNROLL for (int g = 0; g < 4; g++) {
      const ivec w = six_bits(t->weights[k], s, g);
      const shorts even = ((shorts)(w & bytes) - added) * scale, odd = ((shorts)(w >> 8 & bytes) - added) * scale;
      upper[4 * s + g] = ((ivec)(even >> 7) & bytes) | ((ivec)(odd >> 7) & bytes) << 8;
      lower[4 * s + g] = (ivec)((even & seven_bits) | (odd & seven_bits) << 8);
    }
  }
}

INLINE void amx_expand_scales(const uint8_t *tile, int64_t blocks, int64_t b, struct amx_scales *to) {
  (void)blocks;
  to->d = load_f16(d_at(tile, b));
}

INLINE vec amx_add(const struct amx_scales *scales, const struct quantized *y, ivec products, vec sum) {
  return fma_(floats(products), scales->d * splat(y->scale), sum);
}
#endif
#include "amx-by-256.h"

/* For 128 inputs, 64 bytes hold the lower four bits and 32 bytes the upper two. */
INLINE void unpack(const struct packed *p, uint8_t *weights) {
  for (int half_block = 0; half_block < 2; half_block++) {
    const uint8_t *lower = p->lower + half_block * 64, *upper = p->upper + half_block * 32;
    for (int quarter = 0; quarter < 4; quarter++) {
      for (int i = 0; i < 32; i++) {
        const int four = lower[quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
        *weights++ = (uint8_t)(four | (upper[i] >> (2 * quarter) & 3) << 4);
      }
    }
  }
}

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  for (int64_t b = 0; b < blocks; b++) {
    struct block *t = block_at(tile, blocks, b);
    f16 *d = d_at(tile, b);
    for (int row = 0; row < TILE_OUTPUTS; row++) {
      const struct packed *from = rows + row * blocks + b;
      d[row] = from->d;
      for (int s = 0; s < 16; s++) t->scales[s][row] = from->scales[s];
      uint8_t weights[BLOCK];
      unpack(from, weights);
      for (int chunk = 0; chunk < 4; chunk++) {
        for (int g = 0; g < 4; g++) {
          uint32_t own, last;
          memcpy(&last, weights + chunk * 64 + 48 + g * 4, 4);
          for (int s = 0; s < 3; s++) {
            memcpy(&own, weights + chunk * 64 + s * 16 + g * 4, 4);
            own |= (last >> (2 * s) & 0x03030303u) << 6;
            memcpy(t->weights[chunk][s][g][row], &own, 4);
          }
        }
      }
    }
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const struct block *t = block_at(tile, blocks, b);
  const float d = float_of(d_at(tile, b)[row]);
  for (int i = 0; i < BLOCK; i++) {
    const int s = i % 64 / 16, g = i % 16 / 4;
    int weight = -32;
    for (int k = 0; k < 3; k++) {
      const uint8_t byte = t->weights[i / 64][k][g][row][i % 4];
      weight += s == 3 ? (byte >> 6) << (2 * k) : s == k ? byte & 63 : 0;
    }
    out[i] = d * (float)t->scales[i / 16][row] * (float)weight;
  }
}

#include "tile-operations.h"
