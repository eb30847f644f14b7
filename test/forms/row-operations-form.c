/* Activations, softmax and small matmuls of rows of many lengths. */
#include "row-operations.c"
#include "random.h"

int main(void) {
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
