/*
 * Two bits of each of 256 inputs, as Q2_K and Q3_K have them: byte l of 32 has those of inputs l, l + 32, l + 64 and l + 96 of
 * 128 inputs. In a tile, a byte has those of four inputs that are 16 apart, the first of which are the lower bits:
 *
 *   [4][4][TILE_OUTPUTS][4]   of 64 inputs, four groups of four bytes
 */
typedef uint8_t two_bits[4][4][TILE_OUTPUTS][4];

INLINE void lay_out_two_bits(const uint8_t from[64], two_bits to, int row) {
  for (int byte = 0; byte < 64; byte++) {
    uint8_t four = 0;
    for (int s = 0; s < 4; s++) {
      const int input = byte / 16 * 64 + s * 16 + byte % 16;
      four |= (uint8_t)((from[input / 128 * 32 + input % 32] >> input % 128 / 32 * 2 & 3) << 2 * s);
    }
    to[byte / 16][byte % 16 / 4][row][byte % 4] = four;
  }
}
