/*
 * ggml's custom operations over the tiled matrices of experts, of which each token has chosen some. The matrices of the
 * experts follow each other. Results have the shape of `ggml_mul_mat_id`: F32 [outputs, pairs], where a pair is a token
 * and one of its experts, those of token 0 first.
 *
 * So that one pass over an expert's weights serves all its tokens, rows are quantized in the order of experts. A row has
 * the bits that it has as a row of a matmul with the expert's matrix alone.
 */

/* Pairs in the order of their experts, of equal experts in ascending order. */
struct order {
  const int32_t *pairs;  /* [pairs]: the pair at each place */
  const int32_t *places; /* [pairs]: the place of each pair */
  const int32_t *begins; /* [experts + 1]: the first place of each expert */
};
INLINE struct order order_of(const char *tensor, int64_t pairs) {
  const int32_t *at = (const int32_t *)DATA(tensor);
  return (struct order){at, at + pairs, at + 2 * pairs};
}

/* Chosen experts, I32 [chosen, tokens], become an `order`. */
static void order_pairs(char *tensor, int thread, int threads, void *userdata) {
  (void)threads;
  if (thread != 0) return;
  const int64_t experts = ((const struct matrix *)userdata)->experts;
  const char *chosen = SOURCE(tensor, 0), *ids = DATA(chosen);
  const int64_t count = NE(chosen, 0), tokens = ROW_COUNT(chosen), row_bytes = NB(chosen, 1);
  int32_t *pairs = (int32_t *)DATA(tensor), *places = pairs + count * tokens, *begins = places + count * tokens;
  /* Counting sort: begins[e + 1] counts the pairs of e, then of all experts before e. */
  memset(begins, 0, (experts + 1) * sizeof *begins);
#define EACH_PAIR                                                                 \
  for (int64_t t = 0, pair = 0; t < tokens; t++)                                  \
    for (const int32_t *e = (const int32_t *)(ids + t * row_bytes), *end = e + count; e < end; e++, pair++)
  EACH_PAIR begins[*e + 1]++;
  for (int64_t e = 0; e < experts; e++) begins[e + 1] += begins[e];
  EACH_PAIR {
    const int32_t place = begins[*e]++;
    pairs[place] = (int32_t)pair;
    places[pair] = place;
  }
#undef EACH_PAIR
  /* Each begin is now the next expert's. */
  memmove(begins + 1, begins, experts * sizeof *begins);
  begins[0] = 0;
}

/* F32 [inputs, rows of a token, tokens] and an `order` become [row_blocks(inputs / BLOCK), pairs] of `quantized`, each
 * row at the place of its pair. A token has one row for each pair, or one row for all. */
static void quantize_in_order(char *tensor, int thread, int threads, void *userdata) {
  const int64_t inputs = ((const struct matrix *)userdata)->inputs, blocks = inputs / BLOCK, pairs = ROW_COUNT(tensor);
  const char *source = SOURCE(tensor, 0);
  const int64_t rows = ROW_COUNT(source) * NE(source, 2), copies = pairs / rows;
  const float *x = (const float *)DATA(source);
  const struct order order = order_of(SOURCE(tensor, 1), pairs);
  struct quantized *out = quantized_rows(tensor);
  for (int64_t r = rows * thread / threads; r < rows * (thread + 1) / threads; r++) {
    const int32_t *places = order.places + r * copies;
    struct quantized *first = out + places[0] * row_blocks(blocks);
    for (int64_t b = 0; b < blocks; b++) quantize_block(x + r * inputs + b * BLOCK, first + b);
    for (int64_t c = 1; c < copies; c++) memcpy(out + places[c] * row_blocks(blocks), first, blocks * sizeof *first);
  }
}

/* Rows quantized in order and the `order` become F32 [outputs, pairs]. */
static void multiply_experts(char *tensor, int thread, int threads, void *userdata) {
  const struct matrix *m = userdata;
  const int64_t blocks = m->inputs / BLOCK, tiles = m->outputs / TILE_OUTPUTS, together = rows_together(blocks);
  const struct order order = order_of(SOURCE(tensor, 1), ROW_COUNT(tensor));
  const struct quantized *x = quantized_rows(SOURCE(tensor, 0));
  float *out = (float *)DATA(tensor);
  for (int64_t e = 0; e < m->experts; e++) {
    const int64_t end = order.begins[e + 1];
    for (int64_t first = order.begins[e]; first < end; first += together) {
      const int64_t count = end - first < together ? end - first : together;
      for (int64_t t = tiles * thread / threads; t < tiles * (thread + 1) / threads; t++) {
        rows_matmul(tile_of(m, e * tiles + t, blocks, thread), x + first * row_blocks(blocks), blocks,
                    out + t * TILE_OUTPUTS, m->outputs, count, order.pairs + first);
      }
    }
  }
}

/* The same for one token: F32 [inputs, rows of the token] and chosen experts, I32 [chosen, 1], become F32 [outputs,
 * chosen]. Every thread quantizes the rows that it needs, which is cheaper than waiting. */
static void multiply_experts_of_token(char *tensor, int thread, int threads, void *userdata) {
  const struct matrix *m = userdata;
  const char *source = SOURCE(tensor, 0);
  const int64_t blocks = m->inputs / BLOCK, tiles = m->outputs / TILE_OUTPUTS, rows = ROW_COUNT(source);
  const int32_t *chosen = (const int32_t *)DATA(SOURCE(tensor, 1));
  const int64_t all = ROW_COUNT(tensor) * tiles, end = all * (thread + 1) / threads;
  const float *x = (const float *)DATA(source);
  float *out = (float *)DATA(tensor);
  struct quantized row[INPUTS_MAX / BLOCK];
  int64_t quantized_row = -1;
  for (int64_t i = all * thread / threads; i < end;) {
    const int64_t pair = i / tiles, wanted = rows == 1 ? 0 : pair;
    if (wanted != quantized_row) quantize_row(x + wanted * m->inputs, blocks, row);
    quantized_row = wanted;
    const int64_t first = i - pair * tiles, last = end - pair * tiles < tiles ? end - pair * tiles : tiles;
    row_matmul(m, chosen[pair], row, out + pair * m->outputs, first, last, thread);
    i += last - first;
  }
}

uintptr_t kvasir_order_pairs_pointer(void) { return (uintptr_t)order_pairs; }
uintptr_t kvasir_quantize_in_order_pointer(void) { return (uintptr_t)quantize_in_order; }
uintptr_t kvasir_multiply_experts_pointer(void) { return (uintptr_t)multiply_experts; }
uintptr_t kvasir_multiply_experts_of_token_pointer(void) { return (uintptr_t)multiply_experts_of_token; }
