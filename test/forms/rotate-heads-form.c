/* Norms and RoPE of heads of several lengths, with pairs of both kinds. */
#include "rotate-heads.c"
#include "random.h"

int main(void) {
  for (int n = 32; n <= HEAD_DIM_MAX; n *= 2) {
    for (int kind = 0; kind < 4; kind++) {
      const int heads = 5, rows = 3, dimension = kind == 3 ? 32 : n;
      struct rotation r = {dimension, kind % 2, 1e-6f};
      struct fake x = fake_tensor(random_floats(n * heads * rows, 1), n, heads, rows);
      struct fake table = fake_tensor(random_floats(dimension * rows, 1), dimension, rows, 1);
      struct fake norm = fake_tensor(random_floats(n, 1), n, 1, 1);
      float *out = random_floats(n * heads * rows, 0);
      struct fake result = fake_tensor(out, n * heads, rows, 1);
      set_source(&result, 0, &x);
      set_source(&result, 1, &table);
      if (kind != 2) set_source(&result, 2, &norm);
      rotate_heads(result.bytes, 0, 1, &r);
      print_bits("rotated", out, n * heads * rows);
    }
  }
  return 0;
}
