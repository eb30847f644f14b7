/*
 * Two bits of each of 256 inputs, as Q2_K and Q3_K have them: byte l of 32 has those of inputs l, l + 32, l + 64 and l + 96 of
 * 128 inputs. In a tile, a byte has those of four inputs that are 16 apart, the first of which are the lower bits:
 *
 *   [4][4][TILE_OUTPUTS][4]   of 64 inputs, four groups of four bytes
 */
typedef uint8_t two_bits[4][4][TILE_OUTPUTS][4];

INLINE void lay_out_two_bits(const uint8_t *from, int64_t row_bytes, two_bits to) {
  words packed[16], laid_out[16];
  lay_out_words(from, row_bytes, 16, packed);
  UNROLL for (int chunk = 0; chunk < 4; chunk++) {
    for (int g = 0; g < 4; g++) {
      words bytes = packed[0] & 0;
      UNROLL for (int s = 0; s < 4; s++) {
        const words of_inputs = packed[chunk / 2 * 8 + s % 2 * 4 + g];
        bytes |= (of_inputs >> (4 * (chunk % 2) + s / 2 * 2) & 0x03030303) << 2 * s;
      }
      laid_out[chunk * 4 + g] = bytes;
    }
  }
  memcpy(to, laid_out, sizeof laid_out);
}
