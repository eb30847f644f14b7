/* The table of IQ4_NL and IQ4_XS, whose entries are as large as the weights of Q8_0 and are multiplied like these. */
#define IQ4_VALUES(f) \
  f(-127), f(-104), f(-83), f(-65), f(-49), f(-35), f(-22), f(-10), f(1), f(13), f(25), f(38), f(53), f(69), f(89), f(113)
#define FLIPPED(value) (int8_t)((value) ^ (int8_t)(SIGN_BITS & 255))
#define SAME(value) (value)
static const int8_t weights_of[16] = {IQ4_VALUES(FLIPPED)};
