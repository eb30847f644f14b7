/*
 * Tiles in which a block has one scale for each output. The scales of as many blocks as fill a cache line come before the
 * weights of these blocks. So a tile is read from its first byte to its last, which is fastest:
 *
 *   [blocks / TOGETHER]
 *     scales  [TOGETHER][TILE_OUTPUTS]   scale_bits
 *     weights [TOGETHER][WEIGHT_BYTES]   in the kernel's layout
 *
 * The last group may have fewer blocks. Before the include, a kernel defines scale_bits, a stored scale, and
 * WEIGHT_BYTES, of a block. WITH_MINIMA, a stored scale is a scale and a minimum, and the scales of all outputs come before
 * their minima.
 */
#if defined(WITH_MINIMA)
typedef struct {
  f16 scale, minimum;
} scale_bits;
INLINE void store_scale(uint8_t *scales, int row, scale_bits scale) {
  ((f16 *)scales)[row] = scale.scale;
  ((f16 *)scales)[TILE_OUTPUTS + row] = scale.minimum;
}
INLINE scale_bits stored_scale(const uint8_t *scales, int row) {
  return (scale_bits){((const f16 *)scales)[row], ((const f16 *)scales)[TILE_OUTPUTS + row]};
}
INLINE vec load_scales(const uint8_t *scales) { return load_f16((const f16 *)scales); }
INLINE vec load_minima(const uint8_t *scales) { return load_f16((const f16 *)scales + TILE_OUTPUTS); }
#else
INLINE void store_scale(uint8_t *scales, int row, scale_bits scale) { ((scale_bits *)scales)[row] = scale; }
INLINE scale_bits stored_scale(const uint8_t *scales, int row) { return ((const scale_bits *)scales)[row]; }
#endif
#define SCALE_BYTES (TILE_OUTPUTS * (int)sizeof(scale_bits))
#define TOGETHER (SCALE_BYTES < 64 ? 64 / SCALE_BYTES : 1)

/* Blocks of the group that begins with block `first`. */
INLINE int blocks_of_group(int64_t blocks, int64_t first) {
  return blocks - first < TOGETHER ? (int)(blocks - first) : TOGETHER;
}
INLINE int64_t group_at(int64_t first) { return first * (SCALE_BYTES + WEIGHT_BYTES); }

/* Offsets in a tile. */
INLINE int64_t scales_at(int64_t b) { return group_at(b / TOGETHER * TOGETHER) + b % TOGETHER * SCALE_BYTES; }
INLINE int64_t weights_at(int64_t blocks, int64_t b) {
  const int64_t first = b / TOGETHER * TOGETHER;
  return group_at(first) + blocks_of_group(blocks, first) * SCALE_BYTES + (b - first) * WEIGHT_BYTES;
}
