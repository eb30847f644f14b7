/*
 * The barrier of ggml's threads, in place of ggml's own. The dynamic linker binds `ggml_barrier` of ggml's CPU libraries
 * to this definition if this library is global when they are loaded.
 *
 * ggml's threads wait at every barrier by spinning. On a busy machine, the system interrupts a thread for milliseconds,
 * and meanwhile all others spin: they use their share of the CPU for nothing, and keep the late thread from their cores.
 * Here a thread spins only while the late thread runs, as its CPU clock says. If the late thread is interrupted, the
 * waiting thread gives it its core: the two exchange cores (by affinity), and the waiting thread sleeps until the barrier
 * opens. On a machine with idle cores the CPU clock always advances, and all threads spin as ggml's do.
 *
 * The threads have the system's policy for batches (SCHED_BATCH): the same share of the CPU, but a thread that wakes up does
 * not interrupt another one. Otherwise a step's threads interrupt the event loop that has just started the step, and it
 * delivers tokens when the step is over. Beside busy programs they have the usual policy, to get their share.
 *
 * Pools that are not watched spin as in ggml.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Offsets in `struct ggml_threadpool`: the graph's number and its threads (lower 16 bits), how many of them have arrived,
 * and how many barriers have opened. */
#if defined(__x86_64__)
#define GRAPH_AT 104
#define PAUSE __builtin_ia32_pause()
#elif defined(__aarch64__)
#define GRAPH_AT 112
#define PAUSE __asm__ volatile("yield")
#else
#error this CPU lacks a known layout of the thread pool
#endif
#define ARRIVED_AT 128
#define OPENED_AT 192

/* A barrier usually opens sooner. */
#define SPIN_NS 20000
/* A thread that has seen an interrupted thread expects more of them, and spins shorter at its next waits. */
#define BUSY_SPIN_NS 1000
#define BUSY_WAITS 64
/* Threads that have not begun a graph are waking up. */
#define WAKING_NS 100000
/* The time over which the clock of a late thread is observed. */
#define OBSERVED_NS 10000
#define BUSY_OBSERVED_NS 3000
/* A thread that sleeps looks at the late threads again. */
#define SLEEP_NS 1000000
/* Threads are pinned to cores as long as the machine is busy. */
#define PINNED_NS 100000000
/* Another program uses the core of a thread that is interrupted for so long; the event loop usually needs less. */
#define FOREIGN_NS 3000000
/* The threads keep the usual policy for so long. */
#define USUAL_NS 100000000

#define MEMBERS_MAX 256
#define POOLS_MAX 64

struct member {
  _Alignas(64) _Atomic int opened; /* barriers that will have opened when this thread passes its last one */
  _Atomic int graph;
  _Atomic int cpu;
  _Atomic int is_helped;
  _Atomic int is_pinned;
  int is_batch; /* known to this thread only */
  _Atomic uint64_t pinned_ns;
  _Atomic pid_t thread; /* 0: has not joined */
  clockid_t clock;
};

struct pool {
  char *_Atomic ggml; /* NULL: not used now */
  /* Of the thread that opened the pool. It computes single graphs, and is never pinned. */
  pid_t owner;
  cpu_set_t allowed;
  int is_pinned; /* each thread to one of the allowed cores, always */
  int has_policy; /* the process has the usual policy, so its threads may get another one */
  _Atomic uint64_t usual_until;
  _Atomic int next_core;
  _Atomic int member_count;
  _Atomic int sleepers;
  _Atomic int64_t sleeps;
  _Atomic int64_t exchanges;
  struct member members[MEMBERS_MAX];
};

static struct pool *_Atomic pools[POOLS_MAX];
/* Changes with `pools`. */
static _Atomic int version = 1;
static _Thread_local struct {
  char *ggml;
  int version;
  struct pool *pool;
  struct member *member;
  int busy_waits;
} known;

static uint64_t clock_ns(clockid_t clock) {
  struct timespec t;
  if (clock_gettime(clock, &t) != 0) return 0;
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static int is_pinnable(const struct pool *pool, pid_t thread) {
  return thread != 0 && thread != pool->owner && thread != getpid();
}

static struct pool *watched(char *ggml) {
  for (int i = 0; i < POOLS_MAX; i++) {
    struct pool *pool = atomic_load(pools + i);
    if (pool != NULL && atomic_load(&pool->ggml) == ggml) return pool;
  }
  return NULL;
}

/* Whether the barrier opens within this time. */
static int spin(_Atomic int *opened, int before, uint64_t ns) {
  const uint64_t end = now_ns() + ns;
  for (;;) {
    for (int i = 0; i < 32; i++) {
      if (atomic_load_explicit(opened, memory_order_relaxed) != before) return 1;
      PAUSE;
    }
    if (now_ns() >= end) return 0;
  }
}

/* A thread that passed the last barrier and has not arrived at this one. */
static struct member *late_member(struct pool *pool, const struct member *me, int before) {
  const int count = atomic_load(&pool->member_count);
  const int members = count < MEMBERS_MAX ? count : MEMBERS_MAX;
  for (int i = 1; i < members; i++) {
    struct member *other = pool->members + (me - pool->members + i) % members;
    if (atomic_load(&other->opened) == before && is_pinnable(pool, other->thread)) return other;
  }
  return NULL;
}

static int pin(struct pool *pool, struct member *m, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (!is_pinnable(pool, m->thread) || !CPU_ISSET(cpu, &pool->allowed)) return 0;
  if (sched_setaffinity(m->thread, sizeof set, &set) != 0) return 0;
  atomic_store(&m->cpu, cpu);
  atomic_store(&m->pinned_ns, now_ns());
  atomic_store(&m->is_pinned, 1);
  return 1;
}

static void unpin(struct pool *pool, struct member *m) {
  if (pool->is_pinned || now_ns() - atomic_load(&m->pinned_ns) < PINNED_NS) return;
  atomic_store(&m->is_pinned, 0);
  sched_setaffinity(m->thread, sizeof pool->allowed, &pool->allowed);
}

/* The allowed cores in turn. */
static int next_core(struct pool *pool) {
  int left = atomic_fetch_add(&pool->next_core, 1) % CPU_COUNT(&pool->allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &pool->allowed) && left-- == 0) return cpu;
  return -1;
}

static void choose_policy(struct pool *pool, struct member *me) {
  if (!pool->has_policy || !is_pinnable(pool, me->thread)) return;
  const int is_batch = now_ns() >= atomic_load_explicit(&pool->usual_until, memory_order_relaxed);
  if (is_batch == me->is_batch) return;
  me->is_batch = is_batch;
  sched_setscheduler(0, is_batch ? SCHED_BATCH : SCHED_OTHER, &(struct sched_param){0});
}

static struct member *join(struct pool *pool) {
  const pid_t thread = (pid_t)syscall(SYS_gettid);
  const int count = atomic_load(&pool->member_count);
  for (int i = 0; i < count && i < MEMBERS_MAX; i++)
    if (atomic_load(&pool->members[i].thread) == thread) return pool->members + i;
  const int index = atomic_fetch_add(&pool->member_count, 1);
  if (index >= MEMBERS_MAX) return NULL;
  struct member *me = pool->members + index;
  pthread_getcpuclockid(pthread_self(), &me->clock);
  me->is_batch = sched_getscheduler(0) == SCHED_BATCH;
  /* The thread may have been pinned as a member of a pool that was closed. */
  if (is_pinnable(pool, thread)) sched_setaffinity(0, sizeof pool->allowed, &pool->allowed);
  atomic_store(&me->cpu, sched_getcpu());
  atomic_store(&me->thread, thread);
  if (pool->is_pinned && is_pinnable(pool, thread)) pin(pool, me, next_core(pool));
  return me;
}

static void find(char *ggml) {
  const int current = atomic_load_explicit(&version, memory_order_acquire);
  if (known.ggml == ggml && known.version == current) return;
  known.ggml = ggml;
  known.version = current;
  known.pool = watched(ggml);
  known.member = known.pool == NULL ? NULL : join(known.pool);
}

/* An allowed core on which no thread of the pool is, or `otherwise`. */
static int unused_cpu(struct pool *pool, int otherwise) {
  cpu_set_t used;
  CPU_ZERO(&used);
  const int count = atomic_load(&pool->member_count);
  for (int i = 0; i < count && i < MEMBERS_MAX; i++) {
    struct member *m = pool->members + i;
    /* The owner is where it computed last, and does not compute now. */
    if (is_pinnable(pool, atomic_load(&m->thread))) CPU_SET(atomic_load(&m->cpu), &used);
  }
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &pool->allowed) && !CPU_ISSET(cpu, &used)) return cpu;
  return otherwise;
}

/* The two threads exchange cores. If they are on the same core, this thread moves to another one. Two threads are never
 * pinned to one core. */
static void give_core(struct pool *pool, struct member *me, struct member *late) {
  if (atomic_exchange(&late->is_helped, 1)) return;
  const int mine = sched_getcpu(), its = atomic_load(&late->cpu);
  const int target = its == mine ? unused_cpu(pool, mine) : its;
  if (target != mine && pin(pool, late, mine)) {
    pin(pool, me, target);
    atomic_fetch_add(&pool->exchanges, 1);
  }
  atomic_store(&late->is_helped, 0);
}

static void sleep_until_opened(struct pool *pool, _Atomic int *opened, int before) {
  const struct timespec limit = {0, SLEEP_NS};
  atomic_fetch_add(&pool->sleepers, 1);
  syscall(SYS_futex, opened, FUTEX_WAIT_PRIVATE, before, &limit, NULL, 0);
  atomic_fetch_sub(&pool->sleepers, 1);
  atomic_fetch_add_explicit(&pool->sleeps, 1, memory_order_relaxed);
}

/* Whether a thread uses a core. Unknown clocks count as such. Returns at once if the barrier opens. */
static int is_running(const struct member *late, _Atomic int *opened, int before) {
  const uint64_t started = now_ns(), ran = clock_ns(late->clock);
  if (spin(opened, before, known.busy_waits > 0 ? BUSY_OBSERVED_NS : OBSERVED_NS) || ran == 0) return 1;
  return 2 * (clock_ns(late->clock) - ran) > now_ns() - started;
}

static void wait_until_opened(struct pool *pool, struct member *me, _Atomic int *opened, int before) {
  uint64_t interrupted_ns = 0;
  if (known.busy_waits > 0) known.busy_waits--;
  if (spin(opened, before, known.busy_waits > 0 ? BUSY_SPIN_NS : SPIN_NS)) return;
  int has_waited = 0;
  while (atomic_load_explicit(opened, memory_order_relaxed) == before) {
    struct member *late = late_member(pool, me, before);
    if (!has_waited && (late == NULL || atomic_load(&late->graph) != atomic_load(&me->graph))) {
      has_waited = 1;
      if (spin(opened, before, WAKING_NS)) return;
      continue;
    }
    if (late != NULL) {
      if (is_running(late, opened, before)) continue;
      known.busy_waits = BUSY_WAITS;
      const uint64_t now = now_ns();
      if (interrupted_ns == 0) interrupted_ns = now;
      else if (now - interrupted_ns > FOREIGN_NS) {
        atomic_store_explicit(&pool->usual_until, now + USUAL_NS, memory_order_relaxed);
        choose_policy(pool, me);
      }
      give_core(pool, me, late);
    }
    sleep_until_opened(pool, opened, before);
  }
}

void ggml_barrier(char *ggml) {
  const int graph = atomic_load_explicit((_Atomic int *)(ggml + GRAPH_AT), memory_order_relaxed);
  const int threads = graph & 0xffff;
  find(ggml);
  if (threads == 1) return;
  _Atomic int *arrived = (_Atomic int *)(ggml + ARRIVED_AT), *opened = (_Atomic int *)(ggml + OPENED_AT);
  const int before = atomic_load_explicit(opened, memory_order_relaxed);
  struct pool *pool = known.pool;
  struct member *me = known.member;
  if (me != NULL) {
    if (graph != atomic_load_explicit(&me->graph, memory_order_relaxed)) choose_policy(pool, me);
    atomic_store_explicit(&me->opened, before + 1, memory_order_relaxed);
    atomic_store_explicit(&me->graph, graph, memory_order_relaxed);
    if (atomic_load_explicit(&me->is_pinned, memory_order_relaxed)) unpin(pool, me);
    else atomic_store_explicit(&me->cpu, sched_getcpu(), memory_order_relaxed);
  }
  if (atomic_fetch_add(arrived, 1) == threads - 1) {
    atomic_store_explicit(arrived, 0, memory_order_relaxed);
    atomic_fetch_add(opened, 1);
    if (pool != NULL && atomic_load(&pool->sleepers) > 0)
      syscall(SYS_futex, opened, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    return;
  }
  if (me != NULL) wait_until_opened(pool, me, opened, before);
  else
    while (atomic_load_explicit(opened, memory_order_relaxed) == before) PAUSE;
  atomic_thread_fence(memory_order_seq_cst);
}

/* Makes this library global, so that libraries that are loaded later use its barrier. */
int kvasir_make_global(void) {
  Dl_info info;
  if (dladdr((void *)kvasir_make_global, &info) == 0) return 0;
  return dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) != NULL;
}

/* How many of these cores the process may use; they are added to `usable`. */
static int64_t find_usable(const int32_t *cores, int64_t count, cpu_set_t *usable) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  CPU_ZERO(usable);
  sched_getaffinity(0, sizeof allowed, &allowed);
  int64_t found = 0;
  for (int64_t i = 0; i < count; i++) {
    if (cores[i] < 0 || cores[i] >= CPU_SETSIZE || !CPU_ISSET(cores[i], &allowed)) continue;
    CPU_SET(cores[i], usable);
    found++;
  }
  return found;
}

int64_t kvasir_usable_cpus(const int32_t *cores, int64_t count) {
  cpu_set_t usable;
  return find_usable(cores, count, &usable);
}

/* `ggml`: a pool whose threads have not computed yet. `cores`: to which its threads are pinned; none: all cores that the
 * process may use, without pinning. Calls come from one thread. */
void kvasir_watch(char *ggml, const int32_t *cores, int64_t count) {
  for (int i = 0; i < POOLS_MAX; i++) {
    struct pool *pool = atomic_load(pools + i);
    if (pool != NULL && atomic_load(&pool->ggml) != NULL) continue;
    if (pool == NULL) pool = aligned_alloc(64, sizeof *pool);
    if (pool == NULL) return;
    memset(pool, 0, sizeof *pool);
    pool->owner = (pid_t)syscall(SYS_gettid);
    pool->is_pinned = find_usable(cores, count, &pool->allowed) > 0;
    if (!pool->is_pinned) sched_getaffinity(0, sizeof pool->allowed, &pool->allowed);
    pool->has_policy = sched_getscheduler(getpid()) == SCHED_OTHER;
    atomic_store(&pool->ggml, ggml);
    atomic_store(pools + i, pool);
    atomic_fetch_add(&version, 1);
    return;
  }
}

/* `ggml`: a pool whose threads have ended. Its memory is kept for the next pool, because other threads may read it. */
void kvasir_unwatch(char *ggml) {
  struct pool *pool = watched(ggml);
  if (pool == NULL) return;
  atomic_store(&pool->ggml, NULL);
  atomic_fetch_add(&version, 1);
}

/* How often a thread slept at a barrier, and how often two threads exchanged cores. */
int64_t kvasir_sleeps(char *ggml) {
  struct pool *pool = watched(ggml);
  return pool == NULL ? 0 : atomic_load(&pool->sleeps);
}
int64_t kvasir_exchanges(char *ggml) {
  struct pool *pool = watched(ggml);
  return pool == NULL ? 0 : atomic_load(&pool->exchanges);
}
