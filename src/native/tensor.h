/*
 * Fields of ggml's tensors, which custom operations read. `tensor-fields.ts` defines their offsets. Elements and strides
 * in bytes are those of dimension `i`.
 */
#include <stdint.h>
#include <string.h>

static inline char *pointer_at(const char *p, int offset) {
  char *q;
  memcpy(&q, p + offset, sizeof q);
  return q;
}
static inline int64_t int64_at(const char *p, int offset) {
  int64_t x;
  memcpy(&x, p + offset, sizeof x);
  return x;
}
#define SOURCE(tensor, i) pointer_at(tensor, TENSOR_SOURCE + (i) * (int)sizeof(char *))
#define DATA(tensor) pointer_at(tensor, TENSOR_DATA)
#define NE(tensor, i) int64_at(tensor, TENSOR_NE + (i) * (int)sizeof(int64_t))
#define NB(tensor, i) int64_at(tensor, TENSOR_NB + (i) * (int)sizeof(int64_t))
