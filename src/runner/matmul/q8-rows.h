/* Activations for matmuls with Q8_0, Q4_0 and others: quantized to 8 bits, 32 inputs with one scale. */

#define BLOCK 32

struct quantized {
  float scale;
#if defined(WITH_MINIMA)
  float sum; /* of the values, times the scale: minima are multiplied by it */
#else
  int32_t correction; /* for weights with 8 * NIBBLE added */
#endif
  int8_t values[BLOCK];
};

INLINE void quantize_block(const float *x, struct quantized *y) {
  vec largest_of = splat(0), not_a_number = splat(0);
  UNROLL for (int i = 0; i < BLOCK; i += LANES) {
    largest_of = max_(largest_of, magnitude(load(x + i)));
    not_a_number = fma_(load(x + i), splat(0), not_a_number);
  }
  const float largest = max_lanes(largest_of);
  const vec factor = splat(largest == 0 ? 0 : 127.0f / largest);
  UNROLL for (int i = 0; i < BLOCK; i += LANES) store_bytes(y->values + i, nearest(load(x + i) * factor));
  /* `not_a_number` is 0 if all values are finite, else NaN: the comparisons above may drop a NaN, and the scale keeps
   * it. The scale is rounded to f16, as in ggml. */
  y->scale = rounded_to_f16(largest / 127.0f + sum_lanes(not_a_number));
  const byte_sums sum = add_bytes(add_bytes((byte_sums){0}, y->values), y->values + 16);
#if defined(WITH_MINIMA)
  y->sum = y->scale * (float)total(sum);
#else
  y->correction = correction(sum, 8 * NIBBLE);
#endif
}
