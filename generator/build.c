/* build.c: from the emitted folder to a running trainer, in the parent process, after the spec's
 * child has ended.
 *
 * Six files are compiled, two at a time, as position-independent objects that a program and a
 * shared object can both be linked from. Objects are kept under XDG_CACHE_HOME/megagen by a hash of
 * everything that goes into them (compiler, flags, text, headers) and appear there by rename, so
 * processes may race. The runtime and the micro kernels come prebuilt: in libmg.a beside megagen
 * for a program, in megagen itself for a shared object. Without libmg.a the folder's own build.sh
 * is run.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "megagen.h"
#include "mg.h"

enum { EXIT_ENVIRONMENT = 3, EXIT_COMPILE = 4, JOBS = 2, LOG_LINES = 12 };

static const struct {
    const char *name, *march;
} levels[] = {
    {"avx512", "-march=skylake-avx512 -mprefer-vector-width=512"},
    {"avx2", "-march=haswell"},
    {"generic", ""},
};

/* In the order of the time they take: the longest first. */
static const struct {
    const char *file, *flags;
    bool shared; /* part of the shared object */
} sources[] = {
    {"products.c", "-ffp-contract=fast", true}, {"rows.c", "-ffp-contract=off", true},
    {"kernels.c", "-ffp-contract=fast", true},  {"funcs.c", "-ffp-contract=off", true},
    {"model.c", "-ffp-contract=off", true},     {"main.c", "-ffp-contract=off", false},
};
enum { NSOURCE = sizeof sources / sizeof *sources };

typedef struct {
    Arena *a;
    const char *dir, *cc, *flags;
    const char *cache; /* folder for objects: the cache, or dir itself */
    u64 base;          /* hash of compiler, flags and headers */
    const char *object[NSOURCE];
} Build;

const char *cpu_detect(void)
{
#if defined __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "avx2";
#endif
    return "generic";
}

const char *cpu_flags(const char *cpu)
{
    for (u32 i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (!strcmp(levels[i].name, cpu))
            return levels[i].march;
    }
    return "";
}

/* ==== commands ================================================================================ */

/* s as one word of the shell. */
static const char *quote(Arena *a, const char *s)
{
    Text t = {0};
    text_put(a, &t, "'");
    for (; *s; s++) {
        char c[2] = {*s, 0};
        text_put(a, &t, *s == '\'' ? "'\\''" : c);
    }
    text_put(a, &t, "'");
    return text_str(a, &t);
}

static pid_t start(const char *command)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static bool finish(pid_t pid)
{
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return false;
    }
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The first of `words` is a program in PATH, or a path. */
static bool runs(Arena *a, const char *words)
{
    u64 n = strcspn(words, " ");
    char *name = arena_fmt(a, "%.*s", (int)n, words);
    if (strchr(name, '/'))
        return access(name, X_OK) == 0;
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
        u64 len = strcspn(at, ":");
        if (access(arena_fmt(a, "%.*s/%s", (int)len, at, name), X_OK) == 0)
            return true;
        at += len + (at[len] == ':');
    }
    return false;
}

static const char *find_cc(Arena *a)
{
    static const char *const known[] = {"cc", "gcc", "clang"};
    const char *cc = getenv("CC");
    if (cc && *cc)
        return runs(a, cc) ? cc : NULL;
    for (u32 i = 0; i < sizeof known / sizeof *known; i++) {
        if (runs(a, known[i]))
            return known[i];
    }
    return NULL;
}

/* ==== cache =================================================================================== */

static u64 hash_text(const char *s, u64 seed)
{
    return hash_bytes(s, strlen(s) + 1, seed);
}

static u64 hash_file(Build *b, const char *name, u64 seed)
{
    char *data = NULL;
    u64 n = 0;
    if (file_read(b->a, arena_fmt(b->a, "%s/%s", b->dir, name), &data, &n))
        return hash_text("missing", seed);
    return hash_bytes(data, n, hash_text(name, seed));
}

static int by_bytes(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* Names and bytes of all headers of a folder, in order of their names. */
static u64 hash_headers(Build *b, const char *folder, u64 seed)
{
    VEC(const char *) name = {0};
    DIR *d = opendir(arena_fmt(b->a, "%s/%s", b->dir, folder));
    for (struct dirent *e; d && (e = readdir(d));) {
        u64 n = strlen(e->d_name);
        if (n > 2 && !strcmp(e->d_name + n - 2, ".h"))
            vec_push(b->a, &name, arena_fmt(b->a, "%s/%s", folder, e->d_name));
    }
    if (d)
        closedir(d);
    if (name.n)
        qsort(name.at, name.n, sizeof *name.at, by_bytes);
    for (u32 i = 0; i < name.n; i++)
        seed = hash_file(b, name.at[i], seed);
    return seed;
}

static u64 hash_compiler(Build *b)
{
    char line[512] = "";
    FILE *p = popen(arena_fmt(b->a, "%s --version 2>&1", b->cc), "r");
    u64 n = p ? fread(line, 1, sizeof line - 1, p) : 0;
    if (p)
        pclose(p);
    return hash_bytes(line, n, hash_text(b->cc, 0));
}

static bool make_dirs(char *path)
{
    for (char *s = path + 1;; s++) {
        if (*s && *s != '/')
            continue;
        char end = *s;
        *s = 0;
        int bad = mkdir(path, 0777) && errno != EEXIST;
        *s = end;
        if (bad || !end)
            return !bad;
    }
}

static const char *cache_dir(Arena *a, const char *dir)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    if (xdg && *xdg == '/')
        path = arena_fmt(a, "%s/megagen/obj", xdg);
    else if (home && *home == '/')
        path = arena_fmt(a, "%s/.cache/megagen/obj", home);
    if (path && make_dirs(path) && access(path, W_OK) == 0)
        return path;
    path = arena_fmt(a, "%s/obj", dir);
    make_dirs(path);
    return path;
}

/* ==== compile ================================================================================= */

static const char *log_path(Build *b)
{
    return arena_fmt(b->a, "%s/build.log", b->dir);
}

static int compile_failed(Build *b, const char *what)
{
    fprintf(stderr, "megagen: %s did not compile; this is a bug of megagen. The log: %s\n", what,
            log_path(b));
    FILE *f = fopen(log_path(b), "r");
    char line[512];
    for (int i = 0; f && i < LOG_LINES && fgets(line, sizeof line, f); i++)
        fprintf(stderr, "  %s", line);
    if (f)
        fclose(f);
    return EXIT_COMPILE;
}

static int open_build(Build *b, const char *dir, const char *cpu)
{
    char *full = realpath(dir, NULL); /* commands run inside it */
    b->dir = arena_fmt(b->a, "%s", full ? full : dir);
    free(full);
    b->cc = find_cc(b->a);
    if (!b->cc) {
        fprintf(stderr, "megagen: no C compiler%s%s; install gcc or clang, or set CC\n",
                getenv("CC") ? ": CC is " : "", getenv("CC") ? getenv("CC") : "");
        return EXIT_ENVIRONMENT;
    }
    b->flags = arena_fmt(b->a, "-std=gnu11 -O2 -fPIC -fvisibility=hidden -fno-math-errno %s",
                         cpu_flags(cpu));
    b->cache = cache_dir(b->a, b->dir);
    u64 h = hash_text(b->flags, hash_compiler(b));
    h = hash_file(b, "model.h", h);
    h = hash_headers(b, "runtime", h);
    b->base = hash_headers(b, "kernels/cpu", h);
    unlink(log_path(b));
    return 0;
}

/* The command that makes object i, or NULL if the cache has it. */
static const char *compile_command(Build *b, u32 i)
{
    u64 key = hash_text(sources[i].flags, hash_file(b, sources[i].file, b->base));
    b->object[i] = arena_fmt(b->a, "%s/%016llx.o", b->cache, (unsigned long long)key);
    if (access(b->object[i], R_OK) == 0)
        return NULL;
    const char *temp = quote(b->a, arena_fmt(b->a, "%s.%ld", b->object[i], (long)getpid()));
    return arena_fmt(
        b->a,
        "cd %s && %s %s %s -Iruntime -Ikernels -I. -c %s -o %s >>build.log 2>&1 && mv -f %s %s",
        quote(b->a, b->dir), b->cc, b->flags, sources[i].flags, sources[i].file, temp, temp,
        quote(b->a, b->object[i]));
}

/* JOBS commands at a time, in the order of the table; the next starts when the oldest has ended. */
static int compile_all(Build *b, bool shared)
{
    pid_t pid[NSOURCE];
    u32 which[NSOURCE], n = 0, done = 0;
    bool ok = true;
    for (u32 i = 0; i < NSOURCE && ok; i++) {
        const char *command = shared && !sources[i].shared ? NULL : compile_command(b, i);
        if (!command)
            continue;
        if (n - done == JOBS) {
            ok = finish(pid[done]);
            done += ok;
        }
        which[n] = i;
        pid[n++] = ok ? start(command) : 0;
    }
    u32 bad = done;
    for (u32 i = done + !ok; i < n; i++) {
        bool fine = !pid[i] || finish(pid[i]);
        if (!fine && ok)
            bad = i;
        ok &= fine;
    }
    return ok ? 0 : compile_failed(b, sources[which[bad]].file);
}

static const char *objects(Build *b, bool shared)
{
    Text t = {0};
    for (u32 i = 0; i < NSOURCE; i++) {
        if (!shared || sources[i].shared)
            text_fmt(b->a, &t, " %s", quote(b->a, b->object[i]));
    }
    return text_str(b->a, &t);
}

/* ==== program ================================================================================= */

/* libmg.a beside megagen or in its build folder; NULL if there is none. */
static const char *find_archive(Arena *a)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return NULL;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    *slash = 0;
    static const char *const place[] = {"libmg.a", "build/libmg.a"};
    for (u32 i = 0; i < sizeof place / sizeof *place; i++) {
        const char *path = arena_fmt(a, "%s/%s", self, place[i]);
        if (access(path, R_OK) == 0)
            return path;
    }
    return NULL;
}

static int link_program(Build *b, const char *archive)
{
    int code = compile_all(b, false);
    if (code)
        return code;
    const char *out = quote(b->a, arena_fmt(b->a, "%s/trainer", b->dir));
    const char *command =
        arena_fmt(b->a, "%s -o %s.new%s %s -lm -lpthread >>%s 2>&1 && mv -f %s.new %s", b->cc, out,
                  objects(b, false), quote(b->a, archive), quote(b->a, log_path(b)), out, out);
    return finish(start(command)) ? 0 : compile_failed(b, "the trainer");
}

int build_trainer(const char *dir, const char *cpu)
{
    Build b = {.a = arena_new()};
    int code = open_build(&b, dir, cpu);
    const char *archive = find_archive(b.a);
    if (!code && archive) {
        code = link_program(&b, archive);
    } else if (!code) {
        const char *command = arena_fmt(b.a, "CC=%s sh %s/build.sh >>%s 2>&1", quote(b.a, b.cc),
                                        quote(b.a, dir), quote(b.a, log_path(&b)));
        code = finish(start(command)) ? 0 : compile_failed(&b, "the folder");
    }
    arena_free(b.a);
    return code;
}

/* ==== just in time ============================================================================ */

int build_temp(char *dir, u64 size)
{
    const char *const place[] = {getenv("TMPDIR"), "/tmp", "/dev/shm", "/var/tmp"};
    for (u32 i = 0; i < sizeof place / sizeof *place; i++) {
        if (!place[i] || *place[i] != '/')
            continue;
        int n = snprintf(dir, size, "%s/megagen-XXXXXX", place[i]);
        if (n > 0 && (u64)n < size && mkdtemp(dir))
            return 0;
    }
    fprintf(stderr, "megagen: no folder for temporary files; set TMPDIR\n");
    return EXIT_ENVIRONMENT;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* The linker writes into the folder; the loader reads from memory, where no mount option forbids
 * it. */
static void *load_object(Build *b, const char *path)
{
    char *data = NULL;
    u64 n = 0;
    int fd = memfd_create("megagen-model", MFD_CLOEXEC);
    if (fd < 0 || file_read(b->a, path, &data, &n))
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (u64 done = 0; done < n;) {
        ssize_t k = write(fd, data + done, n - done);
        if (k <= 0 && errno != EINTR)
            return dlopen(path, RTLD_NOW | RTLD_LOCAL);
        done += k > 0 ? (u64)k : 0;
    }
    return dlopen(arena_fmt(b->a, "/proc/self/fd/%d", fd), RTLD_NOW | RTLD_LOCAL);
}

static int link_object(Build *b, const char *path)
{
    const char *command = arena_fmt(b->a, "%s -shared -o %s%s >>%s 2>&1", b->cc, quote(b->a, path),
                                    objects(b, true), quote(b->a, log_path(b)));
    return finish(start(command)) ? 0 : compile_failed(b, "the shared object");
}

static int load_model(Build *b, const mg_model **model)
{
    const char *path = arena_fmt(b->a, "%s/model.so", b->dir);
    int code = compile_all(b, true);
    if (!code)
        code = link_object(b, path);
    if (code)
        return code;
    void *object = load_object(b, path);
    void *symbol = object ? dlsym(object, "mg_model_get") : NULL;
    if (!symbol) {
        fprintf(stderr, "megagen: %s\n", dlerror());
        return EXIT_COMPILE;
    }
    const mg_model *(*get)(void);
    memcpy(&get, &symbol, sizeof get);
    *model = get();
    return 0;
}

int build_run(const char *dir, const char *cpu, bool temp, int argc, char **argv)
{
    const mg_model *model = NULL;
    Build b = {.a = arena_new()};
    int code = open_build(&b, dir, cpu);
    if (!code)
        code = load_model(&b, &model);
    if (temp && code != EXIT_COMPILE)
        nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    arena_free(b.a);
    return code ? code : mg_trainer(argc, argv, model);
}
