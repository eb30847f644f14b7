/* Rows as products with Q4_K and Q6_K want them: rounded to 8 bits, 256 inputs with one scale. */

#define BLOCK 256

struct rounded {
  float scale;
  int32_t corrections[16]; /* of 16 values: Q6_K's weights are stored with 32 added */
  int16_t sums[8];         /* of 32 values: what Q4_K's minima are multiplied by */
  int8_t values[BLOCK];
};

/* As ggml rounds for repacked matrices: the largest value becomes -127, or 127 where only its negative is as large. */
INLINE void round_block(const float *x, struct rounded *y) {
  vec largest_of = splat(0), most_of = splat(0), spoilt = splat(0);
  for (int i = 0; i < BLOCK; i += LANES) {
    const vec v = load(x + i);
    largest_of = max_(largest_of, magnitude(v));
    most_of = max_(most_of, v);
    spoilt = fma_(v, splat(0), spoilt);
  }
  const float largest = max_lanes(largest_of), most = max_lanes(most_of);
  const float factor = largest == 0 ? 0 : most == largest ? -127.0f / largest : 127.0f / largest;
  for (int i = 0; i < BLOCK; i += LANES) store_bytes(y->values + i, nearest(load(x + i) * splat(factor)));
  for (int s = 0; s < 8; s++) {
    const int8_t *values = y->values + s * 32;
    const byte_sums first = add_bytes((byte_sums){0}, values), second = add_bytes((byte_sums){0}, values + 16);
    y->corrections[2 * s] = correction(first, 32);
    y->corrections[2 * s + 1] = correction(second, 32);
    y->sums[s] = total(add_bytes(first, values + 16));
  }
  /* `spoilt` is zero for numbers: a row that has overflowed stays no number, whatever the comparisons made of it. */
  y->scale = (largest == 0 ? 0 : 1 / factor) + sum_lanes(spoilt);
}
