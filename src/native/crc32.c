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
INLINE void write_past_caches(uint8_t *p, row x) { _mm512_stream_si512((void *)p, x); }
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
INLINE void write_past_caches(uint8_t *p, row x) { _mm_stream_si128((row *)p, x); }
INLINE row broadcast(piece x) { return x; }
INLINE row first(piece x) { return x; }
INLINE row add(row x, row y) { return _mm_xor_si128(x, y); }
INLINE row fold(row x, row powers, row y) {
  return add(add(_mm_clmulepi64_si128(x, powers, 0x00), _mm_clmulepi64_si128(x, powers, 0x11)), y);
}
#endif

#define ROWS 4
#define ROW_BYTES (int64_t)sizeof(row)
/* How far ahead a copy reads. Measured on an Ice Lake Xeon: 4 KiB gave 1.38 times memcpy's speed, 0 bytes 1.25 times. */
#define PREFETCH_BYTES 4096

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

/*
 * The CRC of the bytes, which are also copied to `into` unless it is null. The copy bypasses the caches: written the usual way,
 * each line of the target would be read first. Blocks are moved in sets that are larger than the caches anyway.
 */
INLINE int64_t crc_and_copy(uint8_t *into, const uint8_t *bytes, int64_t count) {
  const int64_t together = ROWS * ROW_BYTES;
  uint32_t crc = ~0u;
  int64_t done = 0;
  if (into) {
    // Writing past the caches needs an aligned target.
    const int64_t unaligned = (int64_t)(-(uintptr_t)into % ROW_BYTES);
    done = unaligned < count ? unaligned : count;
    memcpy(into, bytes, done);
    crc = add_bytes(crc, bytes, done);
  }
  if (count - done >= together) {
    row rows[ROWS];
    for (int r = 0; r < ROWS; r++) {
      rows[r] = load(bytes + done + r * ROW_BYTES);
      if (into) write_past_caches(into + done + r * ROW_BYTES, rows[r]);
    }
    rows[0] = add(rows[0], first(_mm_cvtsi32_si128((int)crc)));
    const row powers = broadcast(by_all_rows);
    for (done += together; done + together <= count; done += together) {
      for (int r = 0; r < ROWS; r++) {
        const uint8_t *at = bytes + done + r * ROW_BYTES;
        if (into) _mm_prefetch((const char *)at + PREFETCH_BYTES, _MM_HINT_T0);
        const row next = load(at);
        if (into) write_past_caches(into + done + r * ROW_BYTES, next);
        rows[r] = fold(rows[r], powers, next);
      }
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
  if (into) {
    memcpy(into + done, bytes + done, count - done);
    // Writes past the caches are not ordered with later writes, such as the one that tells another thread of the block.
    _mm_sfence();
  }
  return (uint32_t)~add_bytes(crc, bytes + done, count - done);
}

int64_t kvasir_crc32(const uint8_t *bytes, int64_t count) { return crc_and_copy(NULL, bytes, count); }

/* Copies between areas that do not overlap, and returns the CRC of the bytes: one pass over the memory instead of two. */
int64_t kvasir_crc32_copy(uint8_t *into, const uint8_t *bytes, int64_t count) {
  return crc_and_copy(into, bytes, count);
}
