/* Where the layers of a group with states read and write them in a step. `layer-states.ts` writes these records. */
#include <stdint.h>

/*
 * Adjacent rows of one request whose tokens are in one block. The state before the first row is at `read` (NULL: a
 * state of zeros), and the state after the last row goes to `write`. Both are addresses of blocks, and may be equal.
 *
 * Segments run in order: a segment may read the state that an earlier segment of the same step has written.
 */
struct segment {
  const char *read;
  char *write;
  int32_t first_row;
  int32_t row_count;
};

/* The segments of one KV group; rows in no segment are padding. */
struct state_rows {
  const struct segment *segments;
  int64_t count;
};

/* A layer's states are `offset` bytes after the addresses of blocks. Aligned to 4 bytes. */
struct state_layer {
  const struct state_rows *rows;
  int64_t offset;
};
