/* fault.c: an LD_PRELOAD library that breaks the process at its Nth file operation.
 *
 *     FAULT_AT=N              which operation, from 1; 0 = none, only count
 *     FAULT_HOW=kill          the process is killed there; a write is done by half before
 *     FAULT_HOW=EIO | ENOSPC  the operation fails, and every later one of the same kind if
 * FAULT_STAY is set FAULT_COUNT=FILE        the number of operations is written there at the end
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int count, broken; /* operations so far; a fault was given */

static int env_number(const char *name)
{
    const char *s = getenv(name);
    return s != NULL ? atoi(s) : 0;
}

static void killed(void)
{
    syscall(SYS_kill, getpid(), SIGKILL);
}

/* Whether this operation fails; does not come back when it is to be killed. */
static int fault(void)
{
    const char *how = getenv("FAULT_HOW");
    int at = env_number("FAULT_AT"),
        now = ++count == at || (broken && env_number("FAULT_STAY") && count > at);
    if (at == 0 || !now || how == NULL)
        return 0;
    broken = 1;
    if (strcmp(how, "kill") == 0)
        killed();
    errno = strcmp(how, "ENOSPC") == 0 ? ENOSPC : EIO;
    return 1;
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAULT_COUNT");
    FILE *f = path != NULL ? fopen(path, "w") : NULL;
    if (f != NULL) {
        fprintf(f, "%d\n", count);
        fclose(f);
    }
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *p, size_t n)
{
    const char *how = getenv("FAULT_HOW");
    if (fd <= 2)
        return NEXT(write)(fd, p, n);
    if (count + 1 == env_number("FAULT_AT") && how != NULL && strcmp(how, "kill") == 0 && n > 1)
        NEXT(write)(fd, p, n / 2);
    return fault() ? -1 : NEXT(write)(fd, p, n);
}
int fsync(int fd)
{
    return fault() ? -1 : NEXT(fsync)(fd);
}
int rename(const char *a, const char *b)
{
    return fault() ? -1 : NEXT(rename)(a, b);
}
int mkdir(const char *a, mode_t m)
{
    return fault() ? -1 : NEXT(mkdir)(a, m);
}
int unlink(const char *a)
{
    return fault() ? -1 : NEXT(unlink)(a);
}
int rmdir(const char *a)
{
    return fault() ? -1 : NEXT(rmdir)(a);
}
int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return (flags & O_ACCMODE) != O_RDONLY && fault() ? -1 : NEXT(open)(path, flags, mode);
}
