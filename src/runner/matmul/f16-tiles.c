/* Matmuls with F16 matrices. */
#include "half-rows.h"

INLINE vec load_weights(const f16 *weights) { return load_f16(weights); }
INLINE float value_of(f16 weight) { return float_of(weight); }
/* Below 2. */
INLINE f16 small_number(f16 bits) { return bits & 0xbfff; }

#include "half-tiles.h"
