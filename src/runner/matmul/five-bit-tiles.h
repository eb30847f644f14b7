/*
 * Matrices of which 32 inputs share a scale and each weight has five bits (bits-of-32.h). Before the include, a kernel
 * defines scale_bits, unless it is WITH_MINIMA; ADDED, which the five bits have more than the weight; FLIPPED, whether
 * fifth bits are stored inverted. Weights of a block in a tile:
 *
 *   [5][TILE_OUTPUTS][4]   bytes: four times nibbles, of which the lower ones have the first 16 inputs; then fifth bits
 */
#include "bits-of-32.h"

#define GROUPS 4 /* of four inputs, in half a block */
#define WEIGHT_BYTES (BLOCK / 8 * 5 * TILE_OUTPUTS)

#include "scale-groups.h"

struct packed {
  scale_bits scale;
  uint8_t fifth_bits[4];
  uint8_t nibbles[BLOCK / 2];
};

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tile) {
  const int64_t row_bytes = blocks * (int64_t)sizeof *rows;
  for (int64_t b = 0; b < blocks; b++, rows++) {
    uint8_t *weights = tile + weights_at(blocks, b);
    words bits;
    EACH_OUTPUT store_scale(tile + scales_at(b), output, rows[output * blocks].scale);
    lay_out_words(rows->nibbles, row_bytes, GROUPS, weights);
    lay_out_words(rows->fifth_bits, row_bytes, 1, &bits);
    if (FLIPPED) bits = ~bits;
    /* Bit 4 g + i becomes bit g of byte i: each step exchanges two bits of the places. */
    bits = exchange_bits(bits, 1, 0x22222222);
    bits = exchange_bits(bits, 3, 0x0a0a0a0a);
    bits = exchange_bits(bits, 6, 0x00cc00cc);
    bits = exchange_bits(bits, 12, 0x0000f0f0);
    memcpy(weights + GROUPS * TILE_OUTPUTS * 4, &bits, sizeof bits);
  }
}

INLINE void read_block(const uint8_t *tile, int64_t blocks, int64_t b, int row, float *out) {
  const uint8_t *weights = tile + weights_at(blocks, b) + row * 4;
  const scale_bits scale = stored_scale(tile + scales_at(b), row);
  const uint8_t *fifth = weights + GROUPS * TILE_OUTPUTS * 4;
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t two = weights[i % 16 / 4 * TILE_OUTPUTS * 4 + i % 4];
    const int bit = (fifth[i % 4] >> i / 4 & 1) ^ FLIPPED;
    const float value = (float)((i < 16 ? two & 15 : two >> 4) + 16 * bit - ADDED);
#if defined(WITH_MINIMA)
    out[i] = value * float_of(scale.scale) + float_of(scale.minimum);
#else
    out[i] = value * float_of(scale);
#endif
  }
}
