/* Twelve bytes of each output have eight scales and eight minima of six bits. */
INLINE void unpack_scales(const uint8_t packed[12][TILE_OUTPUTS], struct block_scales *into) {
  const ivec a = load_ints(packed), b = load_ints(packed + 4), c = load_ints(packed + 8);
  const ivec six = splat_byte(63), four = splat_byte(15), upper = splat_byte(48);
  store_ints(into->of, a & six);
  store_ints(into->of + 4, (c & four) | (a >> 2 & upper));
  store_ints(into->minima, b & six);
  store_ints(into->minima + 4, (c >> 4 & four) | (b >> 2 & upper));
}
