/* The gates of recurrences: decays and steps of heads. */
#include KERNEL
#include "random.h"

int main(void) {
  const int heads = 7, rows = 400;
  float *a = random_floats(heads, 4), *bias = random_floats(heads, 2), *out = random_floats(2 * heads * rows, 0);
  struct fake x = fake_tensor(random_floats(heads * rows, 30), heads, rows, 1);
  struct fake y = fake_tensor(random_floats(heads * rows, 30), heads, rows, 1);
  struct fake result = fake_tensor(out, 2 * heads, rows, 1);
  set_source(&result, 0, &x);
  set_source(&result, 1, &y);
#if IS_SCAN
  struct scan kernel = {.recurrence.heads = heads, .a = a, .dt_bias = bias};
#else
  struct delta_net kernel = {.recurrence.heads = heads, .a = a, .bias = bias};
#endif
  prepare_gates(result.bytes, 0, 1, &kernel);
  print_bits("gates", out, 2 * heads * rows);
  return 0;
}
