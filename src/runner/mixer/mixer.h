/*
 * What the kernels of mixers share. They are ggml's custom operations over the rows (tokens) of a step, which belong to
 * several sequences of different lengths. Rows that belong to no segment are padding, and their results are 0.
 */
#include "vector.h"
#include "tensor.h"
#include "states.h"

/* F32 [.., heads, rows], also as a view. Strides in floats. */
struct heads {
  const float *data;
  int64_t head_stride, row_stride;
};
INLINE struct heads heads_of(const char *tensor) {
  return (struct heads){(const float *)DATA(tensor), NB(tensor, 1) / 4, NB(tensor, 2) / 4};
}
INLINE const float *head_row(struct heads heads, int64_t head, int64_t row) {
  return heads.data + row * heads.row_stride + head * heads.head_stride;
}

INLINE const float *state_read(const struct segment *segment, int64_t offset) {
  return segment->read == NULL ? NULL : (const float *)(segment->read + offset);
}
INLINE float *state_write(const struct segment *segment, int64_t offset) { return (float *)(segment->write + offset); }

/* The first row after all segments. */
INLINE int64_t rows_end(const struct state_rows *rows) {
  if (rows->count == 0) return 0;
  const struct segment *last = rows->segments + rows->count - 1;
  return last->first_row + last->row_count;
}
