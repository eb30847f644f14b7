/* Activations, softmax and small matmuls of rows of many lengths. */
#include "row-operations.c"
#include "random.h"

/* Activations of all magnitudes, denormal and infinite too. */
static void print_extremes(void) {
  const int n = 2048;
  float *values = random_floats(n, 1), *out = random_floats(n, 0);
  for (int i = 0; i < n; i++) {
    const uint32_t bits = (uint32_t)i * 0x200000u / 2;
    memcpy(values + i, &bits, 4);
    if (values[i] != values[i]) values[i] = i % 2 ? __builtin_inff() : -__builtin_inff();
  }
  struct fake x = fake_tensor(values, n, 1, 1), y = fake_tensor(random_floats(n, 3), n, 1, 1), result = fake_tensor(out, n, 1, 1);
  set_source(&result, 0, &x);
  set_source(&result, 1, &y);
  struct clamped clamped = {1.702f, 7.0f};
  void (*const functions[])(char *, int, int, void *) = {silu, swiglu, sigmoid, tanh_of, geglu, clamped_swiglu};
  for (int f = 0; f < 6; f++) {
    functions[f](result.bytes, 0, 1, &clamped);
    /* The sign of NaN depends on the CPU. */
    for (int i = 0; i < n; i++) if (out[i] != out[i]) out[i] = 12345;
    print_bits("extremes", out, n);
  }
}

int main(void) {
  print_extremes();
  for (int n = 1; n <= 600; n = n < 40 ? n + 1 : n * 3 / 2) {
    const int rows = 3;
    struct fake x = fake_tensor(random_floats(n * rows, 20), n, rows, 1), y = fake_tensor(random_floats(n * rows, 3), n, rows, 1);
    float *out = random_floats(n * rows, 0);
    struct fake result = fake_tensor(out, n, rows, 1);
    set_source(&result, 0, &x);
    set_source(&result, 1, &y);
    silu(result.bytes, 0, 1, NULL);
    print_bits("silu", out, n * rows);
    swiglu(result.bytes, 0, 1, NULL);
    print_bits("swiglu", out, n * rows);
    sigmoid(result.bytes, 0, 1, NULL);
    print_bits("sigmoid", out, n * rows);
    tanh_of(result.bytes, 0, 1, NULL);
    print_bits("tanh", out, n * rows);
    geglu(result.bytes, 0, 1, NULL);
    print_bits("geglu", out, n * rows);
    struct clamped clamped = {1.702f, 7.0f};
    clamped_swiglu(result.bytes, 0, 1, &clamped);
    print_bits("clamped", out, n * rows);
    soft_max(result.bytes, 0, 1, NULL);
    print_bits("softmax", out, n * rows);
  }
  for (int n = SUMS; n <= 8 * SUMS; n += SUMS) {
    const int outputs = 5, rows = 7;
    struct fake matrix = fake_tensor(random_floats(n * outputs, 1), n, outputs, 1);
    struct fake x = fake_tensor(random_floats(n * rows, 1), n, rows, 1);
    float *out = random_floats(outputs * rows, 0);
    struct fake result = fake_tensor(out, outputs, rows, 1);
    set_source(&result, 0, &matrix);
    set_source(&result, 1, &x);
    small_matmul(result.bytes, 0, 1, NULL);
    print_bits("matmul", out, outputs * rows);
  }
  return 0;
}
