/*
 * Matmuls with Q6_K matrices. A weight is d * scale * (q - 32). q has six bits; 16 inputs share a scale of eight bits.
 *
 * Three bytes have the weights of four inputs: three in the lower six bits, and the fourth in the upper two bits of all
 * three. These inputs are 16 apart. A tile:
 *
 *   weights [inputs / 256][4][3][4][TILE_OUTPUTS][4]  bytes: of 64 inputs, three sixteens, four groups of four
 *   scales  [inputs / 256][16][TILE_OUTPUTS]          signed bytes
 *   d       [inputs / 256][TILE_OUTPUTS]              f16
 */
#include "tiles.h"
#include "k-rows.h"

struct packed {
  uint8_t lower[128], upper[64];
  int8_t scales[16];
  f16 d;
};

#define WEIGHT_BYTES (192 * TILE_OUTPUTS) /* of 256 inputs */
struct tile {
  uint8_t (*weights)[4][3][4][TILE_OUTPUTS][4];
  int8_t (*scales)[16][TILE_OUTPUTS];
  f16 (*d)[TILE_OUTPUTS];
};

INLINE struct tile parts_of(const uint8_t *tile, int64_t blocks) {
  const uint8_t *scales = tile + blocks * WEIGHT_BYTES, *d = scales + blocks * 16 * TILE_OUTPUTS;
  return (struct tile){(void *)tile, (void *)scales, (void *)d};
}

/* Four weights of each output, group g of the s-th sixteen inputs. */
INLINE ivec six_bits(const uint8_t bytes[3][4][TILE_OUTPUTS][4], int s, int g) {
  const ivec six = splat_byte(63);
  if (s < 3) return load_ints(bytes[s][g]) & six;
  const ivec a = load_ints(bytes[0][g]) >> 6, b = load_ints(bytes[1][g]) >> 4, c = load_ints(bytes[2][g]) >> 2;
  return select_bits(splat_byte(15), select_bits(splat_byte(3), a, b), c) & six;
}

INLINE void tile_matmul(const uint8_t *tile, const struct quantized *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  const struct tile t = parts_of(tile, blocks);
  vec sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = splat(0);
  for (int64_t b = 0; b < blocks; b++) {
    scaled part[ROWS_AT_ONCE];
    UNROLL for (int r = 0; r < rows; r++) part[r] = (scaled){0};
    for (int chunk = 0; chunk < 4; chunk++) {
      prefetch(t.weights[b][chunk], WEIGHT_BYTES / 4);
      UNROLL for (int s = 0; s < 4; s++) {
        ivec w[4];
        UNROLL for (int g = 0; g < 4; g++) w[g] = six_bits(t.weights[b][chunk], s, g);
        const scales scale = scales_of(widen_signed(t.scales[b][chunk * 4 + s]));
        UNROLL for (int r = 0; r < rows; r++) {
          const struct quantized *y = x + r * row_blocks(blocks) + b;
          const int8_t *values = y->values + chunk * 64 + s * 16;
          ivec products = splat_four(y->corrections + chunk * 4 + s);
          UNROLL for (int g = 0; g < 4; g++) products = add_products(products, w[g], splat_four(values + 4 * g));
          part[r] = add_scaled(part[r], products, scale);
        }
      }
    }
    const vec d = load_f16(t.d[b]);
    UNROLL for (int r = 0; r < rows; r++) {
      sum[r] = fma_(floats_of(part[r]), d * splat(x[r * row_blocks(blocks) + b].scale), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) store(out + r * out_stride, sum[r]);
}

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
  const struct tile t = parts_of(tile, blocks);
  for (int64_t b = 0; b < blocks; b++) {
    for (int row = 0; row < TILE_OUTPUTS; row++) {
      const struct packed *from = rows + row * blocks + b;
      t.d[b][row] = from->d;
      for (int s = 0; s < 16; s++) t.scales[b][s][row] = from->scales[s];
      uint8_t weights[BLOCK];
      unpack(from, weights);
      for (int chunk = 0; chunk < 4; chunk++) {
        for (int g = 0; g < 4; g++) {
          uint32_t own, last;
          memcpy(&last, weights + chunk * 64 + 48 + g * 4, 4);
          for (int s = 0; s < 3; s++) {
            memcpy(&own, weights + chunk * 64 + s * 16 + g * 4, 4);
            own |= (last >> (2 * s) & 0x03030303u) << 6;
            memcpy(t.weights[b][chunk][s][g][row], &own, 4);
          }
        }
      }
    }
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const struct tile t = parts_of(tile, blocks);
  const float d = float_of(t.d[b][row]);
  for (int i = 0; i < BLOCK; i++) {
    const int s = i % 64 / 16, g = i % 16 / 4;
    int weight = -32;
    for (int k = 0; k < 3; k++) {
      const uint8_t byte = t.weights[b][i / 64][k][g][row][i % 4];
      weight += s == 3 ? (byte >> 6) << (2 * k) : s == k ? byte & 63 : 0;
    }
    out[i] = d * (float)t.scales[b][i / 16][row] * (float)weight;
  }
}

#include "tile-operations.h"
