/* log.c: see log.h. */
#include "log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- run folder ------------------------------------------------------------------------------ */

/* Folders are named by the model; its name may hold anything. */
static void plain_name(const char *name, mg_text *t)
{
    for (; *name != 0; name++)
        mg_text_printf(t, "%c",
                       strchr("/\\ \t\n", *name) != NULL || (*name == '.' && t->n == 0) ? '-'
                                                                                        : *name);
}

static long newest_number(const char *plain)
{
    long best = 0;
    size_t n = strlen(plain);
    DIR *d = opendir("runs");
    if (d == NULL)
        return 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char *end;
        if (strncmp(e->d_name, plain, n) != 0 || e->d_name[n] != '-')
            continue;
        long k = strtol(e->d_name + n + 1, &end, 10);
        if (*end == 0 && k > best)
            best = k;
    }
    closedir(d);
    return best;
}

char *mg_log_newest(const char *name)
{
    mg_text plain = {0}, dir = {0};
    plain_name(name, &plain);
    long k = newest_number(plain.p);
    if (k > 0)
        mg_text_printf(&dir, "runs/%s-%ld", plain.p, k);
    mg_text_free(&plain);
    return dir.p;
}

/* *out stays NULL where nothing can be written: the caller goes on without files. */
static int next_folder(const char *name, char **out)
{
    mg_text plain = {0}, dir = {0};
    int err = mkdir("runs", 0777) == 0 || errno == EEXIST ? EEXIST : errno;
    plain_name(name, &plain);
    for (long k = newest_number(plain.p) + 1; err == EEXIST; k++) {
        dir.n = 0;
        mg_text_printf(&dir, "runs/%s-%ld", plain.p, k);
        err = mkdir(dir.p, 0777) == 0 ? 0 : errno;
    }
    mg_text_free(&plain);
    if (err == 0) {
        *out = dir.p;
        return MG_OK;
    }
    mg_text_free(&dir);
    *out = NULL;
    return err == EROFS || err == EACCES || err == EPERM
               ? MG_OK
               : mg_fail(MG_STORAGE, "runs: cannot make a run folder: %s", strerror(err));
}

/* The lock is the kernel's and ends with the process; the text in it only says who holds it. */
static int folder_lock(mg_log *l)
{
    char *path = mg_path(l->dir, "lock"), holder[256] = "";
    int rc = MG_OK;
    l->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (l->lock < 0)
        rc = mg_fail(MG_STORAGE, "%s: %s", path, strerror(errno));
    else if (flock(l->lock, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = read(l->lock, holder, sizeof holder - 1);
        holder[n > 0 ? strcspn(holder, "\n") : 0] = 0;
        rc = mg_fail(MG_HELD, "%s is held by another job (%s)", l->dir,
                     *holder != 0 ? holder : "unknown");
    }
    free(path);
    if (rc != MG_OK)
        return rc;
    char host[128] = "", when[64] = "";
    time_t now = time(NULL);
    struct tm tm;
    gethostname(host, sizeof host - 1);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    int n =
        snprintf(holder, sizeof holder, "host %s, pid %ld, start %s\n", host, (long)getpid(), when);
    if (ftruncate(l->lock, 0) != 0 || pwrite(l->lock, holder, (size_t)n, 0) != n)
        return mg_fail(MG_STORAGE, "%s/lock: %s", l->dir, strerror(errno));
    return MG_OK;
}

/* Keeps the whole lines up to `step`. */
static int metrics_cut(const char *dir, int64_t step)
{
    char *path = mg_path(dir, "metrics.jsonl"), *text;
    size_t n;
    if (access(path, F_OK) != 0) {
        free(path);
        return MG_OK;
    }
    int rc = mg_file_read(path, UINT64_MAX, &text, &n);
    free(path);
    MG_TRY(rc);
    size_t kept = 0;
    for (char *p = text, *end; (end = strchr(p, '\n')) != NULL; p = end + 1) {
        bool keep = strncmp(p, "{\"step\":", 8) == 0 && strtoll(p + 8, NULL, 10) <= step;
        if (!keep)
            break;
        kept = (size_t)(end + 1 - text);
    }
    rc = kept == n ? MG_OK : mg_file_replace(dir, "metrics.jsonl", text, kept);
    free(text);
    return rc;
}

void mg_log_start(mg_log *l, bool quiet)
{
    *l = (mg_log){.lock = -1, .metrics = -1, .quiet = quiet};
    l->tty = isatty(STDOUT_FILENO) == 1;
}

int mg_log_open(mg_log *l, const char *dir, const char *name, int64_t step)
{
    if (*dir == 0) {
        MG_TRY(next_folder(name, &l->dir));
        if (l->dir == NULL) {
            mg_log_line(l, "note: this folder is read-only: nothing is logged or saved; out=DIR "
                           "names another");
            return MG_OK;
        }
    }
    if (*dir != 0 && (l->dir = strdup(dir)) == NULL)
        mg_die(MG_NO_FIT, "no memory");
    MG_TRY(mg_mkdirs(l->dir));
    MG_TRY(folder_lock(l));
    MG_TRY(metrics_cut(l->dir, step));
    char *metrics = mg_path(l->dir, "metrics.jsonl"), *text = mg_path(l->dir, "train.log");
    l->metrics = open(metrics, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    l->text = fopen(text, "ae");
    int rc = l->metrics < 0 || l->text == NULL
                 ? mg_fail(MG_STORAGE, "%s: %s", l->dir, strerror(errno))
                 : MG_OK;
    free(metrics);
    free(text);
    return rc;
}

void mg_log_close(mg_log *l)
{
    if (l->drawn)
        printf("\n");
    fflush(stdout);
    if (l->text != NULL)
        fclose(l->text);
    if (l->metrics >= 0)
        close(l->metrics);
    if (l->lock >= 0)
        close(l->lock);
    free(l->dir);
    *l = (mg_log){.lock = -1, .metrics = -1};
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void wipe(mg_log *l)
{
    if (l->drawn)
        printf("\r\033[K");
    l->drawn = false;
}

void mg_log_line(mg_log *l, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    wipe(l);
    vprintf(fmt, ap);
    putchar('\n');
    fflush(stdout);
    if (l->text != NULL) {
        vfprintf(l->text, fmt, again);
        fputc('\n', l->text);
        fflush(l->text);
    }
    va_end(again);
    va_end(ap);
}

const char *mg_span(double s, char buf[32])
{
    if (!(s < 1e9))
        snprintf(buf, 32, "-");
    else if (s >= 3600)
        snprintf(buf, 32, "%.0fh%02dm", floor(s / 3600), (int)(fmod(s, 3600) / 60));
    else if (s >= 60)
        snprintf(buf, 32, "%dm%02ds", (int)(s / 60), (int)fmod(s, 60));
    else if (s >= 1)
        snprintf(buf, 32, s >= 10 ? "%.0fs" : "%.1fs", s);
    else
        snprintf(buf, 32, s >= 0.01 ? "%.0fms" : "%.1fms", s * 1e3);
    return buf;
}

static void step_text(const mg_progress *p, mg_text *t)
{
    char eta[32];
    mg_text_printf(t, "step %" PRId64 "/%" PRId64 "  loss %.4f  gnorm %.3f  lr %.2e  %.0f tok/s",
                   p->step, p->steps, p->loss, p->gnorm, p->lr, p->rate);
    if (p->step < p->steps)
        mg_text_printf(t, "  eta %s", mg_span((double)(p->steps - p->step) * p->seconds, eta));
}

static void redraw(mg_log *l, const mg_text *line)
{
    double now = mg_now();
    struct winsize w = {0};
    if (now - l->drawn_at < 0.25)
        return;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col < 2)
        w.ws_col = 80;
    printf("\r%.*s\033[K", (int)w.ws_col - 1, line->p);
    fflush(stdout);
    l->drawn = true;
    l->drawn_at = now;
}

static void step_json(const mg_progress *p, mg_text *t)
{
    mg_text_printf(t, "{\"step\":%" PRId64 ",\"loss\":", p->step);
    mg_json_num(t, p->loss);
    mg_text_printf(t, ",\"gnorm\":");
    mg_json_num(t, p->gnorm);
    mg_text_printf(t, ",\"lr\":");
    mg_json_num(t, p->lr);
    mg_text_printf(t, ",\"wd\":");
    mg_json_num(t, p->wd);
    mg_text_printf(
        t, ",\"targets\":%" PRId64 ",\"samples\":%" PRIu64 ",\"tokens_per_s\":%.0f,\"ms\":%.3f}",
        p->targets, p->samples, p->rate, p->seconds * 1e3);
}

int mg_log_step(mg_log *l, const mg_progress *p, bool record)
{
    mg_text line = {0}, json = {0};
    step_text(p, &line);
    int rc = MG_OK;
    if (record) {
        step_json(p, &json);
        rc = mg_log_metric(l, &json);
    }
    if (l->tty && !l->quiet)
        redraw(l, &line);
    if (record && !l->tty && !l->quiet) {
        printf("%s\n", line.p);
        fflush(stdout);
    }
    if (record && l->text != NULL) {
        fprintf(l->text, "%s\n", line.p);
        fflush(l->text);
    }
    mg_text_free(&line);
    mg_text_free(&json);
    return rc;
}

int mg_log_metric(mg_log *l, const mg_text *line)
{
    if (l->metrics < 0)
        return MG_OK;
    mg_text t = {0};
    mg_text_printf(&t, "%s\n", line->p);
    int rc = mg_fd_write(l->metrics, t.p, t.n, "metrics.jsonl");
    mg_text_free(&t);
    return rc;
}

int mg_log_sync(mg_log *l)
{
    if (l->metrics >= 0 && fsync(l->metrics) != 0)
        return mg_fail(MG_STORAGE, "%s/metrics.jsonl: fsync: %s", l->dir, strerror(errno));
    return MG_OK;
}
