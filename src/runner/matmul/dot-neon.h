/* The form for NEON of what dot.h describes. All weights are signed, and no number is added to them. */

INLINE ivec nearest(vec x) { return (ivec)vcvtnq_s32_f32((float32x4_t)x); }
INLINE vec floats(ivec x) { return (vec)vcvtq_f32_s32((int32x4_t)x); }
INLINE ivec widen_unsigned(const uint8_t *p) { return (ivec){p[0], p[1], p[2], p[3]}; }
INLINE ivec widen_signed(const int8_t *p) { return (ivec){p[0], p[1], p[2], p[3]}; }
INLINE void store_bytes(int8_t *p, ivec x) {
  const int16x4_t int16s = vqmovn_s32((int32x4_t)x);
  const int8x8_t bytes = vqmovn_s16(vcombine_s16(int16s, int16s));
  memcpy(p, &bytes, 4);
}
INLINE ivec select_bits(ivec mask, ivec yes, ivec no) { return (yes & mask) | (no & ~mask); }
INLINE ivec look_up(const int8_t *table, ivec indices) {
  return (ivec)vqtbl1q_s8(vld1q_s8(table), (uint8x16_t)indices);
}
INLINE ivec add_pairs(ivec sum, ivec a, ivec b) {
  const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
  return sum + (ivec)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}
INLINE float rounded_to_f16(float x) { return vgetq_lane_f32(vcvt_f32_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0); }

INLINE ivec add_products(ivec sum, ivec w, const void *x) {
  return (ivec)vdotq_s32((int32x4_t)sum, (int8x16_t)w, (int8x16_t)splat_four(x));
}
INLINE ivec integers(ivec sum) { return sum; }

typedef int32x4_t byte_sums;
INLINE byte_sums add_bytes(byte_sums sum, const int8_t *p) { return vdotq_s32(sum, vdupq_n_s8(1), vld1q_s8(p)); }
INLINE int32_t correction(byte_sums x, int added) { return -added * vaddvq_s32(x); }
INLINE int16_t total(byte_sums x) { return (int16_t)vaddvq_s32(x); }

#define SIGN_BITS 0u
INLINE ivec add_signed_products(ivec sum, ivec w, const void *x) { return add_products(sum, w, x); }
INLINE ivec signed_start(int32_t correction) {
  (void)correction;
  return splat_int(0);
}

#define SMALL_ADDED 0
INLINE ivec small_start(int32_t correction) { return signed_start(correction); }

#define NIBBLE 1
INLINE ivec lower_nibbles(ivec two) { return two & splat_byte(15); }
INLINE ivec upper_nibbles(ivec two) { return two >> 4 & splat_byte(15); }

/* As integers: the sum of 256 inputs is below 2^31. */
typedef ivec scaled;
typedef ivec scales;
INLINE scales scales_of(ivec x) { return x; }
INLINE scales scales_of_nibbles(ivec x) { return x; }
INLINE scaled add_scaled(scaled part, ivec sum, scales scale) { return part + sum * scale; }
INLINE vec floats_of(scaled first, scaled second) { return floats(first + second); }

INLINE void sixteen_corrections(byte_sums x, int16_t to[2]) {
  const int32_t all = correction(x, 32);
  memcpy(to, &all, sizeof all);
}
typedef ivec signed_scales;
INLINE signed_scales signed_scales_of(ivec x) { return x; }
INLINE ivec add_two_sixteens(ivec part, const ivec w[8], const int8_t *x, const int16_t (*corrections)[2],
                             const signed_scales scales[2]) {
  UNROLL for (int s = 0; s < 2; s++) {
    ivec products = splat_four(corrections[s]);
    UNROLL for (int g = 0; g < 4; g++) products = add_products(products, w[4 * s + g], x + 16 * s + 4 * g);
    part += products * scales[s];
  }
  return part;
}
