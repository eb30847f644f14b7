/*
 * The features of a CPU that the system can use, with the names of Linux's /proc/cpuinfo. For systems that do not list
 * them. Built for any CPU of the architecture. All ARM CPUs of Apple's computers have dot products.
 */
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>

static const struct {
  const char *name;
  unsigned leaf, subleaf;
  int word; /* EAX, EBX, ECX, EDX */
  int bit;
  int needs; /* state that the system saves: 0 none, 1 of AVX, 2 of AVX-512 */
} known[] = {
    {"pclmulqdq", 1, 0, 2, 1, 0},      {"ssse3", 1, 0, 2, 9, 0},
    {"fma", 1, 0, 2, 12, 1},           {"sse4_1", 1, 0, 2, 19, 0},
    {"sse4_2", 1, 0, 2, 20, 0},        {"movbe", 1, 0, 2, 22, 0},
    {"avx", 1, 0, 2, 28, 1},           {"f16c", 1, 0, 2, 29, 1},
    {"bmi1", 7, 0, 1, 3, 0},           {"avx2", 7, 0, 1, 5, 1},
    {"bmi2", 7, 0, 1, 8, 0},           {"avx512f", 7, 0, 1, 16, 2},
    {"avx512dq", 7, 0, 1, 17, 2},      {"avx512cd", 7, 0, 1, 28, 2},
    {"avx512bw", 7, 0, 1, 30, 2},      {"avx512vl", 7, 0, 1, 31, 2},
    {"vpclmulqdq", 7, 0, 2, 10, 1},    {"avx512_vnni", 7, 0, 2, 11, 2},
    {"avx_vnni", 7, 1, 0, 4, 1},       {"abm", 0x80000001u, 0, 2, 5, 0},
};

/* The state that the system saves when it switches threads, as in `known`. */
static int saved_state(void) {
  unsigned word[4], low, high;
  if (!__get_cpuid(1, word, word + 1, word + 2, word + 3) || !(word[2] >> 27 & 1)) return 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  (void)high;
  return (low & 0xe6) == 0xe6 ? 2 : (low & 6) == 6 ? 1 : 0;
}

static char names[512];

const char *kvasir_cpu_features(void) {
  const int saved = saved_state();
  size_t length = 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    unsigned word[4];
    if (!__get_cpuid_count(known[i].leaf, known[i].subleaf, word, word + 1, word + 2, word + 3)) continue;
    if (!(word[known[i].word] >> known[i].bit & 1) || known[i].needs > saved) continue;
    const size_t size = strlen(known[i].name);
    memcpy(names + length, known[i].name, size);
    names[length + size] = ' ';
    length += size + 1;
  }
  names[length] = 0;
  return names;
}
#elif defined(__APPLE__)
#include <sys/sysctl.h>

const char *kvasir_cpu_features(void) {
  int has = 0;
  size_t size = sizeof has;
  const int failed = sysctlbyname("hw.optional.arm.FEAT_I8MM", &has, &size, NULL, 0);
  return !failed && size == sizeof has && has == 1 ? "asimd asimddp i8mm" : "asimd asimddp";
}
#else
const char *kvasir_cpu_features(void) { return ""; }
#endif
