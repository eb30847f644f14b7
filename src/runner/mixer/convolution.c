/*
 * Short convolution: each channel of a row is a sum over the channel's last TAPS rows. The state is the TAPS - 1 rows
 * before a segment, oldest first: F32 [channels, TAPS - 1].
 *
 *   state rows   x rows of the segment
 *   s0 s1 s2     x0 x1 x2 x3 ...                      with TAPS = 4, the result of x1 is w0 s1 + w1 s2 + w2 x0 + w3 x1
 *
 * A channel's sum is a chain of fused multiply-adds in the order of its rows, so it has the same bits in any segments.
 */
#include "mixer.h"
#include "exp.h"

#define BLOCK 512 /* channels that one thread computes for all segments, before it takes the next ones */
#define STATE_ROWS (TAPS - 1)

struct convolution { /* written by TypeScript */
  const struct state_layer *states;
  int64_t offset;    /* bytes from the start of the layer's state to the rows */
  const float *taps; /* [TAPS][channels] */
  const float *bias; /* [channels], or none */
  int64_t channels;
  int64_t silu; /* whether the result is x * sigmoid(x) */
};

static const float zeros[BLOCK];

/* `source`: the channels of the last TAPS rows, `taps` and `bias`: of these channels. */
INLINE void compute_row(const float *const source[TAPS], const struct convolution *c, int64_t first, int64_t count,
                        float *out, int silu) {
  for (int64_t i = 0; i < count; i += LANES) {
    vec sum = {0};
    UNROLL for (int tap = 0; tap < TAPS; tap++) {
      sum = fma_(load(source[tap] + i), load(c->taps + tap * c->channels + first + i), sum);
    }
    if (c->bias != NULL) sum = sum + load(c->bias + first + i);
    store(out + i, silu ? silu_(sum) : sum);
  }
}

/* Channels [first, first + count) of a segment. */
static void compute_segment(const struct convolution *c, const struct segment *segment, const float *x, int64_t stride,
                            float *out, int64_t first, int64_t count) {
  const int64_t offset = c->states->offset + c->offset;
  const float *before = state_read(segment, offset);
  float *after = state_write(segment, offset);
  const int64_t rows = segment->row_count;
  x += segment->first_row * stride + first;
  out += segment->first_row * c->channels + first;
  /* Row r of the state and, after it, of the segment. */
#define ROW(r) \
  ((r) >= STATE_ROWS ? x + ((r) - STATE_ROWS) * stride : before == NULL ? zeros : before + (r) * c->channels + first)
  for (int64_t t = 0; t < rows; t++) {
    const float *source[TAPS];
    UNROLL for (int tap = 0; tap < TAPS; tap++) source[tap] = ROW(t + tap);
    if (c->silu) compute_row(source, c, first, count, out + t * c->channels, 1);
    else compute_row(source, c, first, count, out + t * c->channels, 0);
  }
  /* In ascending order, because the state that is read may be the one that is written. */
  for (int r = 0; r < STATE_ROWS; r++) {
    memmove(after + r * c->channels + first, ROW(rows + r), count * sizeof(float));
  }
#undef ROW
}

/* F32 [channels, rows], also as a view, becomes F32 [channels, rows]. */
static void convolve(char *tensor, int thread, int threads, void *userdata) {
  const struct convolution *c = userdata;
  const struct state_rows *states = c->states->rows;
  const char *source = SOURCE(tensor, 0);
  const float *x = (const float *)DATA(source);
  float *out = (float *)DATA(tensor);
  const int64_t vectors = c->channels / LANES, end = vectors * (thread + 1) / threads * LANES;
  for (int64_t first = vectors * thread / threads * LANES; first < end; first += BLOCK) {
    const int64_t count = end - first < BLOCK ? end - first : BLOCK;
    for (int64_t s = 0; s < states->count; s++) {
      compute_segment(c, states->segments + s, x, NB(source, 1) / 4, out, first, count);
    }
    for (int64_t row = rows_end(states); row < NE(tensor, 1); row++) {
      memset(out + row * c->channels + first, 0, count * sizeof(float));
    }
  }
}

uintptr_t kvasir_convolve_pointer(void) { return (uintptr_t)convolve; }
