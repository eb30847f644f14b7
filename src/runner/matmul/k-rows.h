/* Activations for matmuls with Q4_K, Q6_K and others: quantized to 8 bits, 256 inputs with one scale. */

#define BLOCK 256

struct quantized {
  int8_t values[BLOCK];
  float scale;
  int16_t corrections[16][2]; /* of 16 values: Q6_K's weights are stored with 32 added */
  int16_t sums[8];            /* of 32 values: minima are multiplied by them, Q4_K's and others */
  int16_t sixteen_sums[16];   /* of 16 values: Q2_K's minima */
} __attribute__((aligned(64))); /* AMX loads 64 values at once */

/* As ggml quantizes for repacked matrices: the value of the largest magnitude becomes -127, the positive one if two
 * have it. */
INLINE void quantize_block(const float *x, struct quantized *y) {
  vec largest_of = splat(0), most_of = splat(0), not_a_number = splat(0);
  for (int i = 0; i < BLOCK; i += LANES) {
    const vec v = load(x + i);
    largest_of = max_(largest_of, magnitude(v));
    most_of = max_(most_of, v);
    not_a_number = fma_(v, splat(0), not_a_number);
  }
  const float largest = max_lanes(largest_of), most = max_lanes(most_of);
  const float factor = largest == 0 ? 0 : most == largest ? -127.0f / largest : 127.0f / largest;
  for (int i = 0; i < BLOCK; i += LANES) store_bytes(y->values + i, nearest(load(x + i) * splat(factor)));
  for (int s = 0; s < 8; s++) {
    const int8_t *values = y->values + s * 32;
    const byte_sums first = add_bytes((byte_sums){0}, values), second = add_bytes((byte_sums){0}, values + 16);
    sixteen_corrections(first, y->corrections[2 * s]);
    sixteen_corrections(second, y->corrections[2 * s + 1]);
    y->sixteen_sums[2 * s] = total(first);
    y->sixteen_sums[2 * s + 1] = total(second);
    y->sums[s] = (int16_t)(y->sixteen_sums[2 * s] + y->sixteen_sums[2 * s + 1]);
  }
  /* `not_a_number` is 0 if all values are finite, else NaN: the comparisons above may drop a NaN, and the scale keeps
   * it. */
  y->scale = (largest == 0 ? 0 : 1 / factor) + sum_lanes(not_a_number);
}
