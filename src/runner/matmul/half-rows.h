/* Before half-tiles.h: the shape of its tiles. */
#define TILE_OUTPUTS 16
/* The sums of so many rows fill the registers. */
#if defined(__AVX512F__)
#define ROWS_AT_ONCE 8
#else
#define ROWS_AT_ONCE 6
#endif
#include "tiles.h"
