/*
 * Weights of five bits. The nibbles of 32 inputs are stored apart from their fifth bits, which are four bytes of each
 * output: bit g of byte i belongs to input 4 g + i.
 */

/* Group g of four inputs, from their nibbles; the upper bits of each byte of `nibbles` do not matter. */
INLINE ivec five_bits(ivec nibbles, ivec fifth, int g) {
  return select_bits(splat_byte(15), nibbles, g < 4 ? fifth << (4 - g) : fifth >> (g - 4)) & splat_byte(31);
}

/* `get(input)` is the fifth bit of an input. */
#define LAY_OUT_FIFTH_BITS(to, get) \
  for (int input = 0; input < 32; input++) (to)[input % 4] |= (uint8_t)((get) << input / 4)
