/*
 * AMX: sums of products of bytes in registers of 16 rows of 64 bytes, which CPUs call tiles. `AMX_ADD_PRODUCTS(c, a, b)`
 * adds to each of C's 16 x 16 sums of 32 bits the products of a row of A, which has the bytes of a row of activations, and
 * of a column of B: four weights of each of 16 outputs follow four of the next inputs, as in a matrix's tiles. All bytes
 * are signed, and sums are exact.
 *
 * This file has assembly, because GCC 12 does not know which memory its own functions for these instructions read and
 * write. So a library needs no flags for AMX, and one library serves CPUs with AMX and without. AMX_EMULATED replaces the
 * instructions by C, so machines without AMX test all other code.
 */
#if LANES == 16 && defined(VNNI) && defined(AMX_EMULATED)
#define AMX
#elif LANES == 16 && defined(VNNI) && defined(__linux__) && !defined(WITHOUT_AMX) && (defined(__clang__) || __GNUC__ >= 11)
#define AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(AMX)

typedef int16_t shorts __attribute__((vector_size(4 * LANES)));

/* The operand of `ldtilecfg`. All zeros: no registers. */
struct amx_shapes {
  uint8_t palette, first_row, zeros[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
/* Registers 0 to 3 have sums, 4 and 5 activations of `inputs` bytes a row, 6 and 7 weights of as many inputs. */
INLINE struct amx_shapes amx_shapes_for(int inputs) {
  struct amx_shapes shapes = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    shapes.rows[i] = (uint8_t)(i < 6 ? 16 : inputs / 4);
    shapes.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? inputs : 64);
  }
  return shapes;
}

#if defined(AMX_EMULATED)

#define AMX_NAME "AMX (emulated)"
static _Thread_local struct {
  struct amx_shapes shapes;
  int8_t bytes[8][16][64];
  int32_t sums[4][16][16];
} amx;
INLINE void amx_configure(const struct amx_shapes *shapes) {
  memset(&amx, 0, sizeof amx);
  amx.shapes = *shapes;
}
INLINE void amx_load(int n, const void *p, int64_t stride) {
  for (int r = 0; r < amx.shapes.rows[n]; r++) {
    memcpy(amx.bytes[n][r], (const char *)p + r * stride, amx.shapes.row_bytes[n]);
  }
}
INLINE void amx_store(int n, void *p, int64_t stride) {
  for (int r = 0; r < 16; r++) memcpy((char *)p + r * stride, amx.sums[n][r], 64);
}
INLINE void amx_add_products(int c, int a, int b) {
  const int inputs = amx.shapes.row_bytes[a];
  for (int r = 0; r < 16; r++) {
    for (int i = 0; i < inputs; i++) {
      /* The second form has an error, which the test at the start must find. */
      const int x = AMX_EMULATED == 2 ? (uint8_t)amx.bytes[a][r][i] : amx.bytes[a][r][i];
      for (int o = 0; o < 16; o++) amx.sums[c][r][o] += x * amx.bytes[b][i / 4][4 * o + i % 4];
    }
  }
}
#define AMX_CONFIGURE(shapes) amx_configure(shapes)
#define AMX_CONFIGURATION(to) (*(to) = amx.shapes)
#define AMX_LOAD(n, p, stride) amx_load(n, p, stride)
#define AMX_STORE(n, p, stride) amx_store(n, p, stride)
#define AMX_ZERO(n) memset(amx.sums[n], 0, sizeof amx.sums[n])
#define AMX_ADD_PRODUCTS(c, a, b) amx_add_products(c, a, b)
INLINE int amx_is_permitted(void) { return 1; }

#else

#define AMX_NAME "AMX"
#define AMX_CONFIGURE(shapes) __asm__ volatile("ldtilecfg %0" : : "m"(*(shapes)) : "memory")
#define AMX_CONFIGURATION(to) __asm__ volatile("sttilecfg %0" : "=m"(*(to)) : : "memory")
#define AMX_LOAD(n, p, stride) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #n : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define AMX_STORE(n, p, stride) \
  __asm__ volatile("tilestored %%tmm" #n ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define AMX_ZERO(n) __asm__ volatile("tilezero %%tmm" #n : : : "memory")
#define AMX_ADD_PRODUCTS(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : : "memory")
/* Linux gives a process the registers only on demand, then for all of its threads. */
INLINE int amx_is_permitted(void) {
  const int request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

#endif

/* Bytes that are prefetched into the second-level cache while others are multiplied, some cache lines at a time. All at once would
 * keep weights and activations waiting. */
struct amx_ahead {
  const char *at, *end;
  int64_t lines;
};
INLINE struct amx_ahead amx_ahead_in(const void *bytes, int64_t count, int64_t times) {
  return (struct amx_ahead){bytes, (const char *)bytes + count, (count / 64 + times) / times};
}
INLINE void amx_prefetch(struct amx_ahead *ahead) {
  for (int64_t i = 0; i < ahead->lines && ahead->at < ahead->end; i++, ahead->at += 64) __builtin_prefetch(ahead->at, 0, 2);
}
#endif
