/*
 * Attention over paged KV, which is read in place through block tables: no copy of KV, no mask.
 *
 * Compiled once for a model's HEAD_DIM, GROUP (query heads per KV head) and type of KV. ggml's threads call `attend`.
 * They take units of work (rows of a sequence, some KV heads, some ranges of KV) from a shared counter.
 *
 * Exactness. The bits of a row depend only on its query, its position and the KV that it sees:
 *   - KV is read in tiles of TILE tokens that start at multiples of TILE, and in ranges of RANGE tokens likewise;
 *   - within a range: one running maximum, sum and accumulator per query (online softmax), tile after tile, token after
 *     token; ranges are joined in ascending order;
 *   - a score is a dot product of WIDTH partial sums, added by `add_parts` and `sums`.
 * All of this is the same for vectors of any length (vector.h), so CPUs with fused multiply-adds compute the same bits.
 *
 * Two forms do this same arithmetic. The narrow form (few queries) loads each K and V row once for the queries of a
 * group. The wide form transposes a tile of K and computes blocks of queries times tokens. The bits do not depend on
 * the form, on the thread or on how the work is split.
 */
#include "attention-records.h"
#include "softmax.h"
#include "narrow-tile.h"
#include "wide-tile.h"
#include "tensor.h"

int64_t kvasir_scratch_bytes(void) { return sizeof(struct scratch); }

static void load_queries(const struct layer *layer, const struct unit *u, struct scratch *s, const float *q, int heads,
                         int is_wide) {
  const int32_t *row_of = layer->view->row_of;
  const float factor = layer->soft_cap != 0 ? layer->scale / layer->soft_cap : layer->scale * LOG2E;
  int index = 0;
  for (int head = u->head_first; head < u->head_end; head++) {
    for (int row = u->first_row; row < u->first_row + u->row_count; row++) {
      for (int g = 0; g < GROUP; g++, index++) {
        const float *from = q + ((int64_t)row_of[row] * heads * GROUP + head * GROUP + g) * HEAD_DIM;
        float *to = s->query + index * HEAD_DIM;
        if (is_wide) {
          for (int c = 0; c < WIDTH; c++) {
            for (int i = 0; i < CHAIN; i++) to[c * CHAIN + i] = from[i * WIDTH + chain(c)] * factor;
          }
        } else {
          for (int i = 0; i < HEAD_DIM; i++) to[i] = from[i] * factor;
        }
        s->total_top[index] = NONE;
        s->total_weight[index] = 0;
      }
    }
  }
  /* The last block of queries is padded with zeros. */
  for (; is_wide && index % THIRD != 0; index++) {
    memset(s->query + index * HEAD_DIM, 0, HEAD_DIM * sizeof(float));
    memset(s->sum + index * HEAD_DIM, 0, HEAD_DIM * sizeof(float));
  }
}

/* The addresses of K of `count` tokens from `token` on: `at` bytes after their first heads. */
INLINE void key_rows(const struct layer *layer, const struct unit *u, int64_t token, int count, int64_t at,
                     bytes *rows) {
  const struct view *view = layer->view;
  const int64_t row_stride = KV_BYTES((int64_t)view->heads * HEAD_DIM);
  const int32_t *block = view->tables + u->table + token / view->block_size;
  int32_t place = (int32_t)(token % view->block_size);
  for (int t = 0; t < count; block++, place = 0) {
    bytes row = view->pool + *block * view->block_stride + layer->part + place * row_stride + at;
    for (; t < count && place < view->block_size; place++, t++, row += row_stride) rows[t] = row;
  }
}

/* How many of `most` tokens from `token` on the unit's last row sees in this unit's ranges. */
INLINE int tokens_left(const struct layer *layer, const struct unit *u, int64_t token, int most) {
  const int64_t last = layer->view->positions[u->first_row + u->row_count - 1] + 1;
  const int64_t end = (int64_t)u->range_end * RANGE;
  return clamp((last < end ? last : end) - token, most);
}

/* From a token's K to its V, in bytes. With one part, V is the first elements of K. */
INLINE int64_t value_offset(const struct layer *layer) {
  return (KV_PARTS - 1) * layer->view->block_size * KV_BYTES((int64_t)layer->view->heads * HEAD_DIM);
}

static void walk_narrow(const struct layer *layer, const struct unit *u, struct scratch *s, int64_t tile, int from,
                        int to) {
  const int64_t at = u->head_first * KV_BYTES(HEAD_DIM);
  const int32_t *positions = layer->view->positions + u->first_row;
  struct narrow n;
  n.tile = tile;
  n.positions = positions;
  n.row_count = u->row_count;
  n.heads = u->head_end - u->head_first;
  n.from = from;
  n.to = to;
  const int count = to - from;
  key_rows(layer, u, tile + from, count, at, n.rows);
  for (int t = 0; t < count; t++) n.rows[count + t] = n.rows[t] + value_offset(layer);
  bytes *next = n.rows + 2 * count;
  const int left = tokens_left(layer, u, tile + TILE, AHEAD + TOKENS);
  key_rows(layer, u, tile + TILE, left, at, next);
  for (int t = left; t < AHEAD + TOKENS; t++) next[t] = next[t - 1];
  narrow_tile(layer, s, &n);
}

static const uint8_t no_key[KV_BYTES(HEAD_DIM)];

static void walk_wide(const struct layer *layer, const struct unit *u, struct scratch *s, int64_t tile, int from,
                      int to) {
  const int64_t at = u->head_first * KV_BYTES(HEAD_DIM);
  const int32_t *positions = layer->view->positions + u->first_row;
  struct wide w;
  w.tile = tile;
  w.from = from;
  w.to = to;
  w.value_offset = value_offset(layer);
  for (int t = 0; t < TILE; t++) w.rows[t] = no_key;
  key_rows(layer, u, tile + from, to - from, at, w.rows + from);
  const int left = tokens_left(layer, u, tile + TILE, TILE);
  key_rows(layer, u, tile + TILE, left, at, w.next);
  for (int t = left; t < TILE; t++) w.next[t] = w.rows[from];
  wide_tile(layer, s, positions, u->row_count * GROUP, &w);
}

static void walk_range(const struct layer *layer, const struct unit *u, struct scratch *s, int64_t range, int is_wide) {
  const int32_t *positions = layer->view->positions + u->first_row;
  for (int64_t tile = range * RANGE; tile < (range + 1) * RANGE; tile += TILE) {
    const int from = seen_from(layer, positions[0], tile), to = seen_to(positions[u->row_count - 1], tile);
    if (from >= to) continue;
    if (is_wide) walk_wide(layer, u, s, tile, from, to);
    else walk_narrow(layer, u, s, tile, from, to);
  }
}

INLINE int first_range(const struct layer *layer, int position) {
  const int64_t from = layer->window == 0 ? 0 : position + 1 - (int64_t)layer->window;
  return from < 0 ? 0 : (int)(from / RANGE);
}
INLINE int end_range(int position) { return position / RANGE + 1; }

/* The address of a range's result (top, weight, sum) for a split row and a query head. */
INLINE float *partial_at(const struct layer *layer, int row, int range, int head) {
  const struct view *view = layer->view;
  const int64_t index = view->partial_of[row] + range - first_range(layer, view->positions[row]);
  return view->partials + (index * view->heads * GROUP + head) * PARTIAL_FLOATS;
}

/* The thread that finishes the last unit of a split row joins the row's ranges, in their order. */
static void join_row(const struct layer *layer, struct scratch *s, int row, int ended, float *out) {
  const struct view *view = layer->view;
  const int position = view->positions[row];
  const int from = first_range(layer, position), to = end_range(position);
  if (__atomic_add_fetch(view->done + row, ended, __ATOMIC_ACQ_REL) != (to - from) * view->heads) return;
  view->done[row] = 0;
  for (int head = 0; head < view->heads * GROUP; head++) {
    float top = NONE, weight = 0;
    for (int range = from; range < to; range++) {
      const float *p = partial_at(layer, row, range, head);
      join(&top, &weight, s->total, p[0], p[1], p + 2);
    }
    finish(layer, head, top, weight, s->total,
           out + ((int64_t)view->row_of[row] * view->heads * GROUP + head) * HEAD_DIM);
  }
}

static void run_unit(const struct layer *layer, const struct unit *u, struct scratch *s, const float *q, float *out) {
  const struct view *view = layer->view;
  const int per_head = u->row_count * GROUP;
  const int queries = (u->head_end - u->head_first) * per_head;
  const int is_wide = u->head_end - u->head_first == 1 && queries >= QUERIES_WIDE;
  load_queries(layer, u, s, q, view->heads, is_wide);
  for (int64_t range = u->range_first; range < u->range_end; range++) {
    for (int query = 0; query < queries; query++) {
      s->top[query] = NONE;
      memset(s->weight + query * WIDTH, 0, WIDTH * sizeof(float));
      memset(s->sum + query * HEAD_DIM, 0, HEAD_DIM * sizeof(float));
    }
    walk_range(layer, u, s, range, is_wide);
    for (int query = 0; query < queries; query++) {
      const float weight = sum_weights(s->weight + query * WIDTH);
      const float *sum = s->sum + query * HEAD_DIM;
      if (!u->is_split) {
        join(s->total_top + query, s->total_weight + query, s->total + query * HEAD_DIM, s->top[query], weight, sum);
        continue;
      }
      const int row = u->first_row + query % per_head / GROUP;
      const int head = (u->head_first + query / per_head) * GROUP + query % GROUP;
      /* A chunk of a prompt may have rows that end before this range, or windows that begin after it. */
      if (range >= end_range(view->positions[row]) || range < first_range(layer, view->positions[row])) continue;
      float *p = partial_at(layer, row, (int)range, head);
      p[0] = s->top[query];
      p[1] = weight;
      memcpy(p + 2, sum, HEAD_DIM * sizeof(float));
    }
  }
  if (u->is_split) {
    for (int row = u->first_row; row < u->first_row + u->row_count; row++) {
      const int from = first_range(layer, view->positions[row]), to = end_range(view->positions[row]);
      const int begun = u->range_first > from ? u->range_first : from, ended = u->range_end < to ? u->range_end : to;
      if (ended > begun) join_row(layer, s, row, (ended - begun) * (u->head_end - u->head_first), out);
    }
    return;
  }
  for (int query = 0; query < queries; query++) {
    const int row = view->row_of[u->first_row + query % per_head / GROUP];
    const int head = (u->head_first + query / per_head) * GROUP + query % GROUP;
    finish(layer, head, s->total_top[query], s->total_weight[query], s->total + query * HEAD_DIM,
           out + ((int64_t)row * view->heads * GROUP + head) * HEAD_DIM);
  }
}

/* ---- ggml's custom operation: one source, q ------------------------------------------------------------------- */

static void attend(char *tensor, int thread, int threads, void *userdata) {
  (void)threads;
  struct layer *layer = userdata;
  const float *q = (const float *)DATA(SOURCE(tensor, 0));
  float *out = (float *)DATA(tensor);
  /* Loading a vector that crosses a cache line takes twice as long. */
  struct scratch *s = (struct scratch *)(((uintptr_t)layer->view->scratch + 63) & ~(uintptr_t)63) + thread;
  for (;;) {
    const int index = __atomic_fetch_add(&layer->next_unit, 1, __ATOMIC_RELAXED);
    if (index >= layer->view->unit_count) return;
    run_unit(layer, layer->view->units + index, s, q, out);
  }
}

uintptr_t kvasir_attend_pointer(void) { return (uintptr_t)attend; }
