/* pool.c: worker threads and the parallel loop of generated code.
 *
 * Why not OpenMP: ThreadSanitizer reports its barriers, a just-in-time object would drag a second
 * pool in, and its barrier spins without end when there are more threads than CPUs. Here a step is:
 * the caller publishes (fn, arg, parts) and adds 1 to `seq`; each worker runs its contiguous range
 * of parts and takes itself off `busy`; the caller runs the first range and waits for busy == 0.
 * Whoever waits spins for about 2 us, yields for a while, then sleeps on a futex.
 *
 *     caller   seq++ ---- own range ---- wait busy == 0 --------- seq++ ...
 *     worker   wait seq ---- own range ---- busy-- ---- wait seq ....
 *
 * `seq` and `busy` are sequentially consistent where they decide about sleeping: the sleeper
 * announces itself, then looks again; the waker changes the word, then looks for sleepers. One of
 * them sees the other.
 */
#include "pool.h"
#include "mg.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPIN_NS = 2000, YIELD_NS = 100000, WORKERS_MAX = 1024, HUGE = 2 << 20 };

/* A word to wait on and the number of threads that sleep on it; alone in its cache lines. */
typedef struct {
    _Alignas(128) atomic_uint word;
    atomic_uint sleepers;
} Gate;

typedef struct {
    struct mg_pool *pool;
    int index; /* 1 .. workers - 1 */
    pthread_t thread;
} Worker;

struct mg_pool {
    Gate seq;  /* number of the step */
    Gate busy; /* workers that have not finished the step */
    void (*fn)(void *arg, int part);
    void *arg;
    int parts;
    int workers, started; /* caller included; threads that run */
    bool end;             /* the next step is the last: workers return */
    void *map;            /* mapping behind scratch */
    char *scratch;        /* MG_SCRATCH_BYTES, 2 MiB aligned */
    Worker worker[];
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void denormals_off(void)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040u); /* FTZ | DAZ */
#endif
}

static void gate_sleep(Gate *g, unsigned seen)
{
    atomic_fetch_add(&g->sleepers, 1);
    if (atomic_load(&g->word) == seen)
        syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

static void gate_wake(Gate *g)
{
    if (atomic_load(&g->sleepers) > 0)
        syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until the word is no longer `seen`; returns its new value. */
static unsigned gate_change(Gate *g, unsigned seen)
{
    int64_t start = 0;
    for (unsigned turn = 0;; turn++) {
        unsigned v = atomic_load_explicit(&g->word, memory_order_acquire);
        if (v != seen)
            return v;
        cpu_relax();
        if (turn % 8 != 7)
            continue;
        int64_t t = now_ns();
        if (start == 0)
            start = t;
        else if (t - start > SPIN_NS + YIELD_NS)
            gate_sleep(g, seen);
        else if (t - start > SPIN_NS)
            sched_yield();
    }
}

/* Worker w takes parts [w * parts / workers, (w + 1) * parts / workers). */
static void run_range(struct mg_pool *p, int w)
{
    int64_t parts = p->parts, n = p->workers;
    for (int64_t i = w * parts / n, end = (w + 1) * parts / n; i < end; i++)
        p->fn(p->arg, (int)i);
}

static void *worker_main(void *arg)
{
    Worker *w = arg;
    struct mg_pool *p = w->pool;
    denormals_off();
    for (unsigned seq = 0;;) {
        seq = gate_change(&p->seq, seq);
        if (p->end)
            return NULL;
        run_range(p, w->index);
        if (atomic_fetch_sub(&p->busy.word, 1) == 1)
            gate_wake(&p->busy);
    }
}

static void step_start(struct mg_pool *p)
{
    atomic_store(&p->busy.word, (unsigned)p->started);
    atomic_fetch_add(&p->seq.word, 1);
    gate_wake(&p->seq);
}

void mg_par(mg_ctx *c, int parts, void (*fn)(void *arg, int part), void *arg)
{
    struct mg_pool *p = c->pool;
    if (p == NULL || p->workers == 1 || parts == 1) {
        for (int i = 0; i < parts; i++)
            fn(arg, i);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->parts = parts;
    step_start(p);
    run_range(p, 0);
    for (unsigned left; (left = atomic_load_explicit(&p->busy.word, memory_order_acquire)) != 0;)
        gate_change(&p->busy, left);
}

void *mg_scratch(mg_ctx *c)
{
    return c->pool->scratch;
}

/* CPUs that the cgroup's quota allows, rounded up; 0 = no limit known. Files: "max 100000" or
 * "150000 100000" in version 2, one number a file in version 1. */
static int quota_read(const char *path, const char *path_period)
{
    char quota[32] = "", period[32] = "";
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    int n = fscanf(f, "%31s %31s", quota, period);
    fclose(f);
    if (n == 1 && path_period != NULL && (f = fopen(path_period, "re")) != NULL) {
        n += fscanf(f, "%31s", period);
        fclose(f);
    }
    long q = strtol(quota, NULL, 10), t = strtol(period, NULL, 10);
    return n == 2 && q > 0 && t > 0 ? (int)((q + t - 1) / t) : 0;
}

/* The smallest quota on the way from this process's own version 2 group up to the root. */
static int quota_group(void)
{
    char line[PATH_MAX / 2], path[PATH_MAX];
    int best = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "0::/", 4) != 0)
            continue;
        line[strcspn(line, "\n")] = 0;
        for (char *group = line + 3, *cut = group; cut != NULL;) {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
            int q = quota_read(path, NULL);
            if (q > 0 && (best == 0 || q < best))
                best = q;
            cut = strrchr(group, '/');
            if (cut != NULL)
                *cut = 0;
        }
    }
    fclose(f);
    return best;
}

static int at_most(int n, int limit)
{
    return limit > 0 && limit < n ? limit : n;
}

int mg_pool_size(void)
{
    const char *s = getenv("MG_THREADS");
    char *end;
    long want = s != NULL ? strtol(s, &end, 10) : 0;
    if (s != NULL && *s != 0 && *end == 0 && want >= 1 && want <= WORKERS_MAX)
        return (int)want;
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    n = at_most(n, quota_group());
    n = at_most(n, quota_read("/sys/fs/cgroup/cpu.max", NULL));
    n = at_most(n, quota_read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
                              "/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
    return n < 1 ? 1 : n > WORKERS_MAX ? WORKERS_MAX : n;
}

int mg_workers(const mg_ctx *c)
{
    return c->pool == NULL ? 1 : c->pool->workers;
}

int mg_pool_workers(const struct mg_pool *p)
{
    return p->workers;
}

static bool scratch_map(struct mg_pool *p)
{
    p->map = mmap(NULL, MG_SCRATCH_BYTES + HUGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p->map == MAP_FAILED)
        return false;
    p->scratch = (char *)(((uintptr_t)p->map + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    madvise(p->scratch, MG_SCRATCH_BYTES, MADV_HUGEPAGE); /* a wish; failure costs only speed */
    return true;
}

struct mg_pool *mg_pool_new(int workers)
{
    if (workers < 1 || workers > WORKERS_MAX) {
        errno = EINVAL;
        return NULL;
    }
    size_t bytes = sizeof(struct mg_pool) + (size_t)workers * sizeof(Worker);
    struct mg_pool *p = aligned_alloc(128, (bytes + 127) & ~(size_t)127);
    if (p == NULL)
        return NULL;
    memset(p, 0, bytes);
    p->workers = workers;
    if (!scratch_map(p)) {
        free(p);
        return NULL;
    }
    denormals_off();
    for (int i = 1; i < workers; i++) {
        p->worker[i] = (Worker){.pool = p, .index = i};
        int err = pthread_create(&p->worker[i].thread, NULL, worker_main, &p->worker[i]);
        if (err != 0) {
            mg_pool_free(p);
            errno = err;
            return NULL;
        }
        p->started++;
    }
    return p;
}

void mg_pool_free(struct mg_pool *p)
{
    if (p == NULL)
        return;
    p->end = true;
    step_start(p);
    for (int i = 1; i <= p->started; i++)
        pthread_join(p->worker[i].thread, NULL);
    munmap(p->map, MG_SCRATCH_BYTES + HUGE);
    free(p);
}
