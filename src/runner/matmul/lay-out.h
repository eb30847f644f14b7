/*
 * Rows in ggml's layout become parts of a tile, in which equal places of all outputs are neighbours. A tile of a mapped file is laid out
 * each time it is multiplied, so this is written for vectors: a word is four bytes of each output, and bytes stay in their places in it.
 */
typedef uint32_t quad __attribute__((vector_size(16)));
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE_QUADS(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define SHUFFLE_BYTES(a, ...) __builtin_shufflevector(a, a, __VA_ARGS__)
#else
#define SHUFFLE_QUADS(a, b, ...) __builtin_shuffle(a, b, (quad){__VA_ARGS__})
#define SHUFFLE_BYTES(a, ...) __builtin_shuffle(a, (quad_bytes){__VA_ARGS__})
#endif

/* A word of each output. */
typedef uint32_t words __attribute__((vector_size(4 * TILE_OUTPUTS)));
typedef uint8_t quad_bytes __attribute__((vector_size(16)));

#define EACH_OUTPUT for (int output = 0; output < TILE_OUTPUTS; output++)

/* Stores quads as one vector, so that it can be loaded as one without waiting. */
INLINE void store_quads(void *to, const quad q[LANES / 4]) {
#if LANES == 16
  const __m256i low = _mm256_set_m128i((__m128i)q[1], (__m128i)q[0]), high = _mm256_set_m128i((__m128i)q[3], (__m128i)q[2]);
  _mm512_storeu_si512(to, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
#elif LANES == 8
  _mm256_storeu_si256((__m256i *)to, _mm256_set_m128i((__m128i)q[1], (__m128i)q[0]));
#else
  memcpy(to, q, sizeof *q);
#endif
}

/* Words of each output, which are `row_bytes` apart: word w of output o becomes `to[w][o]`. */
INLINE void lay_out_words(const void *first, int64_t row_bytes, int count, void *to) {
  const int word_bytes = 4 * TILE_OUTPUTS, fours = count / 4 * 4;
  for (int w = 0; w < fours; w += 4) {
    for (int output = 0; output < TILE_OUTPUTS; output += LANES) {
      quad square[4][LANES / 4];
      UNROLL for (int q = 0; q < LANES / 4; q++) {
        const char *from = (const char *)first + (output + 4 * q) * row_bytes + 4 * w;
        quad a, b, c, d;
        memcpy(&a, from, sizeof a);
        memcpy(&b, from + row_bytes, sizeof b);
        memcpy(&c, from + 2 * row_bytes, sizeof c);
        memcpy(&d, from + 3 * row_bytes, sizeof d);
        const quad ab = SHUFFLE_QUADS(a, b, 0, 4, 1, 5), cd = SHUFFLE_QUADS(c, d, 0, 4, 1, 5);
        const quad upper_ab = SHUFFLE_QUADS(a, b, 2, 6, 3, 7), upper_cd = SHUFFLE_QUADS(c, d, 2, 6, 3, 7);
        square[0][q] = SHUFFLE_QUADS(ab, cd, 0, 1, 4, 5);
        square[1][q] = SHUFFLE_QUADS(ab, cd, 2, 3, 6, 7);
        square[2][q] = SHUFFLE_QUADS(upper_ab, upper_cd, 0, 1, 4, 5);
        square[3][q] = SHUFFLE_QUADS(upper_ab, upper_cd, 2, 3, 6, 7);
      }
      UNROLL for (int i = 0; i < 4; i++) store_quads((char *)to + (w + i) * word_bytes + 4 * output, square[i]);
    }
  }
  for (int w = fours; w < count; w++) {
    EACH_OUTPUT memcpy((char *)to + w * word_bytes + 4 * output, (const char *)first + output * row_bytes + 4 * w, 4);
  }
}

/* A multiple of four bytes of each output: byte i of output o becomes `to[i][o]`. */
INLINE void lay_out_bytes(const void *first, int64_t row_bytes, int count, uint8_t to[][TILE_OUTPUTS]) {
  uint32_t of_outputs[4][TILE_OUTPUTS]; /* no type has more */
  lay_out_words(first, row_bytes, count / 4, of_outputs);
  for (int w = 0; w < count / 4; w++) {
    for (int output = 0; output < TILE_OUTPUTS; output += 4) {
      quad_bytes four;
      memcpy(&four, of_outputs[w] + output, sizeof four);
      const quad bytes = (quad)SHUFFLE_BYTES(four, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
      for (int i = 0; i < 4; i++) memcpy(to[4 * w + i] + output, (const uint32_t *)&bytes + i, 4);
    }
  }
}
