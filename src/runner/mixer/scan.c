/*
 * The recurrence of Mamba-2. A head's state is F32 [STATE_SIZE, HEAD_DIM]; each of its rows belongs to one channel of x.
 *
 *   state = state * dA + B * (x * dt),  y = state . C + x * D
 *
 * with dt = softplus(dt), dA = exp(dt * A), and B and C of the head's group. The steps and their order are those of
 * ggml's operation. A row is computed token by token, so it has the same bits in any segments.
 */
#include "recurrence.h"

struct scan { /* written by TypeScript */
  struct recurrence recurrence;
  const float *a;       /* [heads] */
  const float *d;       /* [heads] */
  const float *dt_bias; /* [heads] */
};

/* dt, F32 [heads, rows], also as a view, becomes F32 [2 * heads, rows]: softplus(dt + bias) and dA of each head. */
static void prepare_gates(char *tensor, int thread, int threads, void *userdata) {
  const struct scan *scan = userdata;
  const int64_t heads = scan->recurrence.heads;
  const char *source = SOURCE(tensor, 0);
  const int64_t stride = NB(source, 1) / 4, all = NE(tensor, 1) * heads;
  const float *dt = (const float *)DATA(source);
  float *out = (float *)DATA(tensor);
  for (int64_t i = all * thread / threads; i < all * (thread + 1) / threads; i++) {
    const int64_t row = i / heads, head = i % heads;
    const float step = softplus(dt[row * stride + head] + scan->dt_bias[head]);
    out[row * 2 * heads + head] = step;
    out[row * 2 * heads + heads + head] = exp_one(step * scan->a[head]);
  }
}

/* What LANES channels of a head read. */
struct inputs {
  const float *x, *b, *c, *gates;
  int64_t x_stride, bc_stride, gates_stride, heads;
  float d;
};

/* The rows of a segment for LANES channels, whose states are `from` before them and `after` afterwards. */
static __attribute__((noinline)) void compute_rows(const struct inputs *p, const float *from, float *after, int64_t rows,
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
    const vec from_input = x * d;
    store(out + t * p->heads * HEAD_DIM, sums(total) + from_input);
    from = to;
  }
}

static void scan_slice(const char *tensor, const void *kernel, const struct slice *slice) {
  const struct scan *scan = kernel;
  const struct heads x = heads_of(SOURCE(tensor, 0)), b = heads_of(SOURCE(tensor, 1)), c = heads_of(SOURCE(tensor, 2));
  const int64_t heads = scan->recurrence.heads, group = slice->head / (heads / NE(SOURCE(tensor, 1), 1));
  const struct inputs inputs = {
      .x = head_row(x, slice->head, slice->first_row) + slice->channel,
      .b = head_row(b, group, slice->first_row),
      .c = head_row(c, group, slice->first_row),
      .gates = (const float *)DATA(SOURCE(tensor, 3)) + slice->first_row * 2 * heads + slice->head,
      .x_stride = x.row_stride,
      .bc_stride = b.row_stride,
      .gates_stride = 2 * heads,
      .heads = heads,
      .d = scan->d[slice->head],
  };
  compute_rows(&inputs, slice->before, slice->after, slice->row_count, slice->out);
}

/* x, F32 [HEAD_DIM, heads, rows]; B and C, F32 [STATE_SIZE, groups, rows]; gates: becomes F32 [HEAD_DIM * heads, rows]. */
static void scan(char *tensor, int thread, int threads, void *userdata) {
  compute_slices(tensor, userdata, thread, threads, scan_slice);
}

uintptr_t kvasir_gates_pointer(void) { return (uintptr_t)prepare_gates; }
uintptr_t kvasir_scan_pointer(void) { return (uintptr_t)scan; }
