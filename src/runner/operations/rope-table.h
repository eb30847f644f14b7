/*
 * The cosines and sines of RoPE, once per step for all layers. The angle of a pair is computed as by ggml: the position, multiplied by one
 * factor after another, as floats.
 */
#include "elementary.h"

struct rope { /* written by TypeScript (rope-constants.ts) */
  int64_t pairs;
  float step;      /* each pair's angle is that of the pair before times this factor */
  float scale;     /* of angles in a stretched context */
  float magnitude; /* of cosines and sines */
  float kept[];    /* [pairs]: YaRN's share of the angle that is not scaled */
};

/* positions, I32 [rows], and maybe a divisor of each pair's angle, F32 [pairs], become F32 [2 * pairs, rows]: a row's cosines, then its
 * sines. */
static void rope_table(char *tensor, int thread, int threads, void *userdata) {
  const struct rope *r = userdata;
  const char *divisors = SOURCE(tensor, 1);
  const int32_t *positions = (const int32_t *)DATA(SOURCE(tensor, 0));
  const float *divisor = divisors == NULL ? NULL : (const float *)DATA(divisors);
  const int64_t rows = NE(tensor, 1);
  for (int64_t row = rows * thread / threads; row < rows * (thread + 1) / threads; row++) {
    float *cosines = (float *)DATA(tensor) + row * 2 * r->pairs, *sines = cosines + r->pairs;
    float angle = (float)positions[row];
    for (int64_t i = 0; i < r->pairs; i++) {
      sines[i] = divisor == NULL ? angle : angle / divisor[i];
      angle *= r->step;
    }
    for (int64_t i = 0; i < r->pairs; i++) {
      const float own = sines[i], scaled = r->scale * own, kept = own * r->kept[i];
      float sine, cosine;
      sine_and_cosine(scaled * (1.0f - r->kept[i]) + kept, &sine, &cosine);
      cosines[i] = cosine * r->magnitude;
      sines[i] = sine * r->magnitude;
    }
  }
}
