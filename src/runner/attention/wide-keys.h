/* K of a tile, unpacked for the scores of the wide form: `keys` is [element, in the order of chain()][COLUMNS tokens]. */

/*
 * Element e of a head is lane e % WIDTH of wide vector e / WIDTH. The wide form has tokens in its lanes, so it computes
 * the WIDTH partial sums one after another, each as a chain of CHAIN multiply-adds. It adds chains in the order in which
 * `add_parts` and `sums` add lanes: chains come in bit-reversed order and are added as in a binary counter.
 */
INLINE int chain(int index) {
  int lane = 0;
  for (int bit = 1; bit < WIDTH; bit *= 2) lane = lane * 2 + ((index & bit) != 0);
  return lane;
}

/* Element `e` of the wide vector `at`. `chain` is its own inverse. */
INLINE float *key_at(float *keys, int at, int e) { return keys + (chain(e) * CHAIN + at) * COLUMNS; }

/* K of LANES tokens. */
#if LANES == 16 && HEAD_DIM % 32 == 0 && !KV_Q8_0
/* A cache line of 32 elements of each token at a time: K is read once, and shuffles move halves of floats. */
INLINE void unpack_keys(float *keys, const bytes *rows) {
  for (int at = 0; at < HEAD_DIM; at += 32) {
    __m512i x[16], y[16];
    UNROLL for (int t = 0; t < 16; t++) x[t] = _mm512_loadu_si512(rows[t] + 2 * at);
    /* Squares of 8 in each 16 bytes, of the first and of the last 8 tokens: pairs of tokens, then fours, then all 8. */
    UNROLL for (int i = 0; i < 16; i += 2) {
      y[i] = _mm512_unpacklo_epi16(x[i], x[i + 1]);
      y[i + 1] = _mm512_unpackhi_epi16(x[i], x[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) {
      UNROLL for (int j = 0; j < 2; j++) {
        x[i + 2 * j] = _mm512_unpacklo_epi32(y[i + j], y[i + j + 2]);
        x[i + 2 * j + 1] = _mm512_unpackhi_epi32(y[i + j], y[i + j + 2]);
      }
    }
    UNROLL for (int i = 0; i < 16; i += 8) {
      UNROLL for (int j = 0; j < 4; j++) {
        y[i + 2 * j] = _mm512_unpacklo_epi64(x[i + j], x[i + j + 4]);
        y[i + 2 * j + 1] = _mm512_unpackhi_epi64(x[i + j], x[i + j + 4]);
      }
    }
    /* 16 bytes number l of y[e] and y[e + 8] are element 8 l + e of the first and of the last 8 tokens. */
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    UNROLL for (int e = 0; e < 8; e++) {
      UNROLL for (int half = 0; half < 2; half++) {
        const __m512i pair = _mm512_permutex2var_epi64(y[e], half ? second : first, y[e + 8]);
        store(key_at(keys, at / WIDTH + half, e), (vec)_mm512_cvtph_ps(_mm512_castsi512_si256(pair)));
        store(key_at(keys, at / WIDTH + half, 8 + e), (vec)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(pair, 1)));
      }
    }
  }
}
#elif LANES >= 8 && !KV_Q8_0
INLINE void unpack_keys(float *keys, const bytes *rows) {
  for (int at = 0; at < HEAD_DIM; at += 16) {
    const f16 *part[LANES];
    UNROLL for (int t = 0; t < LANES; t++) part[t] = (const f16 *)rows[t] + at;
    f16 columns[16 * LANES] __attribute__((aligned(64)));
    transpose_halves(part, columns);
    UNROLL for (int e = 0; e < 16; e++) store(key_at(keys, at / WIDTH, e), load_f16(columns + e * LANES));
  }
}
#else
INLINE void unpack_keys(float *keys, const bytes *rows) {
  for (int i = 0; i < VECTORS; i++) {
    vec x[LANES];
    UNROLL for (int t = 0; t < LANES; t++) x[t] = load_kv(rows[t], i);
    transpose(x);
    UNROLL for (int e = 0; e < LANES; e++) store(key_at(keys, i / PARTS, i % PARTS * LANES + e), x[e]);
  }
}
#endif
