/* fit.c: what else could be done with the memory: the same spec planned again with one thing
 * changed.
 *
 * A change is a few words of the command line, such as `remat=full`. Each that could take memory
 * off is planned for good, in a child process of its own (specs are loaded once a process), and its
 * arena is what is said; a change that does not plan, or takes nothing off, is left out. They stand
 * in the order of what they cost: time first, then more micro batches, then digits.
 *
 * needs: regions; gives: g->fit
 */
#include "megagen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 4, CHANGES = 6 };

typedef struct {
    const char *word[WORDS]; /* key=value                                                      */
    int n;
} Change;

static void word_add(Graph *g, Change *c, const char *key, const char *value)
{
    c->word[c->n++] = arena_fmt(g->arena, "%s=%s", key, value);
}

/* Half the rows, or one; the global batch stays. */
static void micro_add(Graph *g, Change *c, i64 rows)
{
    word_add(g, c, "batch.micro", arena_fmt(g->arena, "%lld", (long long)rows));
    const char *key = "batch.global";
    if (strcmp(lua_text(g, "origin", 1, &key), "derived") == 0) {
        word_add(g, c, key, arena_fmt(g->arena, "%lld", (long long)g->cfg.global));
    }
}

static u32 changes_list(Graph *g, Change *out)
{
    const Config *c = &g->cfg;
    const char *remat = c->remat ? sym_str(g, c->remat) : "none";
    i64 half = c->micro % 2 == 0 ? c->micro / 2 : 1;
    u32 n = 0;
    if (strcmp(remat, "none") == 0) {
        word_add(g, &out[n++], "remat", "selective");
    }
    if (strcmp(remat, "full") != 0) {
        word_add(g, &out[n++], "remat", "full");
    }
    if (c->micro > 1) {
        micro_add(g, &out[n++], half);
    }
    if (c->micro > 1 && (half > 1 || strcmp(remat, "full") != 0)) {
        micro_add(g, &out[n], 1);
        word_add(g, &out[n++], "remat", "full");
    }
    if (c->compute != DT_BF16) {
        word_add(g, &out[n++], "precision.compute", c->compute == DT_F64 ? "f32" : "bf16");
    }
    return n;
}

/* The arena of a change, planned in a child; the answer comes through the pipe fd. */
static pid_t plan_start(const Change *c, FitPlan *plan, void *arg, int fd[2])
{
    if (pipe(fd)) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        if (null >= 0) {
            dup2(null, STDERR_FILENO);
            dup2(null, STDOUT_FILENO);
        }
        u64 bytes = plan(arg, c->word, c->n);
        _exit(write(fd[1], &bytes, sizeof bytes) != sizeof bytes);
    }
    close(fd[1]);
    if (pid < 0) {
        close(fd[0]);
    }
    return pid;
}

static u64 plan_finish(pid_t pid, int fd)
{
    u64 bytes = 0;
    if (read(fd, &bytes, sizeof bytes) != sizeof bytes) {
        bytes = 0;
    }
    close(fd);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return bytes;
}

void fit_plan(Graph *g, FitPlan *plan, void *arg)
{
    Change change[CHANGES] = {0};
    u32 n = changes_list(g, change);
    int fd[CHANGES][2];
    pid_t pid[CHANGES];
    fflush(NULL);
    for (u32 i = 0; i < n; i++) {
        pid[i] = plan_start(&change[i], plan, arg, fd[i]);
    }
    for (u32 i = 0; i < n; i++) {
        u64 bytes = pid[i] > 0 ? plan_finish(pid[i], fd[i][0]) : 0;
        if (!bytes || bytes >= g->arena_bytes) {
            continue;
        }
        Text t = {0};
        for (int k = 0; k < change[i].n; k++) {
            text_fmt(g->arena, &t, k ? " %s" : "%s", change[i].word[k]);
        }
        vec_push(g->arena, &g->fit,
                 (Fit){.change = sym(g, text_str(g->arena, &t)), .bytes = bytes});
    }
}
