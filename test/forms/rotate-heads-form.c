/* Norms and RoPE of heads of several lengths, with pairs of both kinds, and its tables. */
#include "rotate-heads.c"
#include "random.h"

/* Cosines and sines of pairs, with and without divisors and YaRN, at small and large positions. */
static void print_tables(void) {
  int32_t positions[16];
  for (int i = 0; i < 16; i++) positions[i] = i < 4 ? i : 1 << (2 * i - 4) | i;
  struct fake places = fake_tensor(positions, 16, 1, 1);
  for (int pairs = 1; pairs <= 128; pairs = pairs * 3 / 2 + 1) {
    struct fake divisors = fake_tensor(random_floats(pairs, 1), pairs, 1, 1);
    struct rope *rope = malloc(sizeof(struct rope) + pairs * sizeof(float));
    *rope = (struct rope){pairs, 0.865964323f, 0.25f, 1.138629f};
    float *out = random_floats(2 * pairs * 16, 0);
    struct fake result = fake_tensor(out, 2 * pairs, 16, 1);
    set_source(&result, 0, &places);
    for (int kind = 0; kind < 3; kind++) {
      for (int i = 0; i < pairs; i++) rope->kept[i] = kind == 1 ? (float)i / (float)pairs : 0;
      if (kind == 2) set_source(&result, 1, &divisors);
      rope_table(result.bytes, 0, 1, rope);
      print_bits("table", out, 2 * pairs * 16);
    }
    free(rope);
  }
}

int main(void) {
  print_tables();
  for (int n = 6; n <= HEAD_DIM_MAX; n = n * 3 / 2 / 2 * 2) {
    for (int kind = 0; kind < 4; kind++) {
      const int heads = 5, rows = 3, dimension = kind == 3 ? 6 : n;
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
