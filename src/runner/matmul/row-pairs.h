/*
 * Two rows at a time, for ARM CPUs with i8mm. `smmla` multiplies eight bytes of each of two rows by eight weights of each
 * of two outputs: 32 products, where `sdot` has 16. Tiles have the layout of `sdot`: a vector has four weights of each of
 * four outputs. Two vectors are interleaved once for all rows. Sums are the same integers, so rows have the same bits.
 */
#if LANES == 4 && defined(__ARM_FEATURE_MATMUL_INT8)
#define ROW_PAIRS
#undef FORM
#define FORM "NEON i8mm"

/* Of outputs 0 and 1, and of outputs 2 and 3: eight weights of each, or sums of the first row and of the second row. */
struct pair {
  ivec lower, upper;
};

INLINE struct pair interleave(ivec a, ivec b) {
  return (struct pair){(ivec)vzip1q_s32((int32x4_t)a, (int32x4_t)b), (ivec)vzip2q_s32((int32x4_t)a, (int32x4_t)b)};
}

/* The sums of one row, an output in each lane. */
INLINE ivec first_row(struct pair sums) {
  return (ivec)vzip1q_s64((int64x2_t)sums.lower, (int64x2_t)sums.upper);
}
INLINE ivec second_row(struct pair sums) {
  return (ivec)vzip2q_s64((int64x2_t)sums.lower, (int64x2_t)sums.upper);
}

INLINE void pair_weights(const ivec *w, int groups, struct pair *to) {
  UNROLL for (int g = 0; g < groups / 2; g++) to[g] = interleave(w[2 * g], w[2 * g + 1]);
}

/* The dot products of `groups` times four inputs of two rows. */
INLINE struct pair pair_products(const struct pair *w, int groups, const int8_t *first, const int8_t *second) {
  int32x4_t lower = vdupq_n_s32(0), upper = lower;
  UNROLL for (int g = 0; g < groups / 2; g++) {
    const int8x16_t rows = vcombine_s8(vld1_s8(first + 8 * g), vld1_s8(second + 8 * g));
    lower = vmmlaq_s32(lower, rows, (int8x16_t)w[g].lower);
    upper = vmmlaq_s32(upper, rows, (int8x16_t)w[g].upper);
  }
  return (struct pair){(ivec)lower, (ivec)upper};
}

/* Adds products times the outputs' integer scales. */
INLINE struct pair add_scaled_pair(struct pair sums, struct pair products, ivec scale) {
  const struct pair of_both = {(ivec)vzip1q_s64((int64x2_t)scale, (int64x2_t)scale),
                               (ivec)vzip2q_s64((int64x2_t)scale, (int64x2_t)scale)};
  return (struct pair){sums.lower + products.lower * of_both.lower, sums.upper + products.upper * of_both.upper};
}

#endif
