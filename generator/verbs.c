/* verbs.c: the verbs that look instead of compile: new, doctor.
 *
 * Each prints to stdout, one fact a line, and returns an exit code of the table in README.md.
 */
#include "megagen.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- new: a commented spec to start from ----------------------------------------------------- */

static bool name_ok(const char *s)
{
    for (const char *p = s; *p; p++) {
        bool ok = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                  (*p >= '0' && *p <= '9') || *p == '-' || *p == '_' || *p == '.';
        if (!ok) {
            return false;
        }
    }
    return s[0] && s[0] != '.' && s[0] != '-' && strlen(s) < 100;
}

static int list_specs(Arena *a)
{
    const char **path = NULL;
    u32 n = asset_list(a, "specs", ".lua", &path);
    for (u32 i = 0; i < n; i++) {
        const char *base = strrchr(path[i], '/') + 1;
        printf("%.*s\n", (int)strlen(base) - 4, base);
    }
    return n ? 0 : 3;
}

/* The text of a ready spec under a name of its own: what it makes must not land in the other's
 * folder. */
static const char *renamed(Arena *a, const char *text, const char *from, const char *name)
{
    const char *head = arena_fmt(a, "-- %s.lua:", from);
    const char *body = strncmp(text, head, strlen(head)) == 0 ? text + strlen(head) : text;
    const char *row = strstr(body, "\n  name");
    const char *eq = row ? strchr(row, '=') : NULL;
    const char *end = eq ? strstr(eq, ",\n") : NULL;
    if (!end) {
        return text;
    }
    return arena_fmt(a, "-- %s.lua:%.*s \"%s\"%s", name, (int)(eq + 1 - body), body, name, end);
}

/* megagen new NAME [--from SPEC]: writes NAME.lua, a copy of a ready spec. Never overwrites. */
int verb_new(int argc, char **argv)
{
    Arena *a = arena_new();
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--list") == 0) {
        return list_specs(a);
    }
    const char *from = argc == 4 && strcmp(argv[2], "--from") == 0 ? argv[3] : "tiny";
    if ((argc != 2 && argc != 4) || !name_ok(name) || !name_ok(from)) {
        fprintf(stderr, "usage: megagen new NAME [--from SPEC]    (megagen new --list)\n"
                        "NAME: letters, digits, '-', '_', '.'\n");
        return 2;
    }
    u64 n = 0;
    const char *text = asset_read(a, arena_fmt(a, "specs/%s.lua", from), &n);
    if (!text) {
        fprintf(stderr, "megagen: there is no ready spec '%s'; there are:\n", from);
        fflush(stderr);
        list_specs(a);
        return 2;
    }
    text = renamed(a, text, from, name);
    n = strlen(text);
    const char *path = arena_fmt(a, "%s.lua", name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n || close(fd)) {
        fprintf(stderr, "megagen: %s: %s\n", path, strerror(errno));
        return errno == EEXIST ? 2 : 7;
    }
    printf("wrote %s, from the ready spec '%s'; next: megagen plan %s\n", path, from, path);
    arena_free(a);
    return 0;
}

/* ---- why: where a generated line comes from -------------------------------------------------- */

static const char *const why_label[] = {"template", "spec", "module", "pass", "function"};

/* A row of lines.map: FILE:LINE, then the columns of why_label, by tabs; the last ones may be
 * missing. */
static int print_row(const char *row, const char *end)
{
    const char *p = memchr(row, '\t', (size_t)(end - row));
    for (size_t i = 0; p && i < sizeof why_label / sizeof why_label[0]; i++) {
        const char *from = p + 1;
        p = memchr(from, '\t', (size_t)(end - from));
        printf("%-10s%.*s\n", why_label[i], (int)((p ? p : end) - from), from);
    }
    return 0;
}

int verb_why(int argc, char **argv)
{
    const char *where = argc == 2 ? argv[1] : "", *colon = strrchr(where, ':');
    if (!colon || strspn(colon + 1, "0123456789") != strlen(colon + 1) || !colon[1]) {
        fprintf(stderr, "usage: megagen why out/NAME/FILE:LINE\n");
        return 2;
    }
    Arena *a = arena_new();
    const char *slash = strrchr(where, '/');
    int dir = slash ? (int)(slash - where) : 0;
    const char *map = arena_fmt(a, "%.*s%slines.map", dir, where, slash ? "/" : "");
    const char *key = arena_fmt(a, "%s\t", slash ? slash + 1 : where);
    char *text = NULL;
    u64 n = 0;
    int err = file_read(a, map, &text, &n);
    if (err) {
        fprintf(stderr, "megagen: %s: %s\n", map, strerror(err));
        return 5;
    }
    for (const char *row = text, *end; row < text + n; row = end + 1) {
        end = memchr(row, '\n', (size_t)(text + n - row));
        end = end ? end : text + n;
        if ((size_t)(end - row) >= strlen(key) && memcmp(row, key, strlen(key)) == 0) {
            return print_row(row, end);
        }
    }
    fprintf(stderr, "megagen: %s knows no line %s\n", map, slash ? slash + 1 : where);
    return 1;
}

/* ---- doctor: what is on this machine, and what each missing piece costs ---------------------- */

typedef struct {
    const char *what, *lib, *costs; /* lib: opened to see whether it answers */
} Piece;

static const Piece pieces[] = {
    {"GPU driver", "libcuda.so.1", "no GPU training; the CPU target works"},
    {"NVRTC", "libnvrtc.so.13", "no device code can be compiled; the CPU target works"},
    {"cuBLASLt", "libcublasLt.so.13", "no library matmul on a GPU; the CPU target works"},
    {"NCCL", "libnccl.so.2", "no training on several GPUs"},
    {"MPI", "libmpi.so.40", "no CPU training over several processes"},
};

static bool answers(const char *command)
{
    char line[256];
    snprintf(line, sizeof line, "%s --version >/dev/null 2>&1", command);
    return system(line) == 0; /* fixed strings only */
}

static void fact(const char *what, const char *state, const char *note)
{
    printf("%-12s %-10s %s\n", what, state, note ? note : "");
}

int verb_doctor(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        fprintf(stderr, "usage: megagen doctor\n");
        return 2;
    }
    bool cc = answers("cc") || answers("gcc") || answers("clang");
    long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    char buf[128];
    fact("CPU", cpu_detect(), "feature level that generated code is made for");
    snprintf(buf, sizeof buf, "%ld", cores);
    fact("cores", buf, "MG_THREADS overrides the number of workers");
    snprintf(buf, sizeof buf, "%.1f GiB",
             (double)pages * (double)sysconf(_SC_PAGESIZE) / 1073741824.0);
    fact("memory", buf, NULL);
    fact("C compiler", cc ? "ok" : "missing",
         cc ? NULL : "nothing can be built: apt-get install gcc");
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        void *h = dlopen(pieces[i].lib, RTLD_LAZY | RTLD_LOCAL);
        fact(pieces[i].what, h ? "ok" : "missing", h ? pieces[i].lib : pieces[i].costs);
        if (h) {
            dlclose(h);
        }
    }
    return cc ? 0 : 3;
}
