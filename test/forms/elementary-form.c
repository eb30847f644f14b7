/* Elementary functions of numbers of all magnitudes, as a sweep over the bits of floats, and of special values. */
#include "vector.h"
#include KERNEL
#include "random.h"

#define COUNT 20000

static float of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

/* Numbers of both signs whose size is from `least` to `most`, evenly by their bits. */
static float *sweep(float least, float most) {
  uint32_t from, to;
  memcpy(&from, &least, 4);
  memcpy(&to, &most, 4);
  float *x = random_floats(COUNT, 0);
  for (int i = 0; i < COUNT; i++) {
    const uint32_t bits = from + (uint32_t)((uint64_t)(to - from) * (uint64_t)i / (COUNT - 1));
    x[i] = of_bits(bits | (i % 2 ? 0x80000000u : 0));
  }
  return x;
}

int main(void) {
  float *angles = sweep(0x1p-149f, 0x1p31f), *small = sweep(0x1p-149f, 120.0f), *positive = sweep(0x1p-149f, 0x1.fffffep127f);
  for (int i = 0; i < COUNT; i++) positive[i] = positive[i] < 0 ? -positive[i] : positive[i];
  /* Positions of tokens, whose angles are close to multiples of pi/2 as often as any. */
  for (int i = 0; i < COUNT / 2; i++) angles[i] = (float)(i * 53);
  const float special[] = {0.0f, -0.0f, __builtin_inff(), -__builtin_inff(), 88.72284f, -103.97208f, 1e30f, -1e30f, 1.0f};
  memcpy(small, special, sizeof special);
  positive[0] = __builtin_inff();
  float *first = random_floats(COUNT, 0), *second = random_floats(COUNT, 0);
  for (int i = 0; i < COUNT; i++) sine_and_cosine(angles[i], first + i, second + i);
  print_bits("angles", angles, COUNT);
  print_bits("sine", first, COUNT);
  print_bits("cosine", second, COUNT);
  for (int i = 0; i < COUNT; i++) first[i] = exp_one(small[i]);
  print_bits("small", small, COUNT);
  print_bits("exp", first, COUNT);
  for (int i = 0; i < COUNT; i++) first[i] = tanh_one(small[i]);
  print_bits("tanh", first, COUNT);
  for (int i = 0; i < COUNT; i++) first[i] = log_one(positive[i]);
  print_bits("positive", positive, COUNT);
  print_bits("log", first, COUNT);
  float sine, cosine;
  const float nan = __builtin_nanf(""), infinite = __builtin_inff();
  sine_and_cosine(nan, &sine, &cosine);
  int nans = sine != sine && cosine != cosine && exp_one(nan) != exp_one(nan) && tanh_one(nan) != tanh_one(nan);
  sine_and_cosine(infinite, &sine, &cosine);
  nans = nans && log_one(nan) != log_one(nan) && sine != sine && cosine != cosine;
  printf("not-a-number-stays %s\n", nans ? "yes" : "no");
  return 0;
}
