/* base.c: errors, text, files, element types and the arena. See base.h. */
#include "base.h"
#include "conf.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

const mg_exit_row mg_exit_table[] = {
    {MG_OK, "done", ""},
    {MG_BAD, "the thing checked is bad", "no"},
    {MG_USAGE, "usage: unknown verb, flag or key; compile-time key at run time", "no"},
    {MG_ENVIRONMENT, "environment: compiler, library or CPU feature missing or too old", "no"},
    {MG_COMPILE, "generated code did not compile", "no"},
    {MG_INPUT, "input unreadable or inconsistent: data, checkpoint", "no"},
    {MG_NO_FIT, "does not fit into memory", "no"},
    {MG_STORAGE, "storage failed; the old checkpoint is intact", "after space is freed"},
    {MG_HELD, "output folder held by another job", "later"},
    {MG_NONFINITE, "loss or gradient is not finite", "no"},
    {MG_HANG, "hang", "yes"},
    {MG_PEER, "a peer died", "yes"},
    {MG_HARDWARE, "suspected hardware corruption", "yes, elsewhere"},
    {MG_INTERNAL, "internal error", "no"},
    {MG_PREEMPTED, "preempted, state saved", "yes"},
    {MG_UNSAVED, "preempted, state could not be saved", "yes"},
    {MG_INTERRUPTED, "interrupted by Ctrl-C after a save", "yes"},
    {0, NULL, NULL},
};

/* One message a thread, since ranks can be threads. */
static _Thread_local char last_error[1024];

int mg_fail(int code, const char *fmt, ...)
{
    char text[sizeof last_error]; /* an argument may be the message before */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(last_error, text, sizeof text);
    return code;
}

const char *mg_errmsg(void)
{
    return last_error;
}

int mg_trace(int rc, const char *file, int line)
{
    if (getenv("MG_TRACE") != NULL)
        fprintf(stderr, "%s:%d: %d\n", file, line, rc);
    return rc;
}

void mg_die(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("error: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    _exit(code);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void text_room(mg_text *t, size_t n)
{
    if (t->cap - t->n > n)
        return;
    size_t cap = t->cap * 2 > t->n + n + 64 ? t->cap * 2 : t->n + n + 64;
    char *p = realloc(t->p, cap);
    if (p == NULL)
        mg_die(MG_NO_FIT, "no memory for a text of %zu bytes", cap);
    t->p = p;
    t->cap = cap;
}

void mg_text_add(mg_text *t, const void *p, size_t n)
{
    text_room(t, n);
    if (n > 0)
        memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = 0;
}

void mg_text_printf(mg_text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    text_room(t, (size_t)n + 1);
    vsnprintf(t->p + t->n, (size_t)n + 1, fmt, again);
    va_end(again);
    t->n += (size_t)n;
}

void mg_text_free(mg_text *t)
{
    free(t->p);
    *t = (mg_text){0};
}

int mg_utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    static const struct {
        unsigned char mask, lead;
        int n;
        uint32_t least;
    } form[] = {
        {0x80, 0, 1, 0}, {0xe0, 0xc0, 2, 0x80}, {0xf0, 0xe0, 3, 0x800}, {0xf8, 0xf0, 4, 0x10000}};
    for (size_t f = 0; f < 4; f++) {
        if ((s[0] & form[f].mask) != form[f].lead)
            continue;
        uint32_t c = s[0] & (uint32_t)(unsigned char)~form[f].mask;
        for (int i = 1; i < form[f].n; i++) {
            if ((s[i] & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (s[i] & 0x3fu);
        }
        bool bad = c < form[f].least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000);
        return bad ? 0 : form[f].n;
    }
    return 0;
}

void mg_json_str(mg_text *t, const char *s)
{
    mg_text_add(t, "\"", 1);
    while (*s != 0) {
        int n = mg_utf8_length(s);
        if (n == 0)
            mg_text_add(t, "\xef\xbf\xbd", 3);
        else if (*s == '"' || *s == '\\')
            mg_text_printf(t, "\\%c", *s);
        else if ((unsigned char)*s < 0x20 || *s == 0x7f)
            mg_text_printf(t, "\\u%04x", (unsigned)*s);
        else
            mg_text_add(t, s, (size_t)n);
        s += n > 0 ? n : 1;
    }
    mg_text_add(t, "\"", 1);
}

void mg_json_num(mg_text *t, double v)
{
    char s[32] = "null";
    for (int digits = 6; isfinite(v) && digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (strtod(s, NULL) == v)
            break;
    }
    mg_text_printf(t, "%s", s);
}

/* Edits between two words: insert, delete, replace, swap of neighbours counts as 2. */
static int word_distance(const char *a, const char *b)
{
    int row[65], na = (int)strlen(a), nb = (int)strlen(b);
    if (na > 64 || nb > 64)
        return 64;
    for (int j = 0; j <= nb; j++)
        row[j] = j;
    for (int i = 1; i <= na; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int change = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            int best = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            row[j] = change < best ? change : best;
        }
    }
    return row[nb];
}

const char *mg_nearest(const char *word, const char *const *names, int n)
{
    const char *best = NULL;
    int least = (int)strlen(word) / 3 + 1;
    for (int i = 0; i < n; i++) {
        const char *tail = strrchr(names[i], '.');
        int d = word_distance(word, names[i]);
        if (tail != NULL && strchr(word, '.') == NULL && word_distance(word, tail + 1) < d)
            d = word_distance(word, tail + 1);
        if (d < least || (d == least && best == NULL)) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

double mg_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- files ----------------------------------------------------------------------------------- */

char *mg_path(const char *dir, const char *name)
{
    mg_text t = {0};
    size_t n = strlen(dir);
    mg_text_printf(&t, "%s%s%s", dir, n == 0 || dir[n - 1] == '/' ? "" : "/", name);
    return t.p;
}

void mg_std_open(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            _exit(MG_ENVIRONMENT); /* nowhere to say why */
}

int mg_mkdirs(const char *dir)
{
    mg_text t = {0};
    mg_text_add(&t, dir, strlen(dir));
    int rc = MG_OK;
    for (size_t i = 1; i <= t.n && rc == MG_OK; i++) {
        if (t.p[i] != '/' && t.p[i] != 0)
            continue;
        char kept = t.p[i];
        t.p[i] = 0;
        if (mkdir(t.p, 0777) != 0 && errno != EEXIST)
            rc = mg_fail(MG_STORAGE, "%s: cannot make the folder: %s", t.p, strerror(errno));
        t.p[i] = kept;
    }
    struct stat st;
    if (rc == MG_OK && (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)))
        rc = mg_fail(MG_STORAGE, "%s: is not a folder", dir);
    mg_text_free(&t);
    return rc;
}

static int fd_read(int fd, char *p, size_t n, const char *path)
{
    for (size_t have = 0; have < n;) {
        ssize_t k = read(fd, p + have, n - have);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return mg_fail(MG_INPUT, "%s: %s", path, strerror(errno));
        if (k == 0)
            return mg_fail(MG_INPUT, "%s: ends at byte %zu of %zu", path, have, n);
        have += (size_t)k;
    }
    return MG_OK;
}

int mg_file_read(const char *path, uint64_t limit, char **text, size_t *n)
{
    *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mg_fail(MG_INPUT, "%s: %s", path, strerror(errno));
    struct stat st;
    int rc = MG_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = mg_fail(MG_INPUT, "%s: is not a regular file", path);
    else if ((uint64_t)st.st_size > limit)
        rc = mg_fail(MG_INPUT, "%s: %lld bytes, more than the %llu allowed here", path,
                     (long long)st.st_size, (unsigned long long)limit);
    if (rc == MG_OK) {
        *n = (size_t)st.st_size;
        *text = malloc(*n + 1);
        rc = *text == NULL ? mg_fail(MG_NO_FIT, "%s: no memory for %zu bytes", path, *n)
                           : fd_read(fd, *text, *n, path);
    }
    close(fd);
    if (rc != MG_OK) {
        free(*text);
        *text = NULL;
        return rc;
    }
    (*text)[*n] = 0;
    return MG_OK;
}

int mg_fd_write(int fd, const void *p, size_t n, const char *path)
{
    for (size_t done = 0; done < n;) {
        size_t piece = n - done < (1u << 30) ? n - done : 1u << 30;
        ssize_t k = write(fd, (const char *)p + done, piece);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return mg_fail(MG_STORAGE, "%s: write: %s", path, k < 0 ? strerror(errno) : "no room");
        done += (size_t)k;
    }
    return MG_OK;
}

int mg_dir_sync(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return mg_fail(MG_STORAGE, "%s: %s", dir, strerror(errno));
    int rc = fsync(fd) == 0 ? MG_OK : mg_fail(MG_STORAGE, "%s: fsync: %s", dir, strerror(errno));
    close(fd);
    return rc;
}

int mg_file_replace(const char *dir, const char *name, const char *text, size_t n)
{
    mg_text temp = {0};
    mg_text_printf(&temp, "%s/.%s.new", dir, name);
    char *path = mg_path(dir, name);
    int rc = MG_OK, fd = open(temp.p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        rc = mg_fail(MG_STORAGE, "%s: %s", temp.p, strerror(errno));
    if (rc == MG_OK)
        rc = mg_fd_write(fd, text, n, temp.p);
    if (rc == MG_OK && fsync(fd) != 0)
        rc = mg_fail(MG_STORAGE, "%s: fsync: %s", temp.p, strerror(errno));
    if (fd >= 0 && close(fd) != 0 && rc == MG_OK)
        rc = mg_fail(MG_STORAGE, "%s: close: %s", temp.p, strerror(errno));
    if (rc == MG_OK && rename(temp.p, path) != 0)
        rc = mg_fail(MG_STORAGE, "%s: rename: %s", path, strerror(errno));
    if (rc == MG_OK)
        rc = mg_dir_sync(dir);
    else if (fd >= 0)
        unlink(temp.p);
    mg_text_free(&temp);
    free(path);
    return rc;
}

/* ---- element types --------------------------------------------------------------------------- */

static const mg_dtype_row dtype_table[] = {
    [MG_NONE] = {"", 0},        [MG_F] = {"", 0},           [MG_F64] = {"F64", 8},
    [MG_F32] = {"F32", 4},      [MG_BF16] = {"BF16", 2},    [MG_F16] = {"F16", 2},
    [MG_E4M3] = {"F8_E4M3", 1}, [MG_E5M2] = {"F8_E5M2", 1}, [MG_I64] = {"I64", 8},
    [MG_I32] = {"I32", 4},      [MG_U32] = {"U32", 4},      [MG_U16] = {"U16", 2},
    [MG_U8] = {"U8", 1},        [MG_BOOL] = {"BOOL", 1},
};

const mg_dtype_row *mg_dtype_of(unsigned dtype)
{
    return &dtype_table[dtype < sizeof dtype_table / sizeof *dtype_table ? dtype : MG_NONE];
}

static uint16_t bf16_of(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    if (v != v)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float bf16_to(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float v;
    memcpy(&v, &u, 4);
    return v;
}

double mg_elem_get(unsigned dtype, const void *p, uint64_t i)
{
    switch (dtype) {
    case MG_F64:
        return ((const double *)p)[i];
    case MG_F32:
        return (double)((const float *)p)[i];
    case MG_BF16:
        return (double)bf16_to(((const uint16_t *)p)[i]);
    case MG_I32:
        return ((const int32_t *)p)[i];
    case MG_I64:
        return (double)((const int64_t *)p)[i];
    default:
        mg_die(MG_INTERNAL, "no reader for elements of type %u", dtype);
    }
}

void mg_elem_set(unsigned dtype, void *p, uint64_t i, double v)
{
    switch (dtype) {
    case MG_F64:
        ((double *)p)[i] = v;
        return;
    case MG_F32:
        ((float *)p)[i] = (float)v;
        return;
    case MG_BF16:
        ((uint16_t *)p)[i] = bf16_of((float)v);
        return;
    case MG_I32:
        ((int32_t *)p)[i] = (int32_t)v;
        return;
    case MG_I64:
        ((int64_t *)p)[i] = (int64_t)v;
        return;
    default:
        mg_die(MG_INTERNAL, "no writer for elements of type %u", dtype);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* First number of a file that stands behind `label` (empty: at the start); 0 if there is none. */
static uint64_t number_in(const char *path, const char *label)
{
    char line[256];
    unsigned long long v = 0;
    size_t n = strlen(label);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    while (v == 0 && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, label, n) == 0)
            v = strtoull(line + n, NULL, 10);
    fclose(f);
    return v;
}

uint64_t mg_memory_free(void)
{
    static const char *const group[][2] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
         "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
    };
    uint64_t have = number_in("/proc/meminfo", "MemAvailable:") << 10;
    const char *wish = getenv("MG_MEMORY");
    double most;
    if (wish != NULL && mg_parse_size(wish, &most) && (have == 0 || most < (double)have))
        have = (uint64_t)most;
    for (size_t i = 0; i < 2; i++) {
        uint64_t limit = number_in(group[i][0], ""), used = number_in(group[i][1], "");
        if (limit > used && (have == 0 || limit - used < have))
            have = limit - used;
    }
    return have;
}

int mg_arena_map(uint64_t bytes, char **mem)
{
    uint64_t have = mg_memory_free();
    if (have > 0 && bytes > have)
        return mg_fail(MG_NO_FIT, "the model needs %.2f GiB of memory, %.2f GiB are free",
                       (double)bytes / 0x1p30, (double)have / 0x1p30);
    char *p = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return mg_fail(MG_NO_FIT, "the model needs %.2f GiB of memory: %s", (double)bytes / 0x1p30,
                       strerror(errno));
    uintptr_t head = (HUGE_PAGE - ((uintptr_t)p & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    uint64_t pages = (bytes + 4095) & ~(uint64_t)4095;
    if (head > 0)
        munmap(p, head);
    if (HUGE_PAGE - head > 0 && pages < bytes + HUGE_PAGE - head)
        munmap(p + head + pages, bytes + HUGE_PAGE - head - pages);
    *mem = p + head;
    madvise(*mem, pages, MADV_HUGEPAGE); /* a wish: without it only speed is lost */
    return MG_OK;
}

void mg_arena_unmap(char *mem, uint64_t bytes)
{
    if (mem != NULL)
        munmap(mem, (bytes + 4095) & ~(uint64_t)4095);
}

void mg_poison(mg_ctx *c, mg_region_kind region)
{
    const mg_region *r = &c->model->region[region];
    if (region != MG_GRADS) {
        memset(c->mem + r->off, 0xff, r->bytes);
        return;
    }
    for (int i = 0; i < c->model->nvar; i++) {
        const mg_var *v = &c->model->var[i];
        if (v->kind == MG_ACCUM)
            memset(c->mem + v->off, 0xff, v->elems * (uint64_t)mg_dtype_of(v->dtype)->bytes);
    }
}
