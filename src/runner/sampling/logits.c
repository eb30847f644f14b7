/*
 * Passes over a row of logits, entry for entry the arithmetic of logits-candidates.ts and sampler.ts: the same doubles in
 * the same order, so the same bits. What the row's size makes slow in JavaScript is quick here.
 */
#include "vector.h"
#include <math.h>

/* As logits-candidates.ts has them. */
#define BINS_PER_NAT 64
#define NO_TOKEN (-1)
/* A NaN or +Infinity: -2 - its token. */
#define BROKEN(token) (-2 - (token))

/* Entries of a stretch: the greatest logit is looked for once in all of them, its place in one. */
#define STRETCH 1024

/* The first of the greatest logits. */
int64_t kvasir_best(const float *row, int64_t count) {
  float greatest = -INFINITY;
  int64_t found = 0; /* where the first stretch with the greatest begins */
  ivec broken = {0};
  int is_broken = 0;
  for (int64_t first = 0; first < count; first += STRETCH) {
    const int64_t end = first + STRETCH < count ? first + STRETCH : count;
    vec most = splat(-INFINITY);
    int64_t t = first;
    for (; t + LANES <= end; t += LANES) {
      const vec x = load(row + t);
      most = max_(most, x);
      /* Neither a NaN nor +Infinity is less than infinity. */
      broken |= ~(ivec)(x < INFINITY);
    }
    float highest = max_lanes(most);
    for (; t < end; t++) {
      is_broken |= !(row[t] < INFINITY);
      highest = row[t] > highest ? row[t] : highest;
    }
    if (highest > greatest) {
      greatest = highest;
      found = first;
    }
  }
  for (int i = 0; i < LANES; i++) is_broken |= broken[i];
  if (is_broken) {
    for (int64_t t = 0; t < count; t++) if (!(row[t] < INFINITY)) return BROKEN(t);
  }
  if (greatest == -INFINITY) return NO_TOKEN;
  while (row[found] != greatest) found++;
  return found;
}

INLINE const char *pointer_at(const char *p) {
  const char *q;
  memcpy(&q, p, sizeof q);
  return q;
}

/*
 * The same in a graph, behind the product that makes the logits: as ggml's custom operation, whose one source is F32
 * [vocabulary, rows]. The result, int32 [shares, rows], holds what `kvasir_best` says of each share of a row, in tokens of the row.
 */
static void best_of_shares(char *tensor, int thread, int threads, void *userdata) {
  (void)userdata;
  const char *source = pointer_at(tensor + TENSOR_SOURCE);
  const float *logits = (const float *)pointer_at(source + TENSOR_DATA);
  int32_t *best = (int32_t *)pointer_at(tensor + TENSOR_DATA);
  int64_t count, shares, rows;
  memcpy(&count, source + TENSOR_NE, sizeof count);
  memcpy(&shares, tensor + TENSOR_NE, sizeof shares);
  memcpy(&rows, tensor + TENSOR_NE + 8, sizeof rows);
  for (int64_t share = thread; share < shares; share += threads) {
    const int64_t first = count * share / shares, end = count * (share + 1) / shares;
    for (int64_t row = 0; row < rows; row++) {
      const int64_t found = kvasir_best(logits + row * count + first, end - first);
      best[row * shares + share] = (int32_t)(found >= 0 ? found + first : found == NO_TOKEN ? NO_TOKEN : found - first);
    }
  }
}
uintptr_t kvasir_best_of_shares_pointer(void) { return (uintptr_t)best_of_shares; }

struct distribution { /* written by TypeScript: doubles */
  double max, temperature, depth_limit;
};

INLINE double exp_of_depth(const double *exp_of_bin, double depth) {
  const int bin = (int)(depth * BINS_PER_NAT);
  const double rest = (double)bin / BINS_PER_NAT - depth;
  return exp_of_bin[bin] *
         (1 + rest * (1 + rest * (1.0 / 2 + rest * (1.0 / 6 + rest * (1.0 / 24 + rest * (1.0 / 120 + rest * (1.0 / 720)))))));
}

/* Adds 1 per token to the bins of depth. */
void kvasir_count_bins(const float *row, int64_t count, const struct distribution *d, double *bins) {
  for (int64_t t = 0; t < count; t++) {
    const double depth = (d->max - (double)row[t]) / d->temperature;
    if (!(depth > d->depth_limit)) bins[(int)(depth * BINS_PER_NAT)] += 1;
  }
}

/* Adds each token's weight to the bins of depth; the sum by ascending token. */
double kvasir_weigh_bins(const float *row, int64_t count, const struct distribution *d, const double *exp_of_bin,
                         double *bins) {
  double mass = 0;
  for (int64_t t = 0; t < count; t++) {
    const double depth = (d->max - (double)row[t]) / d->temperature;
    if (depth > d->depth_limit) continue;
    const double weight = exp_of_depth(exp_of_bin, depth);
    bins[(int)(depth * BINS_PER_NAT)] += weight;
    mass += weight;
  }
  return mass;
}

/* The tokens no deeper than the limit, by ascending id; how many. Their weights' sum goes to `mass`. */
int64_t kvasir_collect(const float *row, int64_t count, const struct distribution *d, const double *exp_of_bin,
                       int32_t *ids, double *depths, double *weights, double *mass) {
  int64_t found = 0;
  double sum = 0;
  for (int64_t t = 0; t < count; t++) {
    const double depth = (d->max - (double)row[t]) / d->temperature;
    if (depth > d->depth_limit) continue;
    const double weight = exp_of_depth(exp_of_bin, depth);
    ids[found] = (int32_t)t;
    depths[found] = depth;
    weights[found] = weight;
    sum += weight;
    found++;
  }
  *mass = sum;
  return found;
}
