/*
 * Products with Q4_K matrices. Of each 32 inputs a weight is d * scale * nibble - dmin * minimum, with scales and minima of
 * six bits.
 *
 * The nibbles of 32 inputs are multiplied as integers and scaled; the minima of 256 inputs are multiplied by sums of inputs
 * as integers. Upper nibbles stay where they are, which makes them sixteen times as large, and their scales are made
 * sixteen times as small: both exact.
 */
#include "tiles.h"
#include "k-rows.h"

struct packed {
  half d, dmin;
  uint8_t scales[12];
  uint8_t nibbles[128]; /* of each 64 inputs 32 bytes: the first 32 are the lower nibbles */
};
struct tile { /* 256 inputs of 16 outputs */
  half d[TILE_OUTPUTS], dmin[TILE_OUTPUTS];
  uint8_t scales[12][TILE_OUTPUTS];
  uint8_t nibbles[4][8][TILE_OUTPUTS][4];
};

struct unpacked {
  uint8_t scales[8][TILE_OUTPUTS], minima[8][TILE_OUTPUTS];
};

/* Twelve bytes to eight scales and eight minima, for 16 outputs. */
INLINE void unpack(const uint8_t packed[12][TILE_OUTPUTS], struct unpacked *into) {
  const __m512i a = _mm512_loadu_si512(packed), b = _mm512_loadu_si512(packed + 4), c = _mm512_loadu_si512(packed + 8);
  const __m512i six = _mm512_set1_epi8(63), four = _mm512_set1_epi8(15), upper = _mm512_set1_epi8(48);
  const __m512i a_upper = _mm512_and_si512(_mm512_srli_epi16(a, 2), upper);
  const __m512i b_upper = _mm512_and_si512(_mm512_srli_epi16(b, 2), upper);
  _mm512_storeu_si512(into->scales, _mm512_and_si512(a, six));
  _mm512_storeu_si512(into->scales + 4, _mm512_or_si512(_mm512_and_si512(c, four), a_upper));
  _mm512_storeu_si512(into->minima, _mm512_and_si512(b, six));
  _mm512_storeu_si512(into->minima + 4, _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(c, 4), four), b_upper));
}

INLINE __m512i widen(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }

INLINE void tile_product(const uint8_t *tiles, const struct rounded *x, int64_t blocks, float *out, int64_t out_stride,
                         int rows) {
  __m512 sum[ROWS_AT_ONCE];
  UNROLL for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    const struct tile *t = (const struct tile *)tiles + b;
    struct unpacked u;
    unpack(t->scales, &u);
    __m512 part[ROWS_AT_ONCE];
    UNROLL for (int r = 0; r < rows; r++) part[r] = _mm512_setzero_ps();
    for (int chunk = 0; chunk < 4; chunk++) {
      prefetch((const char *)t + chunk * sizeof *t / 4, sizeof *t / 4);
      UNROLL for (int upper = 0; upper < 2; upper++) {
        const __m512i mask = _mm512_set1_epi8(upper ? -16 : 15);
        __m512i w[8];
        UNROLL for (int g = 0; g < 8; g++) w[g] = _mm512_and_si512(_mm512_loadu_si512(t->nibbles[chunk][g]), mask);
        __m512 scale = _mm512_cvtepi32_ps(widen(u.scales[2 * chunk + upper]));
        if (upper) scale = _mm512_mul_ps(scale, _mm512_set1_ps(0x1p-4f));
        UNROLL for (int r = 0; r < rows; r++) {
          const int8_t *values = x[r * blocks + b].values + chunk * 64 + upper * 32;
          __m512i products = _mm512_setzero_si512();
          UNROLL for (int g = 0; g < 8; g++) products = _mm512_dpbusd_epi32(products, w[g], splat_bytes(values + 4 * g));
          part[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scale, part[r]);
        }
      }
    }
    __m512i minima[4]; /* of two times 32 inputs, as halves of a lane */
    UNROLL for (int k = 0; k < 4; k++) {
      minima[k] = _mm512_or_si512(widen(u.minima[2 * k]), _mm512_slli_epi32(widen(u.minima[2 * k + 1]), 16));
    }
    const __m512 d = load_halves(t->d), dmin = load_halves(t->dmin);
    UNROLL for (int r = 0; r < rows; r++) {
      const struct rounded *y = x + r * blocks + b;
      const __m512 scale = _mm512_set1_ps(y->scale);
      __m512i minimum = _mm512_setzero_si512();
      UNROLL for (int k = 0; k < 4; k++) minimum = _mm512_dpwssd_epi32(minimum, minima[k], splat_bytes(y->sums + 2 * k));
      sum[r] = _mm512_fmadd_ps(part[r], _mm512_mul_ps(d, scale), sum[r]);
      sum[r] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(minimum), _mm512_mul_ps(dmin, scale), sum[r]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(out + r * out_stride, sum[r]);
}

INLINE void lay_out_tile(const struct packed *rows, int64_t blocks, uint8_t *tiles) {
  for (int64_t b = 0; b < blocks; b++) {
    struct tile *t = (struct tile *)tiles + b;
    for (int row = 0; row < TILE_OUTPUTS; row++) {
      const struct packed *from = rows + row * blocks + b;
      t->d[row] = from->d;
      t->dmin[row] = from->dmin;
      for (int i = 0; i < 12; i++) t->scales[i][row] = from->scales[i];
      for (int g = 0; g < 32; g++) memcpy(t->nibbles[g / 8][g % 8][row], from->nibbles + 4 * g, 4);
    }
  }
}

INLINE void read_block(const uint8_t *tiles, int64_t blocks, int64_t b, int row, float *out) {
  (void)blocks;
  const struct tile *t = (const struct tile *)tiles + b;
  struct unpacked u;
  unpack(t->scales, &u);
  const float d = float_of(t->d[row]), dmin = float_of(t->dmin[row]);
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t two = t->nibbles[i / 64][i % 32 / 4][row][i % 4];
    const float scale = d * u.scales[i / 32][row], minimum = dmin * u.minima[i / 32][row];
    out[i] = scale * (float)(i / 32 % 2 ? two >> 4 : two & 15) - minimum;
  }
}

#include "tile-operations.h"
