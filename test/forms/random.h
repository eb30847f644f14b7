/* What the programs of this folder share. Each runs kernels on the same input and prints the bits of the results. */
#include <stdio.h>
#include <stdlib.h>

static uint32_t random_state = 12345;
/* In [-1, 1), exact in every form. */
static float random_float(void) {
  random_state = random_state * 1664525u + 1013904223u;
  return (float)(int32_t)(random_state >> 8) * 0x1p-23f - 1.0f;
}
static float *random_floats(int64_t count, float factor) {
  float *x = aligned_alloc(64, ((size_t)count * 4 + 63) / 64 * 64);
  for (int64_t i = 0; i < count; i++) x[i] = random_float() * factor;
  return x;
}

static void print_bits(const char *name, const float *x, int64_t count) {
  printf("%s", name);
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, x + i, 4);
    printf(" %08x", bits);
  }
  printf("\n");
}

/* A tensor with the fields that kernels read. Rows follow each other without gaps. */
struct fake {
  char bytes[512];
};
static void set_field(struct fake *t, int offset, const void *value) { memcpy(t->bytes + offset, value, 8); }
static struct fake fake_tensor(const void *data, int64_t ne0, int64_t ne1, int64_t ne2) {
  struct fake t = {{0}};
  const int64_t ne[4] = {ne0, ne1, ne2, 1}, nb[4] = {4, 4 * ne0, 4 * ne0 * ne1, 4 * ne0 * ne1 * ne2};
  set_field(&t, TENSOR_DATA, &data);
  for (int i = 0; i < 4; i++) {
    set_field(&t, TENSOR_NE + 8 * i, ne + i);
    set_field(&t, TENSOR_NB + 8 * i, nb + i);
  }
  return t;
}
static void set_source(struct fake *t, int index, const struct fake *source) {
  const char *p = source->bytes;
  set_field(t, TENSOR_SOURCE + 8 * index, &p);
}
