/* Matmuls of rows with a matrix and with experts, and rows of the matrix. */
#include KERNEL
#include "random.h"

#define INPUTS 512
#define OUTPUTS 32
#define EXPERTS 3
#define ROWS_MAX 37
#define CHOSEN 2
#define TOKENS 9

static struct packed weights[EXPERTS * OUTPUTS * INPUTS / BLOCK], scratch[TILE_OUTPUTS * INPUTS / BLOCK];
static struct matrix matrix = {(uint8_t *)weights, INPUTS, OUTPUTS, EXPERTS};
static float out[OUTPUTS * ROWS_MAX], taken[3 * INPUTS];

static struct fake quantized_tensor(int64_t rows) {
  const int64_t width = kvasir_quantized_bytes(INPUTS) / 4;
  return fake_tensor(calloc(rows, width * 4), width, rows, 1);
}

static void print_matmuls(const float *x) {
  const int64_t counts[] = {1, 2, 5, 16, ROWS_MAX};
  for (int i = 0; i < 5; i++) {
    struct fake source = fake_tensor(x, INPUTS, counts[i], 1), quantized = quantized_tensor(counts[i]);
    struct fake result = fake_tensor(out, OUTPUTS, counts[i], 1);
    set_source(&quantized, 0, &source);
    quantize_rows(quantized.bytes, 0, 1, &matrix);
    set_source(&result, 0, &quantized);
    multiply(result.bytes, 0, 1, &matrix);
    print_bits("rows", out, OUTPUTS * counts[i]);
  }
  for (int r = 0; r < 7; r++) {
    struct fake source = fake_tensor(x + r * INPUTS, INPUTS, 1, 1), result = fake_tensor(out, OUTPUTS, 1, 1);
    set_source(&result, 0, &source);
    multiply_row(result.bytes, 0, 1, &matrix);
    print_bits("row", out, OUTPUTS);
  }
}

static void print_experts(const float *x) {
  int32_t chosen[TOKENS * CHOSEN], pairs[2 * TOKENS * CHOSEN + EXPERTS + 1];
  for (int t = 0; t < TOKENS; t++) chosen[2 * t] = t % EXPERTS, chosen[2 * t + 1] = (t + 1) % EXPERTS;
  struct fake source = fake_tensor(x, INPUTS, 1, TOKENS), ids = fake_tensor(chosen, CHOSEN, TOKENS, 1);
  struct fake order = fake_tensor(pairs, 2 * TOKENS * CHOSEN + EXPERTS + 1, 1, 1);
  struct fake quantized = quantized_tensor(TOKENS * CHOSEN), result = fake_tensor(out, OUTPUTS, TOKENS * CHOSEN, 1);
  set_source(&order, 0, &ids);
  order_pairs(order.bytes, 0, 1, &matrix);
  set_source(&quantized, 0, &source);
  set_source(&quantized, 1, &order);
  quantize_in_order(quantized.bytes, 0, 1, &matrix);
  set_source(&result, 0, &quantized);
  set_source(&result, 1, &order);
  multiply_experts(result.bytes, 0, 1, &matrix);
  print_bits("experts", out, OUTPUTS * TOKENS * CHOSEN);
  struct fake one = fake_tensor(x, INPUTS, 1, 1), of_one = fake_tensor(out, OUTPUTS, CHOSEN, 1);
  set_source(&of_one, 0, &one);
  set_source(&of_one, 1, &ids);
  multiply_experts_of_token(of_one.bytes, 0, 1, &matrix);
  print_bits("experts of a token", out, OUTPUTS * CHOSEN);
}

int main(void) {
  printf("form %s\n", kvasir_form());
  for (size_t i = 0; i < sizeof weights; i++) ((uint8_t *)weights)[i] = (uint8_t)((random_float() + 1) * 127.9f);
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) set_test_scales(weights + i);
  kvasir_tile((uint8_t *)weights, (uint8_t *)scratch, INPUTS, 0, EXPERTS * OUTPUTS / TILE_OUTPUTS);
  float *x = random_floats(ROWS_MAX * INPUTS, 3);
  /* The largest values of either sign, and zeros. */
  for (int i = 0; i < INPUTS; i++) {
    x[3 * INPUTS + i] = 1;
    x[4 * INPUTS + i] = -1;
    x[5 * INPUTS + i] = x[5 * INPUTS + i] < 0 ? -1 : 1;
    x[6 * INPUTS + i] = 0;
  }
  print_matmuls(x);
  print_experts(x);
  const int32_t wanted[3] = {0, 31, 7};
  struct fake indices = fake_tensor(wanted, 3, 1, 1), result = fake_tensor(taken, INPUTS, 3, 1);
  set_source(&result, 0, &indices);
  take_rows(result.bytes, 0, 1, &matrix);
  print_bits("taken", taken, 3 * INPUTS);
  return 0;
}
