/*
 * What the kernels of recurrences share. The state of a layer is F32 [STATE_SIZE, HEAD_DIM, heads]. LANES rows of a
 * head's state are computed together, token by token, so they have the same bits in any segments. Their results are
 * LANES channels of the head.
 *
 * Before the include, a kernel defines HEAD_DIM and STATE_SIZE. It calls `compute_slices`.
 */
#include "mixer.h"
#include "elementary.h"

#define STATE_VECTORS (STATE_SIZE / LANES)

struct recurrence { /* written by TypeScript, as the first fields of a kernel's record */
  const struct state_layer *states;
  int64_t offset; /* bytes from the start of the layer's state to this state */
  int64_t heads;
};

/* LANES rows of a head's state in a segment. */
struct slice {
  int64_t head, channel; /* of the head, the first of LANES */
  int64_t first_row, row_count;
  const float *before; /* the state before the segment's rows */
  float *after;        /* the state after them, may be `before` */
  float *out;          /* results of the first row; those of the next row are heads * HEAD_DIM further */
};
typedef void compute_slice(const char *tensor, const void *kernel, const struct slice *slice);

static const float no_state[LANES * STATE_SIZE];

/* Computes this thread's slices. Segments are in order, because one may continue the state of another. */
INLINE void compute_slices(char *tensor, const struct recurrence *r, int thread, int threads, compute_slice *compute) {
  const struct state_rows *rows = r->states->rows;
  const int64_t offset = r->states->offset + r->offset, width = r->heads * HEAD_DIM;
  float *out = (float *)DATA(tensor);
  const int64_t count = width / LANES, end = count * (thread + 1) / threads * LANES;
  for (int64_t first = count * thread / threads * LANES; first < end; first += LANES) {
    for (int64_t s = 0; s < rows->count; s++) {
      const struct segment *segment = rows->segments + s;
      const float *before = state_read(segment, offset);
      const struct slice slice = {
          .head = first / HEAD_DIM,
          .channel = first % HEAD_DIM,
          .first_row = segment->first_row,
          .row_count = segment->row_count,
          .before = before == NULL ? no_state : before + first * STATE_SIZE,
          .after = state_write(segment, offset) + first * STATE_SIZE,
          .out = out + segment->first_row * width + first,
      };
      compute(tensor, r, &slice);
    }
    for (int64_t row = rows_end(rows); row < NE(tensor, 1); row++) {
      memset(out + row * width + first, 0, LANES * sizeof(float));
    }
  }
}

INLINE float softplus(float x) { return x > 20.0f ? x : log_one(1.0f + exp_one(x)); }

/* The next token's inputs are far away in memory, so the CPU does not prefetch them. */
INLINE void prefetch_row(const float *row, int count) {
  for (int i = 0; i < count; i += 16) __builtin_prefetch(row + i);
}

/*
 * Sums over the elements of a state's row have the order of ggml with AVX-512: wide vector w of the row (vector.h) is added
 * to sum w % 4, then sums two apart are added, then neighbours, then lanes.
 */
#define SUMS (4 * PARTS)
INLINE vec joined(const vec sum[SUMS]) {
  vec all[PARTS];
  UNROLL for (int p = 0; p < PARTS; p++) {
    all[p] = (sum[p] + sum[2 * PARTS + p]) + (sum[PARTS + p] + sum[3 * PARTS + p]);
  }
  add_parts(all, 1);
  return all[0];
}
