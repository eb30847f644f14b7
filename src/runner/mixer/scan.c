/*
 * The recurrence of Mamba-2. A head's state is F32 [STATE_SIZE, HEAD_DIM]; each of its rows belongs to one channel of x.
 *
 *   state = state * dA + B * (x * dt),  y = state . C + x * D
 *
 * with dt = softplus(dt), dA = exp(dt * A), and B and C of the head's group. The steps and their order are those of
 * ggml's operation. A row is computed token by token, so it has the same bits in any segments.
 */
#define STATE_VECTORS (STATE_SIZE / LANES)
#include "mixer.h"

struct scan { /* written by TypeScript */
  const struct state_layer *states;
  int64_t offset; /* bytes from the start of the layer's state to this state */
  int64_t heads;
  const float *a;       /* [heads] */
  const float *d;       /* [heads] */
  const float *dt_bias; /* [heads] */
};

INLINE float softplus(float x) { return x > 20.0f ? x : logf(1.0f + expf(x)); }

/* dt, F32 [heads, rows], also as a view, becomes F32 [2 * heads, rows]: softplus(dt + bias) and dA of each head. */
static void prepare_gates(char *tensor, int thread, int threads, void *userdata) {
  const struct scan *scan = userdata;
  const char *source = SOURCE(tensor, 0);
  const int64_t stride = NB(source, 1) / 4, all = NE(tensor, 1) * scan->heads;
  const float *dt = (const float *)DATA(source);
  float *out = (float *)DATA(tensor);
  for (int64_t i = all * thread / threads; i < all * (thread + 1) / threads; i++) {
    const int64_t row = i / scan->heads, head = i % scan->heads;
    const float step = softplus(dt[row * stride + head] + scan->dt_bias[head]);
    out[row * 2 * scan->heads + head] = step;
    out[row * 2 * scan->heads + scan->heads + head] = expf(step * scan->a[head]);
  }
}

/* What LANES channels of a head read. */
struct part {
  const float *x, *b, *c, *gates;
  int64_t x_stride, bc_stride, gates_stride, heads;
  float d;
};

/* The rows of a segment for LANES channels, whose states are `from` before them and `after` afterwards. */
static __attribute__((noinline)) void compute_rows(const struct part *p, const float *from, float *after, int64_t rows,
                                                   float *out) {
  float between[LANES * STATE_SIZE] __attribute__((aligned(64)));
  const vec d = splat(p->d);
  for (int64_t t = 0; t < rows; t++) {
    const float *b = p->b + t * p->bc_stride, *c = p->c + t * p->bc_stride;
    float *to = t == rows - 1 ? after : between;
    prefetch_row(b + p->bc_stride, STATE_SIZE);
    prefetch_row(c + p->bc_stride, STATE_SIZE);
    prefetch_row(p->x + (t + 1) * p->x_stride, LANES);
    const vec x = load(p->x + t * p->x_stride);
    const vec decay = splat(p->gates[t * p->gates_stride + p->heads]);
    float input[LANES];
    store(input, x * splat(p->gates[t * p->gates_stride]));
    vec bs[STATE_VECTORS], cs[STATE_VECTORS];
    UNROLL for (int v = 0; v < STATE_VECTORS; v++) {
      bs[v] = load(b + v * LANES);
      cs[v] = load(c + v * LANES);
    }
    vec total[LANES];
    for (int r = 0; r < LANES; r++) {
      const vec own = splat(input[r]);
      vec sum[SUMS] = {0};
      UNROLL for (int v = 0; v < STATE_VECTORS; v++) {
        const vec state = fma_(load(from + r * STATE_SIZE + v * LANES), decay, bs[v] * own);
        store(to + r * STATE_SIZE + v * LANES, state);
        sum[v % SUMS] = fma_(state, cs[v], sum[v % SUMS]);
      }
      total[r] = joined(sum);
    }
    const vec fromInput = x * d;
    store(out + t * p->heads * HEAD_DIM, sums(total) + fromInput);
    from = to;
  }
}

static const float zeros[LANES * STATE_SIZE];

/* x, F32 [HEAD_DIM, heads, rows]; B and C, F32 [STATE_SIZE, groups, rows]; gates: becomes F32 [HEAD_DIM * heads, rows]. */
static void scan(char *tensor, int thread, int threads, void *userdata) {
  const struct scan *scan = userdata;
  const struct state_rows *states = scan->states->rows;
  const struct heads x = heads_of(SOURCE(tensor, 0)), b = heads_of(SOURCE(tensor, 1)), c = heads_of(SOURCE(tensor, 2));
  const float *gates = (const float *)DATA(SOURCE(tensor, 3));
  const int64_t share = scan->heads / NE(SOURCE(tensor, 1), 1); /* heads of a group */
  const int64_t offset = scan->states->offset + scan->offset, parts = HEAD_DIM / LANES, units = scan->heads * parts;
  const int64_t width = scan->heads * HEAD_DIM;
  float *out = (float *)DATA(tensor);
  for (int64_t unit = units * thread / threads; unit < units * (thread + 1) / threads; unit++) {
    const int64_t head = unit / parts, channel = unit % parts * LANES;
    const int64_t row = head * HEAD_DIM + channel;
    for (int64_t s = 0; s < states->count; s++) {
      const struct segment *segment = states->segments + s;
      const int64_t first = segment->first_row;
      const struct part part = {
          .x = x.data + first * x.row_stride + head * x.head_stride + channel,
          .b = b.data + first * b.row_stride + head / share * b.head_stride,
          .c = c.data + first * c.row_stride + head / share * c.head_stride,
          .gates = gates + first * 2 * scan->heads + head,
          .x_stride = x.row_stride,
          .bc_stride = b.row_stride,
          .gates_stride = 2 * scan->heads,
          .heads = scan->heads,
          .d = scan->d[head],
      };
      const float *from = state_read(segment, offset);
      compute_rows(&part, from == NULL ? zeros : from + row * STATE_SIZE, state_write(segment, offset) + row * STATE_SIZE,
                   segment->row_count, out + first * width + row);
    }
    for (int64_t r = rows_end(states); r < NE(tensor, 1); r++) memset(out + r * width + row, 0, LANES * sizeof(float));
  }
}

uintptr_t kvasir_gates_pointer(void) { return (uintptr_t)prepare_gates; }
uintptr_t kvasir_scan_pointer(void) { return (uintptr_t)scan; }
