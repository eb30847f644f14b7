/* Attention of the last rows of a sequence: as a chunk of a prompt (the wide form) and row by row (the narrow form). */
#include "paged-attention.c"
#include "random.h"

#define LENGTH 600
#define ROWS 12
#define HEADS 2
#define BLOCK_SIZE 16
#define BLOCKS ((LENGTH + BLOCK_SIZE - 1) / BLOCK_SIZE)

static void random_kv(uint8_t *pool, int64_t rows) {
  for (int64_t r = 0; r < rows; r++) {
    uint8_t *row = pool + r * KV_BYTES(HEADS * HEAD_DIM);
    for (int64_t i = 0; i < KV_BYTES(HEADS * HEAD_DIM); i++) {
      const int is_half = !KV_Q8_0 || i % 34 < 2;
      /* Halves of 2^-7 to 2: the exponent is in the upper byte. */
      row[i] = (uint8_t)((is_half && i % 2 ? 0x20 : 0) + (int)((random_float() + 1) * (is_half && i % 2 ? 15 : 127)));
      if (is_half && !KV_Q8_0 && i % 2 && random_float() < 0) row[i] |= 0x80;
    }
  }
}

int main(void) {
  const int64_t stride = KV_PARTS * BLOCK_SIZE * KV_BYTES(HEADS * HEAD_DIM), width = HEADS * GROUP * HEAD_DIM;
  uint8_t *pool = malloc(BLOCKS * stride);
  random_kv(pool, BLOCKS * KV_PARTS * BLOCK_SIZE);
  int32_t tables[BLOCKS], row_of[ROWS], positions[ROWS], partial_of[ROWS] = {0};
  for (int i = 0; i < BLOCKS; i++) tables[i] = BLOCKS - 1 - i;
  for (int i = 0; i < ROWS; i++) {
    row_of[i] = i;
    positions[i] = LENGTH - ROWS + i;
  }
  const float *q = random_floats(ROWS * width, 2), *sinks = random_floats(HEADS * GROUP, 3);
  float *out = random_floats(ROWS * width, 0);
  const int ranges = (LENGTH + RANGE - 1) / RANGE;
  struct unit units[HEADS + ROWS];
  void *scratch = malloc(sizeof(struct scratch) + 64);
  struct fake source = fake_tensor(q, width, ROWS, 1), result = fake_tensor(out, width, ROWS, 1);
  set_source(&result, 0, &source);
  for (int is_wide = 0; is_wide < 2; is_wide++) {
    int count = 0;
    if (is_wide) for (; count < HEADS; count++) units[count] = (struct unit){0, 0, ROWS, count, count + 1, 0, ranges, 0};
    else for (; count < ROWS; count++) units[count] = (struct unit){0, count, 1, 0, HEADS, 0, ranges, 0};
    struct view view = {.pool = pool, .block_stride = stride, .tables = tables, .row_of = row_of, .positions = positions,
                        .partial_of = partial_of, .units = units, .scratch = scratch, .unit_count = count, .heads = HEADS,
                        .block_size = BLOCK_SIZE};
    for (int variant = 0; variant < 2; variant++) {
      struct layer layer = {.view = &view, .sinks = variant ? sinks : 0, .window = variant ? 300 : 0, .scale = 0.125f,
                            .soft_cap = variant ? 2.5f : 0};
      attend(result.bytes, 0, 1, &layer);
      print_bits(is_wide ? "prompt" : "decode", out, ROWS * width);
    }
  }
  return 0;
}
