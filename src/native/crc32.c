/*
 * zlib's CRC32 by carry-less multiplication. The message is a polynomial with reflected bits, and its CRC is the
 * remainder modulo P. Multiplying the two halves of 16 bytes by x^(n + 32) and x^(n - 32) mod P moves them `n` bits
 * forward. The result has 16 bytes again, and the message's 16 bytes at the new place are added to it. Several pieces
 * of 16 bytes are moved side by side, because a multiplication has a long latency.
 */
#include <stdint.h>
#include <string.h>

#if !defined(__PCLMUL__) || !defined(__SSE4_1__)
#error "this CPU lacks carry-less multiplication"
#endif
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define POLYNOMIAL 0xEDB88320u

typedef __m128i piece;

#if defined(__VPCLMULQDQ__) && defined(__AVX512F__) && defined(__AVX512DQ__)
/* Four pieces of 16 bytes. */
typedef __m512i row;
INLINE row load(const uint8_t *p) { return _mm512_loadu_si512(p); }
INLINE row broadcast(piece x) { return _mm512_broadcast_i32x4(x); }
INLINE row first(piece x) { return _mm512_zextsi128_si512(x); }
INLINE row add(row x, row y) { return _mm512_xor_si512(x, y); }
INLINE row fold(row x, row powers, row y) {
  const row low = _mm512_clmulepi64_epi128(x, powers, 0x00), high = _mm512_clmulepi64_epi128(x, powers, 0x11);
  return _mm512_ternarylogic_epi64(low, high, y, 0x96);
}
#else
typedef __m128i row;
INLINE row load(const uint8_t *p) { return _mm_loadu_si128((const row *)p); }
INLINE row broadcast(piece x) { return x; }
INLINE row first(piece x) { return x; }
INLINE row add(row x, row y) { return _mm_xor_si128(x, y); }
INLINE row fold(row x, row powers, row y) {
  return add(add(_mm_clmulepi64_si128(x, powers, 0x00), _mm_clmulepi64_si128(x, powers, 0x11)), y);
}
#endif

#define ROWS 4
#define ROW_BYTES (int64_t)sizeof(row)

static uint32_t remainder_of_byte[256];
static piece by_all_rows, by_piece;

static int64_t power(int exponent) {
  uint32_t remainder = 0x80000000u;
  for (int i = 0; i < exponent; i++) remainder = (remainder >> 1) ^ (remainder & 1 ? POLYNOMIAL : 0);
  return (int64_t)remainder << 1;
}

static piece powers_for(int bits) { return _mm_set_epi64x(power(bits - 32), power(bits + 32)); }

__attribute__((constructor)) static void prepare(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t remainder = byte;
    for (int i = 0; i < 8; i++) remainder = (remainder >> 1) ^ (remainder & 1 ? POLYNOMIAL : 0);
    remainder_of_byte[byte] = remainder;
  }
  by_all_rows = powers_for(8 * ROWS * ROW_BYTES);
  by_piece = powers_for(128);
}

INLINE uint32_t add_bytes(uint32_t crc, const uint8_t *bytes, int64_t count) {
  for (int64_t i = 0; i < count; i++) crc = (crc >> 8) ^ remainder_of_byte[(crc ^ bytes[i]) & 255];
  return crc;
}

int64_t kvasir_crc32(const uint8_t *bytes, int64_t count) {
  const int64_t together = ROWS * ROW_BYTES;
  uint32_t crc = ~0u;
  int64_t done = 0;
  if (count >= together) {
    row rows[ROWS];
    for (int r = 0; r < ROWS; r++) rows[r] = load(bytes + r * ROW_BYTES);
    rows[0] = add(rows[0], first(_mm_cvtsi32_si128((int)crc)));
    const row powers = broadcast(by_all_rows);
    for (done = together; done + together <= count; done += together) {
      for (int r = 0; r < ROWS; r++) rows[r] = fold(rows[r], powers, load(bytes + done + r * ROW_BYTES));
    }
    piece pieces[sizeof rows / sizeof(piece)];
    memcpy(pieces, rows, sizeof rows);
    const piece step = by_piece;
    piece remainder = pieces[0];
    for (size_t i = 1; i < sizeof rows / sizeof(piece); i++) {
      const piece low = _mm_clmulepi64_si128(remainder, step, 0x00), high = _mm_clmulepi64_si128(remainder, step, 0x11);
      remainder = _mm_xor_si128(_mm_xor_si128(low, high), pieces[i]);
    }
    uint8_t last[sizeof remainder];
    memcpy(last, &remainder, sizeof remainder);
    crc = add_bytes(0, last, sizeof last);
  }
  return (uint32_t)~add_bytes(crc, bytes + done, count - done);
}
