/* main.c: the command line and the pass list.
 *
 * A compile runs in a child process with limits on memory and time, because a spec is a program:
 * the child writes the files and a record (name, folder, CPU level, first lines) into a pipe and
 * ends. The parent relays its exit code, then runs the C compiler without those limits.
 */
#include "megagen.h"
#include "mg.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the passes ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    void (*run)(Graph *g);
    const char *does;
} passes[] = {
    {"expand", pass_expand, "trace the layers to forward Funcs"},
    {"autodiff", pass_autodiff, "add the backward Funcs, the joint loss Func and saves"},
    {"update", pass_update, "add flat arenas, gradient norm, clipping and the optimizer"},
    {"precision", pass_precision, "choose dtypes, masters and casts"},
    {"remat", pass_remat, "decide for every save: keep or recompute"},
    {"fuse", pass_fuse, "merge bodies into row and map kernels"},
    {"tune", pass_tune, "bind nodes to kernel instances"},
    {"plan", pass_plan, "give every byte an offset"},
    {"emit", pass_emit, "print the files"},
};
enum { NPASS = sizeof passes / sizeof passes[0], EXPAND = 0, PLAN = NPASS - 2, EMIT = NPASS - 1 };

static int pass_find(const char *name, size_t n)
{
    for (int i = 0; i < NPASS; i++) {
        if (strlen(passes[i].name) == n && memcmp(passes[i].name, name, n) == 0) {
            return i;
        }
    }
    return -1;
}

/* ---- one compile ----------------------------------------------------------------------------- */

typedef struct {
    const char *spec; /* SPEC.lua, or the text form in a .mg file */
    const char *out;  /* folder for emit; NULL: out/NAME */
    int first, last;  /* passes to run; last < first: none */
    bool text;        /* print the Graph afterwards */
    bool report;      /* print the plan's report */
    bool fit;         /* what does not fit into this machine is refused */
    bool config;      /* print every key with value and origin */
    int noverride;
    char **override; /* key=value */
} Job;

typedef struct {
    char name[128], dir[512], cpu[16];
} Record; /* what the parent needs to know */

enum { LIMIT_MIB = 256, LIMIT_GRAPH_MIB = 1792, LIMIT_SECONDS = 60 };

static bool is_text(const char *path)
{
    size_t n = strlen(path);
    return n > 3 && strcmp(path + n - 3, ".mg") == 0;
}

static void load(Graph *g, const Job *job)
{
    lua_open(g);
    if (!is_text(job->spec)) {
        lua_load_spec(g, job->spec, job->noverride, job->override);
        return;
    }
    char *src = NULL;
    u64 n = 0;
    int err = file_read(g->arena, job->spec, &src, &n);
    if (err) {
        fail(g, (Loc){0}, 101, "%s: %s", job->spec, strerror(err));
    }
    text_parse(g, job->spec, src, n);
    verify(g, "parse");
}

static void print_text(Graph *g)
{
    Text t = {0};
    text_print(g, &t);
    fputs(text_str(g->arena, &t), stdout);
}

static void first_lines(Graph *g)
{
    Text t = {0};
    cost_report(g, &t);
    fputs(text_str(g->arena, &t), stdout);
}

/* The first line: what the code will be for, and who said so. */
static void target_line(Graph *g)
{
    const char *key = "cpu";
    if (g->cfg.cpu) {
        printf("target    cpu %s: asked for by cpu (%s)\n", sym_str(g, g->cfg.cpu),
               lua_text(g, "origin", 1, &key));
        return;
    }
    g->cfg.cpu = sym(g, cpu_detect());
    printf(
        "target    cpu %s: the highest level of this machine; cpu=avx512, avx2 or generic is for "
        "another\n",
        sym_str(g, g->cfg.cpu));
}

/* A change of the spec, planned in a process of its own. */
static u64 plan_changed(void *arg, const char *const *word, int n)
{
    const Job *job = arg;
    jmp_buf trap;
    Graph *g = graph_new();
    g->on_fail = &trap;
    if (setjmp(trap)) {
        return 0;
    }
    Job with = *job;
    with.override = arena_alloc(g->arena, sizeof *with.override * (u64)(job->noverride + n));
    memcpy(with.override, job->override, sizeof *with.override * (u64)job->noverride);
    for (int i = 0; i < n; i++) {
        with.override[with.noverride++] = arena_fmt(g->arena, "%s", word[i]);
    }
    load(g, &with);
    g->cfg.out_dir = sym(g, "out");
    if (!g->cfg.cpu) {
        g->cfg.cpu = sym(g, cpu_detect());
    }
    for (int i = EXPAND; i <= PLAN; i++) {
        g->phase = sym(g, passes[i].name);
        passes[i].run(g);
    }
    return g->arena_bytes;
}

/* Does it fit into what is free here? `must`: else nothing is made. */
static void say_fit(Graph *g, bool must)
{
    u64 have = mg_memory_free(), need = g->arena_bytes + MG_SCRATCH_BYTES;
    if (!have || need <= have) {
        if (have && !must) {
            printf("fits      %s of memory are free here\n", bytes_str(g, have));
        }
        return;
    }
    Text t = {0};
    text_fmt(g->arena, &t, "training needs %s of memory, %s are free here", bytes_str(g, need),
             bytes_str(g, have));
    for (u32 i = 0; i < g->fit.n; i++) {
        u64 other = g->fit.at[i].bytes + MG_SCRATCH_BYTES;
        text_fmt(g->arena, &t, "\nhelp: %s: %s%s", sym_str(g, g->fit.at[i].change),
                 bytes_str(g, other), other <= have ? ", which fits" : "");
    }
    if (must) {
        fail(g, (Loc){0}, 401, "%s", text_str(g->arena, &t));
    }
    fflush(stdout);
    warn(g, (Loc){0}, 401, "%s", text_str(g->arena, &t));
}

/* The child: everything up to emit. Returns an exit code. */
static int compile(const Job *job, Record *rec)
{
    jmp_buf trap;
    Graph *g = graph_new();
    g->on_fail = &trap;
    if (setjmp(trap)) {
        return g->exit;
    }
    load(g, job);
    if (job->config) {
        fputs(lua_text(g, "print_config", 0, NULL), stdout);
    }
    Sym dir = job->out ? sym(g, job->out) : sym_fmt(g, "out/%s", sym_str(g, g->cfg.name));
    g->cfg.out_dir = dir;
    if (job->report) {
        target_line(g);
    } else if (!g->cfg.cpu) {
        g->cfg.cpu = sym(g, cpu_detect());
    }
    for (int i = job->first; i <= job->last; i++) {
        g->phase = sym(g, passes[i].name);
        passes[i].run(g);
        verify(g, passes[i].name);
        if (i == PLAN && !is_text(job->spec) && (job->report || job->last == EMIT)) {
            fit_plan(g, plan_changed, (void *)(uintptr_t)job);
        }
        if (i == PLAN && job->fit) {
            say_fit(g, true);
        }
    }
    if (job->text) {
        print_text(g);
    }
    if (job->report) {
        first_lines(g);
        say_fit(g, false);
    }
    snprintf(rec->name, sizeof rec->name, "%s", sym_str(g, g->cfg.name));
    snprintf(rec->dir, sizeof rec->dir, "%s", sym_str(g, dir));
    snprintf(rec->cpu, sizeof rec->cpu, "%s", sym_str(g, g->cfg.cpu));
    return fflush(stdout) ? 7 : 0;
}

static void set_limits(void)
{
    struct rlimit cpu = {LIMIT_SECONDS, LIMIT_SECONDS + 1};
    setrlimit(RLIMIT_CPU, &cpu);
#ifndef __SANITIZE_ADDRESS__ /* a sanitizer reserves terabytes of address space */
    u64 bytes = (u64)(LIMIT_MIB + LIMIT_GRAPH_MIB) << 20;
    struct rlimit mem = {bytes, bytes};
    setrlimit(RLIMIT_AS, &mem);
#endif
}

static int child_status(int status)
{
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status);
    }
    int sig = WTERMSIG(status);
    if (sig == SIGPIPE) { /* `| head` has read enough */
        return 7;
    }
    if (sig == SIGXCPU || sig == SIGKILL) {
        fprintf(stderr, "megagen: the spec ran for more than %d s; a loop without end?\n",
                LIMIT_SECONDS);
        return 1;
    }
    fprintf(stderr, "megagen: internal error: the compile ended by signal %d (%s)\n", sig,
            strsignal(sig));
    return 70;
}

static int compile_in_child(const Job *job, Record *rec)
{
    int fd[2];
    fflush(NULL);
    if (pipe(fd)) {
        fprintf(stderr, "megagen: pipe: %s\n", strerror(errno));
        return 3;
    }
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "megagen: fork: %s\n", strerror(errno));
        return 3;
    }
    if (pid == 0) {
        close(fd[0]);
        set_limits();
        Record r = {0};
        int code = compile(job, &r);
        if (code == 0 && write(fd[1], &r, sizeof r) != (ssize_t)sizeof r) {
            code = 70;
        }
        _exit(code);
    }
    close(fd[1]);
    memset(rec, 0, sizeof *rec);
    size_t got = 0;
    for (ssize_t n; got < sizeof *rec; got += (size_t)n) {
        n = read(fd[0], (char *)rec + got, sizeof *rec - got);
        if (n < 0 && errno == EINTR) {
            n = 0;
        } else if (n <= 0) {
            break;
        }
    }
    close(fd[0]);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return child_status(status);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

typedef struct {
    const char *name, *args, *help;
    int (*run)(int argc, char **argv); /* argv[0] is the verb, or the spec for the default verb */
} Verb;

static int usage(const char *what, const char *arg)
{
    fprintf(stderr, "megagen: %s%s%s\nmegagen: see 'megagen help'\n", what, arg ? ": " : "",
            arg ? arg : "");
    return 2;
}

/* Options of the verbs that compile: everything that is not an option or the spec is key=value. */
static int parse_job(int argc, char **argv, Job *job, const char **keep)
{
    job->override = calloc((size_t)argc + 1, sizeof *job->override);
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i];
        bool has_next = i + 1 < argc;
        if (strcmp(a, "-o") == 0 && has_next) {
            job->out = argv[++i];
        } else if (strcmp(a, "--keep") == 0 && keep && has_next) {
            *keep = argv[++i];
        } else if (strcmp(a, "--print-config") == 0) {
            job->config = true;
        } else if ((strcmp(a, "-p") == 0 || strcmp(a, "-s") == 0) && has_next) {
            const char *name = argv[++i], *dots = strstr(name, "..");
            job->last = pass_find(dots ? dots + 2 : name, strlen(dots ? dots + 2 : name));
            job->first = dots ? pass_find(name, (size_t)(dots - name)) : -1;
            if (job->last < 0 || (dots && job->first < 0)) {
                return usage("no such pass", name);
            }
            job->text = a[1] == 'p';
        } else if (a[0] == '-') {
            return usage("unknown option", a);
        } else if (strchr(a, '=')) {
            job->override[job->noverride++] = argv[i];
        } else if (!job->spec) {
            job->spec = a;
        } else {
            return usage("more than one spec", a);
        }
    }
    return job->spec ? 0 : usage("no spec given", NULL);
}

static int verb_build(int argc, char **argv)
{
    Job job = {.first = EXPAND, .last = EMIT, .report = true};
    Record rec;
    int code = parse_job(argc, argv, &job, NULL);
    if (code || (code = compile_in_child(&job, &rec))) {
        return code;
    }
    code = build_trainer(rec.dir, rec.cpu);
    if (code == 0) {
        printf("trainer   %s/trainer\n", rec.dir);
    }
    return code;
}

static int verb_run(int argc, char **argv)
{
    Job job = {.first = EXPAND, .last = EMIT, .report = true, .fit = true};
    Record rec;
    const char *keep = NULL;
    char **ours = calloc(2 * ((size_t)argc + 1), sizeof *ours), **trainers = ours + argc + 1;
    int nours = 0, ntrainers = 0;
    trainers[ntrainers++] = argv[0];
    for (int i = 1; i < argc; i++) {
        if (mg_trainer_word(argv[i])) {
            trainers[ntrainers++] = argv[i];
        } else {
            ours[nours++] = argv[i];
        }
    }
    int code = parse_job(nours, ours, &job, &keep);
    if (code) {
        return code;
    }
    char dir[512];
    if (keep) {
        job.out = keep;
    } else if (build_temp(dir, sizeof dir)) {
        return 3;
    } else {
        job.out = dir;
    }
    code = compile_in_child(&job, &rec);
    if (code == 0) {
        code = build_run(rec.dir, rec.cpu, keep == NULL, ntrainers, trainers);
    }
    return code;
}

static int verb_check(int argc, char **argv)
{
    Job job = {.first = EXPAND, .last = PLAN};
    Record rec;
    int code = parse_job(argc - 1, argv + 1, &job, NULL);
    if (code || (code = compile_in_child(&job, &rec))) {
        return code;
    }
    printf("%s: ok\n", job.spec);
    return 0;
}

static int verb_plan(int argc, char **argv)
{
    Job job = {.first = EXPAND, .last = PLAN, .report = true};
    Record rec;
    int code = parse_job(argc - 1, argv + 1, &job, NULL);
    return code ? code : compile_in_child(&job, &rec);
}

/* show SPEC.lua: the Graph after pass -p (default plan). show X.mg: parse, verify and print; with
 * -p PASS or -p FROM..TO those passes run on it first. */
static int verb_show(int argc, char **argv)
{
    Job job = {.first = -2, .last = PLAN, .text = true};
    Record rec;
    int code = parse_job(argc - 1, argv + 1, &job, NULL);
    if (code) {
        return code;
    }
    if (is_text(job.spec)) {
        job.first = job.first == -2 ? NPASS : job.first < 0 ? job.last : job.first;
    } else if (job.first < 0) {
        job.first = EXPAND;
    }
    return compile_in_child(&job, &rec);
}

static int verb_data(int argc, char **argv)
{
    return mg_data_main(argc, argv);
}

static int verb_help(int argc, char **argv);
static int verb_explain(int argc, char **argv);
static int verb_completion(int argc, char **argv);
static int verb_man(int argc, char **argv);

static const Verb verbs[] = {
    {"run", "SPEC.lua [key=value ...] [--keep DIR] [--dry-run ...]",
     "compile, load and train in this process; nothing is left but the cache; takes what a trainer "
     "takes, too (out=, resume=, --quiet)",
     verb_run},
    {"new", "NAME [--from SPEC] | --list", "write NAME.lua, a commented spec to start from",
     verb_new},
    {"check", "SPEC.lua [key=value ...] [--print-config]", "validate only; writes nothing",
     verb_check},
    {"plan", "SPEC.lua [key=value ...]", "parameters, memory, FLOPs, time estimate", verb_plan},
    {"show", "SPEC.lua|FILE.mg [-p PASS] [key=value ...]", "the program after a pass, as text",
     verb_show},
    {"data", "prepare|info|peek ...", "text or jsonl(.gz) to .bin/.idx; inspect; decode sample N",
     verb_data},
    {"doctor", "", "what is on this machine and what each missing piece costs", verb_doctor},
    {"why", "out/NAME/FILE:LINE", "spec line, module, pass and template of a generated line",
     verb_why},
    {"explain", "CODE", "what a diagnostic means, with its remedy", verb_explain},
    {"help", "[keys|layers|ops|codes]", "verbs and passes; or every key, layer, op or diagnostic",
     verb_help},
    {"man", "", "the manual page: megagen man | man -l -", verb_man},
    {"completion", "bash|zsh|fish", "completion for a shell: eval \"$(megagen completion bash)\"",
     verb_completion},
    {NULL, NULL, NULL, NULL},
};

/* Print what lib.FN makes of the arguments; empty text: the argument was no good. */
static int print_lua(const char *fn, int narg, const char *const *arg)
{
    jmp_buf trap;
    Graph *g = graph_new();
    g->on_fail = &trap;
    if (setjmp(trap)) {
        return g->exit;
    }
    lua_open(g);
    const char *text = lua_text(g, fn, narg, arg);
    fputs(text, stdout);
    return text[0] ? 0 : 2;
}

static const char *verb_lines(Arena *a)
{
    Text t = {0};
    for (const Verb *v = verbs; v->name; v++) {
        text_fmt(a, &t, "%s\t%s\t%s\n", v->name, v->args, v->help);
    }
    return text_str(a, &t);
}

static int verb_explain(int argc, char **argv)
{
    const char *arg[] = {argc == 2 ? argv[1] : ""};
    return argc == 2 ? print_lua("explain", 1, arg) : usage("explain takes one code", "E0107");
}

static int verb_completion(int argc, char **argv)
{
    Arena *a = arena_new();
    const char *arg[] = {argc == 2 ? argv[1] : "", verb_lines(a)};
    int code = print_lua("completion", 2, arg);
    return code == 2 ? usage("completion for", "bash, zsh or fish") : code;
}

static int verb_man(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    Arena *a = arena_new();
    Text t = {0};
    for (const mg_exit_row *e = mg_exit_table; e->meaning; e++) {
        text_fmt(a, &t, "%d\t%s\t%s\n", e->code, e->meaning, e->restart);
    }
    const char *arg[] = {verb_lines(a), text_str(a, &t)};
    return print_lua("manual", 2, arg);
}

static int verb_help(int argc, char **argv)
{
    if (argc > 1) {
        const char *arg[] = {argv[1]};
        return print_lua("help", 1, arg);
    }
    printf("usage: megagen SPEC.lua [key=value ...] [-o DIR]\n"
           "       compile a spec: sources, report and trainer in out/NAME/\n\n");
    for (const Verb *v = verbs; v->name; v++) {
        printf("  megagen %s %s\n      %s\n", v->name, v->args, v->help);
    }
    printf("\npasses, in order (show -p PASS):\n");
    for (int i = 0; i < NPASS; i++) {
        printf("  %-10s %s\n", passes[i].name, passes[i].does);
    }
    printf("\nexit codes:\n");
    for (const mg_exit_row *e = mg_exit_table; e->meaning; e++) {
        printf("  %3d  %s\n", e->code, e->meaning);
    }
    return 0;
}

int main(int argc, char **argv)
{
    mg_std_open();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a full disk: EFBIG */
    if (argc < 2) {
        return usage("no spec given", NULL);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        return verb_help(0, NULL);
    }
    for (const Verb *v = verbs; v->name; v++) {
        if (strcmp(v->name, argv[1]) == 0) {
            return v->run(argc - 1, argv + 1);
        }
    }
    return verb_build(argc - 1, argv + 1);
}
