/*
 * One bit of each of 32 inputs, which in a tile are stored apart from the other bits of weights, in four bytes of each output:
 * bit g of byte i belongs to input 4 g + i.
 */

/* Exchanges the bits of `lower` with those that are `apart` places above. */
INLINE words exchange_bits(words bits, int apart, uint32_t lower) {
  const words differ = (bits >> apart ^ bits) & lower;
  return bits ^ differ ^ differ << apart;
}

/* Bit b of byte 4 g + i, which is byte i of word g, becomes bit g of byte i of `to[b]`. */
INLINE void lay_out_bits(const words packed[8], words to[8]) {
  UNROLL for (int b = 0; b < 8; b++) {
    words bits = packed[0] >> b & 0x01010101;
    UNROLL for (int g = 1; g < 8; g++) bits |= (packed[g] >> b & 0x01010101) << g;
    to[b] = bits;
  }
}

/* Weights of group g of four inputs, from their nibbles, whose upper bits do not matter, and the fifth bits of all inputs. */
INLINE ivec five_bits(ivec nibbles, ivec fifth, int g) {
  return select_bits(splat_byte(15), nibbles, g < 4 ? fifth << (4 - g) : fifth >> (g - 4)) & splat_byte(31);
}
