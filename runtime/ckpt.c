/* ckpt.c: checkpoints.
 *
 *     RUN/ckpt/latest                    one line: step-0000100
 *     RUN/ckpt/step-0000100/manifest.json
 *                           model-00001.safetensors ...
 *
 * A save writes everything into RUN/ckpt/.new-..., fsyncs files and folder, renames the folder,
 * then replaces `latest`, each with an fsync of the folder above. So a process killed anywhere
 * leaves the old checkpoint or the new one. The manifest is JSON of a fixed form, a tensor a line,
 * with the XXH3-128 of each tensor, of each file's header and of the manifest itself; a reader
 * accepts exactly what this file writes.
 *
 * Loading reads `latest`; if that is damaged or missing, the newest checkpoint that is whole.
 */
#include "run.h"
#include "tensor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FORMAT "megagen-checkpoint-1"
enum { NAME = 40, STEP_DIGITS = 7 };

/* A shard. */
typedef struct {
    char name[NAME];
    uint64_t bytes, head; /* of the file; of what stands before the data */
    char head_hash[33];
    int first, n; /* its tensors */
} Shard;

/* ---- folders --------------------------------------------------------------------------------- */

static void step_name(int64_t step, char name[NAME])
{
    snprintf(name, NAME, "step-%0*" PRId64, STEP_DIGITS, step);
}

/* The step of a folder name, -1 if it is none. */
static int64_t step_of(const char *name)
{
    char again[NAME];
    if (strncmp(name, "step-", 5) != 0 || strlen(name) >= NAME)
        return -1;
    int64_t step = strtoll(name + 5, NULL, 10);
    step_name(step, again);
    return strcmp(name, again) == 0 ? step : -1;
}

/* The largest step below `limit` that has a folder, -1 = none. */
static int64_t step_below(const char *ckpt, int64_t limit)
{
    int64_t best = -1;
    DIR *d = opendir(ckpt);
    if (d == NULL)
        return -1;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        int64_t s = step_of(e->d_name);
        if (s < limit && s > best)
            best = s;
    }
    closedir(d);
    return best;
}

static int64_t latest_read(const char *ckpt)
{
    char *path = mg_path(ckpt, "latest"), *text;
    size_t n;
    int64_t step = -1;
    if (mg_file_read(path, NAME, &text, &n) == MG_OK) {
        if (n > 0 && text[n - 1] == '\n')
            text[n - 1] = 0;
        step = step_of(text);
        free(text);
    }
    free(path);
    return step;
}

/* Removes a folder of plain files. What cannot be removed stays; the next sweep tries again. */
static void folder_remove(const char *dir)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char *path = mg_path(dir, e->d_name);
        if (e->d_name[0] != '.' || strncmp(e->d_name, ".manifest", 9) == 0)
            unlink(path);
        free(path);
    }
    closedir(d);
    rmdir(dir);
}

/* Takes a checkpoint's name away at once, then its files: no half a checkpoint keeps a good name.
 */
static void step_remove(const char *ckpt, int64_t step)
{
    char name[NAME], trash[NAME + 8];
    step_name(step, name);
    snprintf(trash, sizeof trash, ".old-%s", name);
    char *from = mg_path(ckpt, name), *to = mg_path(ckpt, trash);
    folder_remove(to);
    if (rename(from, to) == 0)
        folder_remove(to);
    free(from);
    free(to);
}

bool mg_ckpt_is_one(const char *path)
{
    char *manifest = mg_path(path, "manifest.json");
    bool is = access(manifest, F_OK) == 0;
    free(manifest);
    return is;
}

bool mg_ckpt_has(const char *run_dir, int64_t *step)
{
    char *ckpt = mg_path(run_dir, "ckpt");
    *step = latest_read(ckpt);
    if (*step < 0)
        *step = step_below(ckpt, INT64_MAX);
    free(ckpt);
    return *step >= 0;
}

/* ---- tensors of a checkpoint ----------------------------------------------------------------- */

static int saved_tensors(mg_run *r, mg_tensor **out, uint64_t *bytes)
{
    int n = 0;
    mg_tensor *t = calloc((size_t)r->m->nvar + 1, sizeof *t);
    if (t == NULL)
        mg_die(MG_NO_FIT, "no memory for the list of tensors");
    *bytes = 0;
    for (int32_t i = 0; i < r->m->nvar; i++)
        if (r->m->var[i].saved) {
            t[n] = mg_tensor_of(&r->c, &r->m->var[i]);
            *bytes += t[n++].bytes;
        }
    *out = t;
    return n;
}

/* Cuts the list into files of at most `limit` bytes, at least one tensor each. */
static int shards_cut(const mg_tensor *t, int n, uint64_t limit, Shard *s)
{
    int k = 0;
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        if (k == 0 || (s[k - 1].n > 0 && sum + t[i].bytes > limit)) {
            s[k] = (Shard){.first = i};
            snprintf(s[k].name, NAME, "model-%05d.safetensors", k + 1);
            k++;
            sum = 0;
        }
        s[k - 1].n++;
        sum += t[i].bytes;
    }
    return k;
}

/* ---- manifest -------------------------------------------------------------------------------- */

static void manifest_tensor(mg_text *m, const mg_tensor *t, int shard)
{
    mg_text_printf(m, "{\"path\": ");
    mg_json_str(m, t->name);
    mg_text_printf(m, ", \"dtype\": \"%s\", \"shape\": [", mg_dtype_of(t->dtype)->name);
    for (int k = 0; k < t->rank; k++)
        mg_text_printf(m, "%s%" PRId64, k > 0 ? ", " : "", t->dim[k]);
    mg_text_printf(
        m, "], \"file\": %d, \"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"xxh3\": \"%s\"}",
        shard, t->offset, t->bytes, t->hash);
}

static void manifest_text(const mg_run *r, const mg_tensor *t, const Shard *s, int shards,
                          mg_text *m)
{
    char hash[33];
    mg_text_printf(m, "{\n\"format\": \"%s\",\n\"model\": ", FORMAT);
    mg_json_str(m, r->m->name);
    mg_text_printf(m,
                   ",\n\"hash\": \"%s\",\n\"step\": %" PRId64 ",\n\"samples\": %" PRIu64
                   ",\n\"data_seed\": %" PRId64 ",\n",
                   r->m->hash, r->step, r->samples, mg_conf_int(&r->conf, "data.seed", 1));
    mg_text_printf(m, "\"files\": [\n");
    for (int k = 0; k < shards; k++)
        mg_text_printf(m,
                       "{\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"head\": %" PRIu64
                       ", \"xxh3\": \"%s\"}%s\n",
                       s[k].name, s[k].bytes, s[k].head, s[k].head_hash, k + 1 < shards ? "," : "");
    mg_text_printf(m, "],\n\"tensors\": [\n");
    for (int k = 0; k < shards; k++)
        for (int i = 0; i < s[k].n; i++) {
            manifest_tensor(m, &t[s[k].first + i], k);
            mg_text_printf(m, "%s\n", k + 1 == shards && i + 1 == s[k].n ? "" : ",");
        }
    mg_text_printf(m, "],\n");
    mg_hash_hex(m->p, m->n, hash);
    mg_text_printf(m, "\"xxh3\": \"%s\"\n}\n", hash);
}

/* ---- save ------------------------------------------------------------------------------------ */

static int room_check(const char *dir, uint64_t need)
{
    struct statvfs v;
    if (statvfs(dir, &v) != 0)
        return MG_OK;
    uint64_t have = (uint64_t)v.f_bavail * (uint64_t)v.f_frsize;
    need += need / 100 + (1 << 16);
    if (have >= need)
        return MG_OK;
    return mg_fail(MG_STORAGE,
                   "%s: a checkpoint needs %.1f MiB, %.1f MiB are free; the old one is intact", dir,
                   (double)need / 0x1p20, (double)have / 0x1p20);
}

/* Everything of the checkpoint into the new folder `dir`. */
static int folder_write(mg_run *r, const char *dir, mg_tensor *t, int n)
{
    uint64_t limit = mg_conf_size(&r->conf, "save.shard", (uint64_t)4 << 30);
    Shard *s = calloc((size_t)n + 1, sizeof *s);
    if (s == NULL)
        mg_die(MG_NO_FIT, "no memory for the list of files");
    int shards = shards_cut(t, n, limit, s), rc = MG_OK;
    for (int k = 0; k < shards && rc == MG_OK; k++) {
        char *path = mg_path(dir, s[k].name);
        rc = mg_tensor_write(path, t + s[k].first, s[k].n, &s[k].bytes, &s[k].head, s[k].head_hash);
        free(path);
    }
    mg_text m = {0};
    manifest_text(r, t, s, shards, &m);
    if (rc == MG_OK)
        rc = mg_file_replace(dir, "manifest.json", m.p, m.n);
    mg_text_free(&m);
    free(s);
    return rc;
}

/* Gives the finished folder its name and moves the pointer. */
static int folder_publish(const char *ckpt, const char *dir, int64_t step)
{
    char name[NAME];
    mg_text pointer = {0};
    step_name(step, name);
    char *final = mg_path(ckpt, name);
    int rc = MG_OK;
    if (access(final, F_OK) == 0)
        step_remove(ckpt, step); /* of a run that was resumed from an older step */
    if (rename(dir, final) != 0)
        rc = mg_fail(MG_STORAGE, "%s: rename: %s; the old checkpoint is intact", final,
                     strerror(errno));
    if (rc == MG_OK)
        rc = mg_dir_sync(ckpt);
    mg_text_printf(&pointer, "%s\n", name);
    if (rc == MG_OK)
        rc = mg_file_replace(ckpt, "latest", pointer.p, pointer.n);
    mg_text_free(&pointer);
    free(final);
    return rc;
}

static int manifest_load(mg_run *r, const char *dir, bool state, bool into);

/* Removes all but the newest save.keep up to the step of `r`, whose checkpoint must have been
 * verified. */
static void old_remove(const mg_run *r, const char *ckpt)
{
    int64_t keep = mg_conf_int(&r->conf, "save.keep", 3), step = r->step + 1;
    if (keep < 1)
        return;
    for (int64_t i = 0; i < keep && step >= 0; i++)
        step = step_below(ckpt, step);
    while (step > 0 && (step = step_below(ckpt, step)) >= 0)
        step_remove(ckpt, step);
}

/* Reads back what was just written; only then may older ones go. */
static int retain(mg_run *r, const char *ckpt)
{
    char name[NAME];
    step_name(r->step, name);
    char *dir = mg_path(ckpt, name);
    int rc = manifest_load(r, dir, true, false);
    free(dir);
    if (rc != MG_OK)
        return mg_fail(MG_STORAGE, "the checkpoint just written does not read back: %s",
                       mg_errmsg());
    old_remove(r, ckpt);
    return MG_OK;
}

void mg_ckpt_sweep(mg_run *r)
{
    char *ckpt = mg_path(r->log.dir, "ckpt");
    DIR *d = opendir(ckpt);
    if (d != NULL) {
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            char *path = mg_path(ckpt, e->d_name);
            if (strncmp(e->d_name, ".new-", 5) == 0 || strncmp(e->d_name, ".old-", 5) == 0)
                folder_remove(path);
            free(path);
        }
        closedir(d);
    }
    if (r->saved >= 0)
        old_remove(r, ckpt);
    free(ckpt);
}

int mg_ckpt_save(mg_run *r)
{
    char name[NAME], temp[NAME + 8];
    uint64_t bytes;
    if (r->saved == r->step)
        return MG_OK;
    MG_TRY(mg_log_sync(&r->log));
    step_name(r->step, name);
    snprintf(temp, sizeof temp, ".new-%s", name);
    char *ckpt = mg_path(r->log.dir, "ckpt"), *dir = mg_path(ckpt, temp);
    mg_tensor *t;
    int n = saved_tensors(r, &t, &bytes), rc = mg_mkdirs(ckpt);
    if (rc == MG_OK)
        rc = room_check(ckpt, bytes);
    if (rc == MG_OK) {
        folder_remove(dir);
        rc = mg_mkdirs(dir);
    }
    if (rc == MG_OK)
        rc = folder_write(r, dir, t, n);
    if (rc == MG_OK)
        rc = mg_dir_sync(dir);
    if (rc == MG_OK)
        rc = folder_publish(ckpt, dir, r->step);
    if (rc == MG_OK)
        rc = retain(r, ckpt);
    if (rc == MG_OK)
        r->saved = r->step;
    else
        folder_remove(dir);
    free(t);
    free(dir);
    free(ckpt);
    return rc;
}

/* ---- load ------------------------------------------------------------------------------------ */

/* A reader of the fixed form: each function takes exactly what was expected, or sets `bad`. */
typedef struct {
    const char *p;
    bool bad;
} Scan;

static void scan_word(Scan *s, const char *word)
{
    size_t n = strlen(word);
    if (!s->bad && strncmp(s->p, word, n) == 0)
        s->p += n;
    else
        s->bad = true;
}

static bool scan_maybe(Scan *s, const char *word)
{
    size_t n = strlen(word);
    if (s->bad || strncmp(s->p, word, n) != 0)
        return false;
    s->p += n;
    return true;
}

static uint64_t scan_number(Scan *s)
{
    char *end;
    if (s->bad || *s->p < '0' || *s->p > '9')
        s->bad = true;
    if (s->bad)
        return 0;
    errno = 0;
    uint64_t v = strtoull(s->p, &end, 10);
    s->bad = errno != 0;
    s->p = end;
    return v;
}

/* A string as mg_json_str wrote it, still escaped, with its quotes. */
static void scan_string(Scan *s, const char **from, size_t *n)
{
    *from = s->p;
    *n = 0;
    if (s->bad || *s->p != '"')
        s->bad = true;
    if (s->bad)
        return;
    const char *p = s->p + 1;
    while (*p != 0 && *p != '"' && *p != '\n')
        p += *p == '\\' && p[1] != 0 ? 2 : 1;
    s->bad = *p != '"';
    *n = (size_t)(p + 1 - s->p);
    s->p = p + 1;
}

static void scan_hash(Scan *s, char hash[33])
{
    const char *from;
    size_t n;
    scan_string(s, &from, &n);
    s->bad = s->bad || n != 34;
    if (!s->bad)
        memcpy(hash, from + 1, 32);
    hash[32] = 0;
}

/* One line of "tensors", for comparison with the variable it should be. */
typedef struct {
    const char *what; /* from "path" up to "file": path, dtype and shape as text */
    size_t n;
    uint64_t file, offset, bytes;
    char hash[33];
} Line;

typedef struct {
    int64_t step;
    uint64_t samples;
    int64_t data_seed;
    Shard *shard;
    Line *line;
    int shards, lines;
} Manifest;

static void scan_file(Scan *s, Shard *f)
{
    const char *from;
    size_t n;
    scan_word(s, "{\"name\": ");
    scan_string(s, &from, &n);
    s->bad =
        s->bad || n - 2 >= NAME || memchr(from, '/', n) != NULL || memchr(from, '\\', n) != NULL;
    if (!s->bad) {
        memcpy(f->name, from + 1, n - 2);
        f->name[n - 2] = 0;
    }
    scan_word(s, ", \"bytes\": ");
    f->bytes = scan_number(s);
    scan_word(s, ", \"head\": ");
    f->head = scan_number(s);
    scan_word(s, ", \"xxh3\": ");
    scan_hash(s, f->head_hash);
    scan_word(s, "}");
    s->bad = s->bad || f->head > f->bytes;
}

static void scan_tensor(Scan *s, Line *l)
{
    const char *from;
    size_t n;
    l->what = s->p;
    scan_word(s, "{\"path\": ");
    scan_string(s, &from, &n);
    scan_word(s, ", \"dtype\": ");
    scan_string(s, &from, &n);
    scan_word(s, ", \"shape\": [");
    while (!s->bad && *s->p != ']') {
        scan_number(s);
        scan_maybe(s, ", ");
    }
    scan_word(s, "], ");
    l->n = (size_t)(s->p - l->what);
    scan_word(s, "\"file\": ");
    l->file = scan_number(s);
    scan_word(s, ", \"offset\": ");
    l->offset = scan_number(s);
    scan_word(s, ", \"bytes\": ");
    l->bytes = scan_number(s);
    scan_word(s, ", \"xxh3\": ");
    scan_hash(s, l->hash);
    scan_word(s, "}");
}

static void scan_manifest(Scan *s, Manifest *m)
{
    const char *from;
    size_t n;
    scan_word(s, "{\n\"format\": \"" FORMAT "\",\n\"model\": ");
    scan_string(s, &from, &n);
    scan_word(s, ",\n\"hash\": ");
    scan_string(s, &from, &n);
    scan_word(s, ",\n\"step\": ");
    m->step = (int64_t)scan_number(s);
    scan_word(s, ",\n\"samples\": ");
    m->samples = scan_number(s);
    scan_word(s, ",\n\"data_seed\": ");
    m->data_seed = (int64_t)scan_number(s);
    scan_word(s, ",\n\"files\": [\n");
    while (!s->bad && *s->p == '{') {
        scan_file(s, &m->shard[m->shards++]);
        scan_maybe(s, ",");
        scan_word(s, "\n");
    }
    scan_word(s, "],\n\"tensors\": [\n");
    while (!s->bad && *s->p == '{') {
        scan_tensor(s, &m->line[m->lines++]);
        scan_maybe(s, ",");
        scan_word(s, "\n");
    }
    scan_word(s, "],\n\"xxh3\": ");
}

static int manifest_read(const char *text, size_t n, const char *path, Manifest *m)
{
    size_t rows = 1;
    char hash[33], kept[33];
    for (size_t i = 0; i < n; i++)
        rows += text[i] == '\n';
    *m = (Manifest){.shard = calloc(rows, sizeof *m->shard), .line = calloc(rows, sizeof *m->line)};
    if (m->shard == NULL || m->line == NULL)
        return mg_fail(MG_NO_FIT, "%s: no memory", path);
    Scan s = {.p = text};
    scan_manifest(&s, m);
    if (s.bad)
        return mg_fail(MG_INPUT, "%s: offset %td: not the form of a manifest", path, s.p - text);
    mg_hash_hex(text, (size_t)(s.p - strlen("\"xxh3\": ") - text), hash);
    scan_hash(&s, kept);
    scan_word(&s, "\n}\n");
    if (s.bad || s.p != text + n || strcmp(hash, kept) != 0)
        return mg_fail(MG_INPUT, "%s: its own checksum does not fit", path);
    return MG_OK;
}

static int pread_all(int fd, char *p, uint64_t n, uint64_t at, const char *path)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t k =
            pread(fd, p + done, n - done < (1u << 30) ? n - done : 1u << 30, (off_t)(at + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return mg_fail(MG_INPUT, "%s: offset %" PRIu64 ": %s", path, at + done,
                           k < 0 ? strerror(errno) : "ends");
        done += (uint64_t)k;
    }
    return MG_OK;
}

/* Size and header of a shard are what the manifest says. */
static int shard_open(const char *path, const Shard *s, int *fd)
{
    struct stat st;
    char hash[33];
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode))
        return mg_fail(MG_INPUT, "%s: %s", path,
                       *fd < 0 ? strerror(errno) : "is not a regular file");
    if ((uint64_t)st.st_size != s->bytes)
        return mg_fail(MG_INPUT, "%s: %lld bytes, the manifest says %" PRIu64, path,
                       (long long)st.st_size, s->bytes);
    char *head = malloc(s->head + 1);
    if (head == NULL)
        return mg_fail(MG_NO_FIT, "%s: no memory for a header of %" PRIu64 " bytes", path, s->head);
    int rc = pread_all(*fd, head, s->head, 0, path);
    mg_hash_hex(head, s->head, hash);
    free(head);
    if (rc == MG_OK && strcmp(hash, s->head_hash) != 0)
        rc = mg_fail(MG_INPUT, "%s: the checksum of its header does not fit", path);
    return rc;
}

/* Path, dtype and shape of a variable in the manifest's words. */
static bool line_is(const Line *l, const mg_tensor *t)
{
    mg_text m = {0};
    manifest_tensor(&m, t, 0);
    bool same = m.n > l->n && memcmp(m.p, l->what, l->n) == 0;
    mg_text_free(&m);
    return same && l->bytes == t->bytes;
}

/* The line that should be this variable's: the same text, else the same path for the message. */
static int line_find(const Manifest *m, const mg_tensor *t, const char *path, int hint,
                     const Line **out)
{
    mg_text name = {0};
    if (hint < m->lines && line_is(&m->line[hint], t)) {
        *out = &m->line[hint];
        return MG_OK;
    }
    mg_text_printf(&name, "{\"path\": ");
    mg_json_str(&name, t->name);
    mg_text_printf(&name, ", ");
    int rc = mg_fail(MG_INPUT, "%s: has no tensor '%s'", path, t->name);
    for (int i = 0; i < m->lines; i++) {
        const Line *l = &m->line[i];
        if (l->n < name.n || memcmp(l->what, name.p, name.n) != 0)
            continue;
        *out = l;
        rc = line_is(l, t)
                 ? MG_OK
                 : mg_fail(MG_INPUT,
                           "%s: tensor '%s' is %.*s...; the model's has %d dims, %s, %" PRIu64
                           " bytes",
                           path, t->name, (int)(l->n - name.n), l->what + name.n, t->rank,
                           mg_dtype_of(t->dtype)->name, t->bytes);
        break;
    }
    mg_text_free(&name);
    return rc;
}

/* Reads a tensor to `to` and compares its checksum. */
static int tensor_read(int fd, const Line *l, const char *path, const mg_tensor *t, void *to)
{
    char hash[33];
    MG_TRY(pread_all(fd, to, l->bytes, l->offset, path));
    mg_hash_hex(to, l->bytes, hash);
    if (strcmp(hash, l->hash) != 0)
        return mg_fail(MG_INPUT, "%s: tensor '%s': the checksum of its bytes does not fit", path,
                       t->name);
    return MG_OK;
}

/* All tensors of one shard. With `into` they go where they belong, else only their checksums are
 * seen. */
static int shard_load(const char *dir, const Manifest *m, int k, const mg_tensor *t,
                      const Line *const *line, int n, bool into)
{
    char *path = mg_path(dir, m->shard[k].name), *spare = NULL;
    int fd, rc = shard_open(path, &m->shard[k], &fd);
    uint64_t most = 0;
    for (int i = 0; i < n && !into; i++)
        most = t[i].bytes > most ? t[i].bytes : most;
    if (rc == MG_OK && !into && (spare = malloc(most + 1)) == NULL)
        rc = mg_fail(MG_NO_FIT, "no memory to verify a tensor of %" PRIu64 " bytes", most);
    for (int i = 0; i < n && rc == MG_OK; i++) {
        const Line *l = line[i];
        if (l->file != (uint64_t)k)
            continue;
        bool outside = l->offset < m->shard[k].head || l->bytes > m->shard[k].bytes ||
                       l->offset > m->shard[k].bytes - l->bytes;
        rc = outside ? mg_fail(MG_INPUT, "%s: tensor '%s' is said to lie outside", path, t[i].name)
                     : tensor_read(fd, l, path, &t[i], into ? t[i].data : spare);
    }
    if (fd >= 0)
        close(fd);
    free(spare);
    free(path);
    return rc;
}

static bool is_weight(const mg_run *r, const mg_tensor *t)
{
    for (int32_t i = 0; i < r->m->nvar; i++)
        if (r->m->var[i].path == t->name)
            return r->m->var[i].kind == MG_WEIGHT || r->m->var[i].kind == MG_MASTER;
    return false;
}

/* Loads a checkpoint folder, or with into = false only verifies it. */
static int manifest_load(mg_run *r, const char *dir, bool state, bool into)
{
    char *path = mg_path(dir, "manifest.json"), *text = NULL;
    size_t size = 0;
    uint64_t bytes;
    Manifest m = {0};
    mg_tensor *t;
    int n = saved_tensors(r, &t, &bytes), kept = 0;
    const Line **line = calloc((size_t)n + 1, sizeof *line);
    int rc = line == NULL ? mg_fail(MG_NO_FIT, "no memory")
                          : mg_file_read(path, (uint64_t)1 << 30, &text, &size);
    if (rc == MG_OK)
        rc = manifest_read(text, size, path, &m);
    for (int i = 0; i < n && rc == MG_OK; i++)
        if (state || is_weight(r, &t[i])) {
            rc = line_find(&m, &t[i], path, i, &line[kept]);
            t[kept++] = t[i];
        }
    if (rc == MG_OK && state && m.lines != n)
        rc = mg_fail(MG_INPUT, "%s: has %d tensors, the model saves %d", path, m.lines, n);
    for (int i = 0; i < kept && rc == MG_OK; i++)
        if (line[i]->file >= (uint64_t)m.shards)
            rc = mg_fail(MG_INPUT, "%s: tensor '%s' is said to lie in file %" PRIu64, path,
                         t[i].name, line[i]->file);
    for (int k = 0; k < m.shards && rc == MG_OK; k++)
        rc = shard_load(dir, &m, k, t, line, kept, into);
    if (rc == MG_OK && into)
        mg_init_rounded(&r->c);
    if (rc == MG_OK && into && state) {
        r->step = m.step;
        r->samples = m.samples;
        if (r->train != NULL && m.data_seed != mg_conf_int(&r->conf, "data.seed", 1))
            mg_log_line(&r->log,
                        "note: data.seed was %" PRId64 " in %s; rows come in another order now",
                        m.data_seed, dir);
    }
    free(m.shard);
    free(m.line);
    free(line);
    free(text);
    free(path);
    free(t);
    return rc;
}

int mg_ckpt_load(mg_run *r, const char *path, bool state, char **dir)
{
    if (mg_ckpt_is_one(path)) {
        *dir = strdup(path);
        return manifest_load(r, path, state, true);
    }
    char *ckpt = mg_path(path, "ckpt"), name[NAME];
    int64_t step = latest_read(ckpt), below = INT64_MAX;
    int rc = mg_fail(MG_INPUT, "%s: has no checkpoint", path);
    while (step >= 0 || (step = step_below(ckpt, below)) >= 0) {
        step_name(step, name);
        *dir = mg_path(ckpt, name);
        rc = manifest_load(r, *dir, state, true);
        if (rc == MG_OK || rc != MG_INPUT)
            break;
        fprintf(stderr, "warning: %s\n", mg_errmsg());
        free(*dir);
        *dir = NULL;
        below = below < step ? below : step;
        step = -1;
    }
    free(ckpt);
    return rc;
}

/* ---- dumps ----------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    bool (*wants)(const mg_run *r, int32_t var); /* NULL: io instead of variables */
} Dump;

static bool wants_grads(const mg_run *r, int32_t i)
{
    return r->m->var[i].kind == MG_ACCUM && r->m->var[i].of >= 0;
}
static bool wants_weights(const mg_run *r, int32_t i)
{
    return r->m->var[i].kind == MG_WEIGHT;
}

static const Dump dumps[] = {{"grads", wants_grads}, {"weights", wants_weights}, {"marked", NULL}};
enum { DUMPS = sizeof dumps / sizeof *dumps };

/* Gradients go under the name of their weight. */
static int dump_vars(mg_run *r, const Dump *d, mg_tensor *t)
{
    int n = 0;
    for (int32_t i = 0; i < r->m->nvar; i++) {
        const mg_var *v = &r->m->var[i];
        if (!d->wants(r, i))
            continue;
        t[n] = mg_tensor_of(&r->c, v);
        t[n++].name = v->of >= 0 ? r->m->var[v->of].path : v->path;
    }
    return n;
}

static int dump_io(mg_run *r, mg_tensor *t)
{
    int n = 0;
    for (int32_t i = 0; i < r->m->nio; i++) {
        const mg_io *io = &r->m->io[i];
        uint64_t elems = 1;
        for (int k = 0; k < io->rank; k++)
            elems *= (uint64_t)io->dim[k];
        if (io != r->logits)
            t[n++] = (mg_tensor){.name = io->name,
                                 .dtype = io->dtype,
                                 .rank = io->rank,
                                 .dim = io->dim,
                                 .data = r->c.mem + io->off,
                                 .bytes = elems * (uint64_t)mg_dtype_of(io->dtype)->bytes};
    }
    return n;
}

int mg_dump(mg_run *r, const char *what)
{
    const char *names[DUMPS];
    for (int i = 0; i < DUMPS; i++) {
        names[i] = dumps[i].name;
        if (strcmp(names[i], what) != 0)
            continue;
        mg_tensor *t = calloc((size_t)(r->m->nvar + r->m->nio) + 1, sizeof *t);
        if (t == NULL)
            return mg_fail(MG_NO_FIT, "no memory for a dump");
        uint64_t bytes, head;
        char hash[33];
        mg_text path = {0};
        int n = dumps[i].wants != NULL ? dump_vars(r, &dumps[i], t) : dump_io(r, t);
        mg_text_printf(&path, "%s/%s-%" PRId64 ".safetensors",
                       r->log.dir != NULL ? r->log.dir : ".", what, r->step + 1);
        int rc = mg_tensor_write(path.p, t, n, &bytes, &head, hash);
        if (rc == MG_OK)
            mg_log_line(&r->log, "dump: %s, %d tensors, %" PRIu64 " bytes", path.p, n, bytes);
        mg_text_free(&path);
        free(t);
        return rc;
    }
    const char *near = mg_nearest(what, names, DUMPS);
    return mg_fail(MG_USAGE, "dump: unknown '%s'%s%s%s", what,
                   near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                   near != NULL ? "'?" : "");
}
