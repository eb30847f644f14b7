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
