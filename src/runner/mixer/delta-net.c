/*
 * The recurrence of a gated delta net. A head's state is F32 [HEAD_DIM, HEAD_DIM]; row j belongs to element j of v.
 *
 *   state = state * decay,  delta = (v - state . k) * beta,  state = state + k * delta,  y = (state . q) * scale
 *
 * with decay = exp(softplus(alpha + bias) * A) and beta = sigmoid(beta). The steps and their order are those of ggml's
 * operation. A row is computed token by token, so it has the same bits in any segments.
 */
#define STATE_SIZE HEAD_DIM
#include "recurrence.h"

struct delta_net { /* written by TypeScript */
  struct recurrence recurrence;
  const float *a;    /* [heads] */
  const float *bias; /* [heads] */
  int64_t adjacent;  /* so many adjacent heads read one head of keys, before the next head of keys follows */
};

/* alpha and beta, each F32 [heads, rows], become F32 [2 * heads, rows]: decay and sigmoid(beta) of each head. */
static void prepare_gates(char *tensor, int thread, int threads, void *userdata) {
  const struct delta_net *net = userdata;
  const int64_t heads = net->recurrence.heads;
  const char *alphas = SOURCE(tensor, 0), *betas = SOURCE(tensor, 1);
  const int64_t alpha_stride = NB(alphas, 1) / 4, beta_stride = NB(betas, 1) / 4, all = NE(tensor, 1) * heads;
  const float *alpha = (const float *)DATA(alphas), *beta = (const float *)DATA(betas);
  float *out = (float *)DATA(tensor);
  for (int64_t i = all * thread / threads; i < all * (thread + 1) / threads; i++) {
    const int64_t row = i / heads, head = i % heads;
    const float gate = softplus(alpha[row * alpha_stride + head] + net->bias[head]) * net->a[head];
    out[row * 2 * heads + head] = exp_one(gate);
    out[row * 2 * heads + heads + head] = 1.0f / (1.0f + exp_one(-beta[row * beta_stride + head]));
  }
}

/* What LANES rows of a head's state read. */
struct inputs {
  const float *q, *k, *v, *gates;
  int64_t q_stride, k_stride, v_stride, gates_stride, heads;
};

/* The rows of a segment for LANES rows of the state, which are `from` before them and `after` afterwards. */
static __attribute__((noinline)) void compute_rows(const struct inputs *p, const float *from, float *after, int64_t rows,
                                                   float *out) {
  float between[LANES * STATE_SIZE] __attribute__((aligned(64)));
  const vec scale = splat(1.0f / __builtin_sqrtf((float)HEAD_DIM));
  for (int64_t t = 0; t < rows; t++) {
    const float *q = p->q + t * p->q_stride, *k = p->k + t * p->k_stride;
    float *to = t == rows - 1 ? after : between;
    prefetch_row(q + p->q_stride, STATE_SIZE);
    prefetch_row(k + p->k_stride, STATE_SIZE);
    prefetch_row(p->v + (t + 1) * p->v_stride, LANES);
    const vec decay = splat(p->gates[t * p->gates_stride]), beta = splat(p->gates[t * p->gates_stride + p->heads]);
    vec qs[STATE_VECTORS], ks[STATE_VECTORS];
    UNROLL for (int v = 0; v < STATE_VECTORS; v++) {
      qs[v] = load(q + v * LANES);
      ks[v] = load(k + v * LANES);
    }
    vec total[LANES];
    for (int r = 0; r < LANES; r++) {
      vec sum[SUMS] = {0};
      UNROLL for (int v = 0; v < STATE_VECTORS; v++) {
        const vec state = load(from + r * STATE_SIZE + v * LANES) * decay;
        sum[v % SUMS] = fma_(state, ks[v], sum[v % SUMS]);
      }
      total[r] = joined(sum);
    }
    float delta[LANES];
    store(delta, (load(p->v + t * p->v_stride) - sums(total)) * beta);
    for (int r = 0; r < LANES; r++) {
      const vec change = splat(delta[r]);
      vec sum[SUMS] = {0};
      UNROLL for (int v = 0; v < STATE_VECTORS; v++) {
        const vec decayed = load(from + r * STATE_SIZE + v * LANES) * decay;
        const vec state = fma_(ks[v], change, decayed);
        store(to + r * STATE_SIZE + v * LANES, state);
        sum[v % SUMS] = fma_(state, qs[v], sum[v % SUMS]);
      }
      total[r] = joined(sum);
    }
    store(out + t * p->heads * HEAD_DIM, sums(total) * scale);
    from = to;
  }
}

static void delta_net_slice(const char *tensor, const void *kernel, const struct slice *slice) {
  const struct delta_net *net = kernel;
  const struct heads q = heads_of(SOURCE(tensor, 0)), k = heads_of(SOURCE(tensor, 1)), v = heads_of(SOURCE(tensor, 2));
  const int64_t heads = net->recurrence.heads, key_head = slice->head / net->adjacent % NE(SOURCE(tensor, 0), 1);
  const struct inputs inputs = {
      .q = head_row(q, key_head, slice->first_row),
      .k = head_row(k, key_head, slice->first_row),
      .v = head_row(v, slice->head, slice->first_row) + slice->channel,
      .gates = (const float *)DATA(SOURCE(tensor, 3)) + slice->first_row * 2 * heads + slice->head,
      .q_stride = q.row_stride,
      .k_stride = k.row_stride,
      .v_stride = v.row_stride,
      .gates_stride = 2 * heads,
      .heads = heads,
  };
  compute_rows(&inputs, slice->before, slice->after, slice->row_count, slice->out);
}

/* q and k, F32 [HEAD_DIM, heads of keys, rows]; v, F32 [HEAD_DIM, heads, rows]; gates: becomes F32 [HEAD_DIM * heads,
 * rows]. Head h reads head h / adjacent % heads of keys. */
static void delta_net(char *tensor, int thread, int threads, void *userdata) {
  compute_slices(tensor, userdata, thread, threads, delta_net_slice);
}

uintptr_t kvasir_gates_pointer(void) { return (uintptr_t)prepare_gates; }
uintptr_t kvasir_delta_net_pointer(void) { return (uintptr_t)delta_net; }
