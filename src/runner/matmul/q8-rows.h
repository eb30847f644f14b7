/* Rows as products with Q8_0 and Q4_0 want them: rounded to 8 bits, 32 inputs with one scale. */

#define BLOCK 32

struct rounded {
  float scale;
  int32_t correction; /* for weights with 8 * NIBBLE added */
  int8_t values[BLOCK];
};

INLINE void round_block(const float *x, struct rounded *y) {
  vec largest_of = splat(0), spoilt = splat(0);
  UNROLL for (int i = 0; i < BLOCK; i += LANES) {
    largest_of = max_(largest_of, magnitude(load(x + i)));
    spoilt = fma_(load(x + i), splat(0), spoilt);
  }
  const float largest = max_lanes(largest_of);
  const vec factor = splat(largest == 0 ? 0 : 127.0f / largest);
  UNROLL for (int i = 0; i < BLOCK; i += LANES) store_bytes(y->values + i, nearest(load(x + i) * factor));
  /* `spoilt` is zero for numbers: a row that has overflowed stays no number, whatever the comparisons made of it. ggml
   * keeps the scale as a half. */
  y->scale = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(largest / 127.0f + sum_lanes(spoilt)), 0)));
  y->correction = correction(add_bytes(add_bytes((byte_sums){0}, y->values), y->values + 16), 8 * NIBBLE);
}
