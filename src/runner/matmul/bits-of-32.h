/*
 * One bit of each of 32 inputs, which in a tile are stored apart from the other bits of weights, in four bytes of each output:
 * bit g of byte i belongs to input 4 g + i.
 */

/* `get` is the bit of `input`. */
#define LAY_OUT_BITS(to, get)                                                            \
  do {                                                                                   \
    memset(to, 0, 4);                                                                    \
    for (int input = 0; input < 32; input++) (to)[input % 4] |= (uint8_t)((get) << input / 4); \
  } while (0)

/* Weights of group g of four inputs, from their nibbles, whose upper bits do not matter, and the fifth bits of all inputs. */
INLINE ivec five_bits(ivec nibbles, ivec fifth, int g) {
  return select_bits(splat_byte(15), nibbles, g < 4 ? fifth << (4 - g) : fifth >> (g - 4)) & splat_byte(31);
}
