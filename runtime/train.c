/* train.c: the training loop.
 *
 *     step:  rows -> count targets -> gscale -> { fwd bwd } per micro batch -> check loss -> upd
 *     then:  log, evaluate, sample, save; a signal is obeyed between two steps
 */
#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- signals --------------------------------------------------------------------------------- */

/* A handler can reach nothing else. The signal that ends the run, and whether a save is wanted. */
static volatile sig_atomic_t stop_signal, save_signal;

static void on_signal(int sig)
{
    if (sig == SIGUSR2) {
        save_signal = 1;
        return;
    }
    if (sig == SIGINT && stop_signal == SIGINT)
        _exit(MG_INTERRUPTED); /* the second Ctrl-C does not wait for a save */
    stop_signal = sig;
}

static void signals_catch(void)
{
    static const int list[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    stop_signal = save_signal = 0;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        sigaction(list[i], &a, NULL);
}

/* ---- pieces of a step ------------------------------------------------------------------------ */

static double metric_get(const mg_run *r, const mg_var *v)
{
    return v == NULL ? 0 : mg_elem_get(v->dtype, r->c.mem + v->off, 0);
}

static void metrics_zero(mg_run *r)
{
    const mg_var *all[] = {r->loss_sum, r->count, r->gnorm};
    for (size_t i = 0; i < 3; i++)
        if (all[i] != NULL)
            mg_elem_set(all[i]->dtype, r->c.mem + all[i]->off, 0, 0);
}

static int64_t targets_count(const int32_t *targets, int64_t n)
{
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++)
        k += targets[i] >= 0;
    return k;
}

/* Where row i of the step keeps the beginnings of its documents; NULL: they are not asked for. */
static int32_t *lo_at(const mg_run *r, int64_t i)
{
    return r->row_lo == NULL ? NULL : r->row_lo + i * r->m->seq;
}

/* Reads the rows of the coming step; *n = their targets. */
static int rows_read(mg_run *r, int64_t *n)
{
    int64_t seq = r->m->seq;
    uint64_t first = r->overfit ? 0 : r->samples;
    for (int64_t i = 0; i < r->global; i++)
        MG_TRY(mg_data_row(r->train, first + (uint64_t)i, r->row_tokens + i * seq,
                           r->row_targets + i * seq, lo_at(r, i)));
    *n = targets_count(r->row_targets, r->global * seq);
    return MG_OK;
}

/* The rows from `row` on become the batch. */
static void batch_put(mg_run *r, int64_t row)
{
    size_t bytes = (size_t)r->m->micro * (size_t)r->m->seq * sizeof *r->row_tokens;
    int64_t at = row * r->m->seq;
    memcpy(r->c.mem + r->tokens->off, r->row_tokens + at, bytes);
    memcpy(r->c.mem + r->targets->off, r->row_targets + at, bytes);
    if (r->lo != NULL)
        memcpy(r->c.mem + r->lo->off, lo_at(r, row), bytes);
}

/* Weight of a unit of loss: in the mean over the targets of the step, or in the mean of the means
 * of its micro batches. Nothing to learn from gives 0. */
static double loss_weight(const mg_run *r, int64_t all, const int32_t *micro_targets)
{
    int64_t n = r->by_micro ? targets_count(micro_targets, (int64_t)r->m->micro * r->m->seq) : all;
    return n == 0 ? 0 : 1 / ((double)n * (double)(r->by_micro ? r->micros : 1));
}

static void micro_run(mg_run *r, int64_t mb, int64_t all)
{
    int64_t at = mb * r->m->micro * r->m->seq;
    mg_scalar *s = &r->c.scalar;
    s->micro = (int32_t)mb;
    s->micros = (int32_t)r->micros;
    s->sample = (int64_t)(r->overfit ? 0 : r->samples) + mb * r->m->micro;
    s->gscale = loss_weight(r, all, r->row_targets + at);
    batch_put(r, mb * r->m->micro);
    if (r->poison) {
        mg_poison(&r->c, MG_SCRATCH);
        mg_poison(&r->c, MG_SAVED);
        if (mb == 0)
            mg_poison(&r->c, MG_GRADS);
    }
    r->m->fwd(&r->c);
    r->m->bwd(&r->c);
}

static int dumps_write(mg_run *r)
{
    const char *p = mg_conf_str(&r->conf, "dump", "");
    while (*p != 0) {
        char what[32];
        size_t n = strcspn(p, ","), at = strcspn(p, "@,");
        if (p[at] != '@' || at >= sizeof what || strspn(p + at + 1, "0123456789") != n - at - 1 ||
            at + 1 == n)
            return mg_fail(MG_USAGE, "dump: '%.*s' is not WHAT@STEP, such as grads@1", (int)n, p);
        memcpy(what, p, at);
        what[at] = 0;
        if (strtoll(p + at + 1, NULL, 10) == r->step + 1)
            MG_TRY(mg_dump(r, what));
        p += p[n] == ',' ? n + 1 : n;
    }
    return MG_OK;
}

static int fail_nonfinite(const mg_run *r, const char *what, double v)
{
    char kept[64] = "there is no checkpoint";
    if (r->saved >= 0)
        snprintf(kept, sizeof kept, "the newest checkpoint is step %" PRId64, r->saved);
    return mg_fail(MG_NONFINITE,
                   "step %" PRId64 ": the %s is %s (rows %" PRIu64 " to %" PRIu64 "); %s",
                   r->step + 1, what,
                   isnan(v) ? "not a number"
                   : v > 0  ? "inf"
                            : "-inf",
                   r->samples, r->samples + (uint64_t)r->global - 1, kept);
}

/* One update. Fills p but for the times. */
static int step_run(mg_run *r, mg_progress *p)
{
    int64_t all = 0;
    MG_TRY(rows_read(r, &all));
    mg_scalar *s = &r->c.scalar;
    double n = (double)(r->samples + (uint64_t)r->global);
    s->step = (double)(r->step + 1);
    s->lr = mg_sched_lr(&r->sched, n);
    s->wd = mg_sched_wd(&r->sched, n);
    metrics_zero(r);
    for (int64_t mb = 0; mb < r->micros; mb++)
        micro_run(r, mb, all);
    double count = metric_get(r, r->count),
           loss = count > 0 ? metric_get(r, r->loss_sum) / count : 0;
    if (!isfinite(loss) || !isfinite(count))
        return fail_nonfinite(r, "loss", loss);
    MG_TRY(dumps_write(r));
    r->m->upd(&r->c);
    double gnorm = metric_get(r, r->gnorm);
    if (!isfinite(gnorm))
        return fail_nonfinite(r, "norm of the gradient", gnorm);
    r->step++;
    r->samples += (uint64_t)r->global;
    *p = (mg_progress){.step = r->step,
                       .steps = r->steps,
                       .loss = loss,
                       .gnorm = gnorm,
                       .lr = s->lr,
                       .wd = s->wd,
                       .targets = all,
                       .samples = r->samples};
    return MG_OK;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* Takes the targets outside [from, to) of each row away. */
static void targets_keep(int32_t *targets, int64_t rows, int seq, int from, int to)
{
    for (int64_t i = 0; i < rows * seq; i++)
        if (i % seq < from || i % seq >= to)
            targets[i] = -1;
}

/* Micro batch b of the evaluation into the rows of the step, which are free between two steps. Rows
 * behind the last window have no targets. */
static int windows_read(mg_run *r, uint64_t b)
{
    uint64_t windows = mg_data_windows(r->valid), row = (uint64_t)r->m->micro,
             seq = (uint64_t)r->m->seq;
    memset(r->row_tokens, 0, row * seq * sizeof *r->row_tokens);
    memset(r->row_targets, 0xff, row * seq * sizeof *r->row_targets);
    if (r->row_lo != NULL)
        memset(r->row_lo, 0, row * seq * sizeof *r->row_lo);
    for (uint64_t i = 0; i < row && b * row + i < windows; i++)
        MG_TRY(mg_data_window(r->valid, b * row + i, r->row_tokens + i * seq,
                              r->row_targets + i * seq, lo_at(r, (int64_t)i)));
    return MG_OK;
}

/* The verb `eval` takes all of it unless the command line limits it. */
static uint64_t eval_batches(const mg_run *r)
{
    const mg_conf *c = &r->conf;
    bool whole = strcmp(c->verb, "eval") == 0 &&
                 strcmp(mg_conf_origin(c, "eval.batches"), "command line") != 0;
    uint64_t row = (uint64_t)r->m->micro, all = (mg_data_windows(r->valid) + row - 1) / row;
    int64_t limit = whole ? 0 : mg_conf_int(c, "eval.batches", 20);
    return limit > 0 && (uint64_t)limit < all ? (uint64_t)limit : all;
}

int mg_run_eval(mg_run *r, int from, int to, double *loss, int64_t *targets)
{
    uint64_t batches = eval_batches(r);
    metrics_zero(r);
    *targets = 0;
    for (uint64_t b = 0; b < batches && stop_signal == 0; b++) {
        MG_TRY(windows_read(r, b));
        targets_keep(r->row_targets, r->m->micro, r->m->seq, from, to);
        *targets += targets_count(r->row_targets, (int64_t)r->m->micro * r->m->seq);
        batch_put(r, 0);
        if (r->poison)
            mg_poison(&r->c, MG_SCRATCH);
        r->m->eval(&r->c);
    }
    double count = metric_get(r, r->count);
    *loss = count > 0 ? metric_get(r, r->loss_sum) / count : 0;
    metrics_zero(r);
    return MG_OK;
}

double mg_run_probe(mg_run *r)
{
    const mg_model *m = r->m;
    if (m->eval == NULL)
        return 0;
    size_t n = (size_t)m->micro * (size_t)m->seq;
    memset(r->row_tokens, 0, n * sizeof *r->row_tokens);
    memset(r->row_targets, 0, n * sizeof *r->row_targets);
    if (r->row_lo != NULL)
        memset(r->row_lo, 0, n * sizeof *r->row_lo);
    batch_put(r, 0);
    double from = mg_now();
    m->eval(&r->c);
    double took = mg_now() - from;
    metrics_zero(r);
    return took;
}

static int eval_report(mg_run *r)
{
    double loss, from = mg_now();
    int64_t targets;
    char took[32];
    MG_TRY(mg_run_eval(r, 0, r->m->seq, &loss, &targets));
    if (stop_signal != 0)
        return MG_OK; /* only a part was seen */
    mg_log_line(&r->log, "step %" PRId64 "  valid loss %.4f over %" PRId64 " targets (%s)", r->step,
                loss, targets, mg_span(mg_now() - from, took));
    if (r->best_step == 0 || loss < r->best_loss) {
        r->best_step = r->step;
        r->best_loss = loss;
    }
    mg_text t = {0};
    mg_text_printf(&t, "{\"step\":%" PRId64 ",\"eval_loss\":", r->step);
    mg_json_num(&t, loss);
    mg_text_printf(&t, ",\"eval_targets\":%" PRId64 "}", targets);
    int rc = mg_log_metric(&r->log, &t);
    mg_text_free(&t);
    return rc;
}

/* ---- the loop -------------------------------------------------------------------------------- */

typedef struct {
    double marked, saved; /* time of the line before, of the checkpoint before */
    int64_t marked_step;
    int64_t log_every, eval_every, sample_every, save_every;
    double save_interval;
} Pace;

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static int step_log(mg_run *r, Pace *p, mg_progress *g)
{
    bool record = due(r->step, p->log_every) || r->step == r->steps || p->marked_step == 0;
    double now = mg_now();
    int64_t steps = r->step - p->marked_step;
    g->seconds = (now - p->marked) / (double)(steps > 0 ? steps : 1);
    g->rate = (double)r->global * r->m->seq / (g->seconds > 0 ? g->seconds : 1e-9);
    MG_TRY(mg_log_step(&r->log, g, record));
    if (record) {
        p->marked = mg_now();
        p->marked_step = r->step;
    }
    return MG_OK;
}

/* What follows a step. Times of evaluation, samples and saves do not count as step time. */
static int step_after(mg_run *r, Pace *p)
{
    double from = mg_now();
    bool last = r->step == r->steps;
    if (r->valid != NULL && p->eval_every > 0 && (due(r->step, p->eval_every) || last))
        MG_TRY(eval_report(r));
    if (due(r->step, p->sample_every) && stop_signal == 0)
        MG_TRY(mg_run_sample(r, mg_conf_str(&r->conf, "sample.prompt", "")));
    bool timed = p->save_interval > 0 && mg_now() - p->saved > p->save_interval;
    if (due(r->step, p->save_every) || timed || last || stop_signal != 0 || save_signal != 0) {
        save_signal = 0;
        if (r->log.dir != NULL)
            MG_TRY(mg_ckpt_save(r));
        p->saved = mg_now();
    }
    p->marked += mg_now() - from;
    return MG_OK;
}

static int stop_code(const mg_run *r)
{
    bool typed = stop_signal == SIGINT;
    return mg_fail(typed ? MG_INTERRUPTED : MG_PREEMPTED,
                   "stopped by %s after step %" PRId64 "; %s%s", typed ? "Ctrl-C" : "a signal",
                   r->step, r->saved == r->step ? "saved in " : "nothing was saved",
                   r->saved == r->step ? r->log.dir : "");
}

/* The last lines: what was done and where it is. */
static void summary(mg_run *r, int64_t first, double seconds)
{
    char took[32];
    double tokens = (double)(r->step - first) * (double)r->global * r->m->seq;
    mg_log_line(&r->log, "done: %" PRId64 " steps, %.0f tokens in %s, %.0f tok/s", r->step - first,
                tokens, mg_span(seconds, took), tokens / (seconds > 0 ? seconds : 1));
    struct rusage use;
    if (getrusage(RUSAGE_SELF, &use) == 0)
        mg_log_line(&r->log, "memory: %.1f MiB at most, %.1f MiB of it planned",
                    (double)use.ru_maxrss / 1024, (double)r->m->arena_bytes / 0x1p20);
    if (r->best_step > 0)
        mg_log_line(&r->log, "best valid loss %.4f at step %" PRId64, r->best_loss, r->best_step);
    if (r->saved >= 0)
        mg_log_line(&r->log, "checkpoint of step %" PRId64 " in %s", r->saved, r->log.dir);
}

int mg_run_train(mg_run *r)
{
    const mg_conf *c = &r->conf;
    mg_progress g = {0};
    Pace p = {.marked = mg_now(),
              .saved = mg_now(),
              .marked_step = r->step,
              .log_every = mg_conf_int(c, "log.every", 1),
              .eval_every = r->m->eval != NULL ? mg_conf_int(c, "eval.every", 0) : 0,
              .sample_every = r->logits != NULL ? mg_conf_int(c, "sample.every", 0) : 0,
              .save_every = mg_conf_int(c, "save.every", 0),
              .save_interval = mg_conf_time(c, "save.interval", 0)};
    r->c.scalar.clip = mg_conf_num(c, "train.clip", 1);
    r->c.scalar.seed = (uint64_t)mg_conf_int(c, "train.seed", 1);
    signals_catch();
    double first = 0, from = mg_now();
    int64_t first_step = r->step;
    while (r->step < r->steps) {
        MG_TRY(step_run(r, &g));
        if (first == 0)
            first = g.loss;
        MG_TRY(step_log(r, &p, &g));
        MG_TRY(step_after(r, &p));
        if (stop_signal != 0)
            return stop_code(r);
    }
    if (r->step > first_step)
        summary(r, first_step, mg_now() - from);
    if (r->overfit && !(g.loss < 0.5 * first))
        return mg_fail(MG_BAD,
                       "overfit: the loss of one batch went from %.4f to %.4f in %" PRId64
                       " steps, not below half",
                       first, g.loss, r->steps);
    return MG_OK;
}
