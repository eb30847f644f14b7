/*
 * What 256 inputs of a tile have beside their weights: a factor d of each output, and an integer scale for SCALE_INPUTS
 * inputs. WITH_MINIMA, they also have a factor dmin, and SCALE_INPUTS inputs a minimum, which is subtracted from each weight: minima
 * are multiplied by sums of inputs as integers.
 */
#define SCALES (BLOCK / SCALE_INPUTS)

struct block_scales {
  int8_t of[SCALES][TILE_OUTPUTS];
#if defined(WITH_MINIMA)
  uint8_t minima[SCALES][TILE_OUTPUTS];
#endif
};

struct factors {
  vec d;
#if defined(WITH_MINIMA)
  vec dmin;
  ivec minima[SCALES / 2]; /* two in the lower and the upper 16 bits of a lane */
#endif
};

#if defined(WITH_MINIMA)
#if SCALE_INPUTS == 32
#define SUMS(y) (y)->sums
#else
#define SUMS(y) (y)->sixteen_sums
#endif
INLINE struct factors factors_with_minima(vec d, vec dmin, const struct block_scales *s) {
  struct factors f = {.d = d, .dmin = dmin};
  UNROLL for (int k = 0; k < SCALES / 2; k++) {
    f.minima[k] = widen_unsigned(s->minima[2 * k]) | widen_unsigned(s->minima[2 * k + 1]) << 16;
  }
  return f;
}
#endif

/* Adds the products of 256 inputs, which are integers rounded to floats. */
INLINE vec add_block(const struct factors *f, const struct quantized *y, vec products, vec sum) {
  const vec scale = splat(y->scale);
  sum = fma_(products, f->d * scale, sum);
#if defined(WITH_MINIMA)
  ivec minimum = splat_int(0);
  UNROLL for (int k = 0; k < SCALES / 2; k++) minimum = add_pairs(minimum, f->minima[k], splat_four(SUMS(y) + 2 * k));
  sum = fma_(floats(minimum), -(f->dmin * scale), sum);
#endif
  return sum;
}
