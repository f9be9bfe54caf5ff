/* pool.h: the worker threads of a rank, for the runtime. Kernels use mg_par and mg_scratch of mg.h.
 *
 * A pool belongs to one rank: only the thread that made it (or that the rank runs on) may call
 * mg_par on it, never from inside a part. Different pools are independent, so ranks can be threads.
 */
#ifndef MG_POOL_H
#define MG_POOL_H

/* Number of workers this process should use: MG_THREADS if set (1..1024), else the CPUs of the
 * affinity mask, at most the cgroup's CPU quota rounded up. At least 1. */
int mg_pool_size(void);

/* A pool with `workers` workers; the calling thread is worker 0, so workers - 1 threads are
 * started. Flushes denormals to zero (FTZ, DAZ) in every worker and in the calling thread. NULL
 * when the system gives no memory or no thread; errno says why. Freed by mg_pool_free. */
struct mg_pool *mg_pool_new(int workers);

int mg_pool_workers(const struct mg_pool *p);

/* Ends and joins the workers. NULL is allowed. */
void mg_pool_free(struct mg_pool *p);

#endif
