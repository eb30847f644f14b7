/*
 * Softmax of a query over its tokens: tile after tile within a range (`weigh`), and range after range (`join`,
 * `finish`). Scores are multiplied by log2(e), so that all exponentials are powers of two. A score that is NaN makes the
 * weight NaN, and so the result: a model that is broken must not get text from the rest of its attention.
 */

/* Scores of the tokens [from, to) of a tile become weights; the weights of the other tokens are 0. */
INLINE void weigh(const struct layer *layer, float *scores, int from, int to, float *top, float *weight, float *sum) {
  for (int t = 0; t < from; t++) scores[t] = NONE;
  for (int t = to; t < TILE; t++) scores[t] = NONE;
  if (layer->soft_cap != 0) {
    /* tanh x = 1 - 2 / (e^2x + 1); the queries were divided by the cap */
    for (int t = 0; t < TILE; t += LANES) {
      const vec x = load(scores + t);
      /* NaN stays NaN. */
      const vec e = exp2_(-max_(splat(-60.0f), -max_(splat(-60.0f), x * (2 * LOG2E))));
      const vec capped = (1.0f - 2.0f / (e + 1.0f)) * (layer->soft_cap * LOG2E);
      store(scores + t, choose((ivec)(x == NONE), x, capped));
    }
  }
  vec most = load(scores);
  for (int t = LANES; t < TILE; t += LANES) most = max_(most, load(scores + t));
  const float highest = max_lanes(most);
  const float before = *top;
  vec w[PARTS];
  UNROLL for (int p = 0; p < PARTS; p++) w[p] = load(weight + p * LANES);
  if (highest > before) {
    const vec shrink = splat(exp2_one(before - highest));
    UNROLL for (int i = 0; i < VECTORS; i++) store(sum + i * LANES, load(sum + i * LANES) * shrink);
    UNROLL for (int p = 0; p < PARTS; p++) w[p] *= shrink;
    *top = highest;
  }
  /* Without a score so far, all exponents below are -infinity, or NaN. */
  const vec base = splat(*top == NONE ? 0.0f : *top);
  for (int t = 0; t < TILE; t += WIDTH) {
    UNROLL for (int p = 0; p < PARTS; p++) {
      const vec e = exp2_(load(scores + t + p * LANES) - base);
      store(scores + t + p * LANES, e);
      w[p] += e;
    }
  }
  UNROLL for (int p = 0; p < PARTS; p++) store(weight + p * LANES, w[p]);
}

/* The sum of a query's partial sums of exponentials. */
INLINE float sum_weights(const float *weight) {
  vec w[PARTS];
  UNROLL for (int p = 0; p < PARTS; p++) w[p] = load(weight + p * LANES);
  add_parts(w, 1);
  return sum_lanes(w[0]);
}

/* Adds a range's result (top, weight, sum) to a query's total. */
INLINE void join(float *total_top, float *total_weight, float *total, float top, float weight, const float *sum) {
  if (top == NONE && weight == 0) return;
  if (*total_top == NONE && *total_weight == 0) {
    *total_top = top;
    *total_weight = weight;
    memcpy(total, sum, HEAD_DIM * sizeof(float));
    return;
  }
  const float highest = top > *total_top ? top : *total_top;
  const float keep = exp2_one(*total_top - highest), take = exp2_one(top - highest);
  const vec kept = splat(keep), taken = splat(take);
  UNROLL for (int i = 0; i < VECTORS; i++) {
    store(total + i * LANES, fma_(load(sum + i * LANES), taken, load(total + i * LANES) * kept));
  }
  const float old = *total_weight * keep, added = weight * take;
  *total_weight = old + added;
  *total_top = highest;
}

INLINE void finish(const struct layer *layer, int head, float top, float weight, const float *total, float *out) {
  float share = 1.0f;
  if (layer->sinks != 0) {
    const float sink = layer->sinks[head] * LOG2E;
    const float highest = sink > top ? sink : top;
    share = exp2_one(top - highest);
    const float rescaled = weight * share;
    weight = rescaled + exp2_one(sink - highest);
  }
  const vec factor = splat(share / weight);
  UNROLL for (int i = 0; i < VECTORS; i++) store(out + i * LANES, load(total + i * LANES) * factor);
}
