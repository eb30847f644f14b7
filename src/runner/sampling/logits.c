/*
 * Passes over a row of logits, with the arithmetic of logits-candidates.ts and sampler.ts: the same doubles in the same
 * order, so the same bits. JavaScript is slow for rows of this size.
 */
#include "vector.h"
#include "tensor.h"
#include <math.h>

/* As logits-candidates.ts has them. */
#define BINS_PER_NAT 64
#define NO_TOKEN (-1)
/* The result for a NaN or +Infinity at `token`. */
#define NON_FINITE(token) (-2 - (token))

/* Logits of a part of the row: all parts are searched for the greatest logit, and one part for its index. */
#define PART 1024

/* The first of the greatest logits. */
int64_t kvasir_best(const float *row, int64_t count) {
  float greatest = -INFINITY;
  int64_t found = 0; /* first logit of the first part that has the greatest */
  ivec non_finite = {0};
  int has_non_finite = 0;
  for (int64_t first = 0; first < count; first += PART) {
    const int64_t end = first + PART < count ? first + PART : count;
    vec most = splat(-INFINITY);
    int64_t t = first;
    for (; t + LANES <= end; t += LANES) {
      const vec x = load(row + t);
      most = max_(most, x);
      /* Neither a NaN nor +Infinity is less than infinity. */
      non_finite |= ~(ivec)(x < INFINITY);
    }
    float highest = max_lanes(most);
    for (; t < end; t++) {
      has_non_finite |= !(row[t] < INFINITY);
      highest = row[t] > highest ? row[t] : highest;
    }
    if (highest > greatest) {
      greatest = highest;
      found = first;
    }
  }
  for (int i = 0; i < LANES; i++) has_non_finite |= non_finite[i];
  if (has_non_finite) {
    for (int64_t t = 0; t < count; t++) if (!(row[t] < INFINITY)) return NON_FINITE(t);
  }
  if (greatest == -INFINITY) return NO_TOKEN;
  while (row[found] != greatest) found++;
  return found;
}

/*
 * The same in a graph, after the matmul that computes the logits: as ggml's custom operation, whose one source is F32
 * [vocabulary, rows]. The result, int32 [shares, rows], has the result of `kvasir_best` for each share of a row,
 * counted from the start of the row.
 */
static void best_of_shares(char *tensor, int thread, int threads, void *userdata) {
  (void)userdata;
  const char *source = SOURCE(tensor, 0);
  const float *logits = (const float *)DATA(source);
  int32_t *best = (int32_t *)DATA(tensor);
  const int64_t count = NE(source, 0), shares = NE(tensor, 0), rows = NE(tensor, 1);
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
  double max, temperature, threshold_nats;
};

/* exp(-nats): the value of the bin from the table, and a Taylor series for the remainder. */
INLINE double exp_of_nats(const double *exp_of_bin, double nats) {
  const int bin = (int)(nats * BINS_PER_NAT);
  const double rest = (double)bin / BINS_PER_NAT - nats;
  return exp_of_bin[bin] *
         (1 + rest * (1 + rest * (1.0 / 2 + rest * (1.0 / 6 + rest * (1.0 / 24 + rest * (1.0 / 120 + rest * (1.0 / 720)))))));
}

/* Adds 1 per token to its bin. */
void kvasir_count_bins(const float *row, int64_t count, const struct distribution *d, double *bins) {
  for (int64_t t = 0; t < count; t++) {
    const double nats = (d->max - (double)row[t]) / d->temperature;
    if (!(nats > d->threshold_nats)) bins[(int)(nats * BINS_PER_NAT)] += 1;
  }
}

/* Adds each token's weight to its bin; returns the sum of the weights in ascending order of token. */
double kvasir_weigh_bins(const float *row, int64_t count, const struct distribution *d, const double *exp_of_bin,
                         double *bins) {
  double weight_sum = 0;
  for (int64_t t = 0; t < count; t++) {
    const double nats = (d->max - (double)row[t]) / d->temperature;
    if (nats > d->threshold_nats) continue;
    const double weight = exp_of_nats(exp_of_bin, nats);
    bins[(int)(nats * BINS_PER_NAT)] += weight;
    weight_sum += weight;
  }
  return weight_sum;
}

/* Collects the tokens within the threshold in ascending order of id. Returns their number, and in `weight_sum` the sum
 * of their weights. */
int64_t kvasir_collect(const float *row, int64_t count, const struct distribution *d, const double *exp_of_bin,
                       int32_t *ids, double *nats_below_best, double *weights, double *weight_sum) {
  int64_t found = 0;
  double sum = 0;
  for (int64_t t = 0; t < count; t++) {
    const double nats = (d->max - (double)row[t]) / d->temperature;
    if (nats > d->threshold_nats) continue;
    const double weight = exp_of_nats(exp_of_bin, nats);
    ids[found] = (int32_t)t;
    nats_below_best[found] = nats;
    weights[found] = weight;
    sum += weight;
    found++;
  }
  *weight_sum = sum;
  return found;
}
