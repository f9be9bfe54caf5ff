/* trainer.c: mg_trainer, the main of every generated trainer: command line to verb. */
#include "run.h"
#include "pool.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the model offers ------------------------------------------------------------------- */

static const mg_io *io_find(const mg_model *m, const char *name)
{
    for (int32_t i = 0; i < m->nio; i++)
        if (strcmp(m->io[i].name, name) == 0)
            return &m->io[i];
    return NULL;
}

static const mg_var *var_find(const mg_model *m, const char *path)
{
    for (int32_t i = 0; i < m->nvar; i++)
        if (strcmp(m->var[i].path, path) == 0)
            return &m->var[i];
    return NULL;
}

static int model_check(mg_run *r)
{
    const mg_model *m = r->m;
    if (m->abi != MG_ABI)
        return mg_fail(MG_INTERNAL, "%s was generated for interface %u, this runtime has %d",
                       m->name, m->abi, MG_ABI);
    r->tokens = io_find(m, "tokens");
    r->targets = io_find(m, "targets");
    r->lo = io_find(m, "lo");
    r->logits = m->logits != NULL ? io_find(m, "logits") : NULL;
    r->loss_sum = var_find(m, "loss_sum");
    r->count = var_find(m, "count");
    r->gnorm = var_find(m, "gnorm");
    if (r->tokens == NULL || r->targets == NULL || r->loss_sum == NULL || r->count == NULL)
        return mg_fail(MG_INTERNAL, "%s: tokens, targets, loss_sum or count is missing", m->name);
    if (r->tokens->dtype != MG_I32 || r->targets->dtype != MG_I32)
        return mg_fail(MG_INTERNAL, "%s: tokens and targets must be i32", m->name);
    return MG_OK;
}

/* The binary's instructions must exist here: a clear word instead of SIGILL in the first kernel. */
static int cpu_check(const mg_model *m)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if ((strcmp(m->cpu, "avx2") == 0 && !avx2) || (strcmp(m->cpu, "avx512") == 0 && !avx512))
        return mg_fail(MG_ENVIRONMENT,
                       "built for %s, which this CPU lacks; rebuild with target=cpu here", m->cpu);
#else
    (void)m;
#endif
    return MG_OK;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static int batch_read(mg_run *r)
{
    const mg_model *m = r->m;
    r->global = mg_conf_int(&r->conf, "batch.global", m->micro);
    r->steps = mg_conf_int(&r->conf, "train.steps", 1000);
    if (r->global < m->micro || r->global % m->micro != 0)
        return mg_fail(MG_USAGE, "batch.global = %" PRId64 " is not a multiple of batch.micro = %d",
                       r->global, m->micro);
    if (r->steps < 0)
        return mg_fail(MG_USAGE, "train.steps = %" PRId64 " is negative", r->steps);
    r->micros = r->global / m->micro;
    r->by_micro = strcmp(mg_conf_str(&r->conf, "train.loss_mean", "token"), "microbatch") == 0;
    size_t n = (size_t)r->global * (size_t)m->seq * sizeof *r->row_tokens;
    r->row_tokens = malloc(n);
    r->row_targets = malloc(n);
    r->row_lo = r->lo != NULL ? malloc(n) : NULL;
    if (r->row_tokens == NULL || r->row_targets == NULL || (r->lo != NULL && r->row_lo == NULL))
        return mg_fail(MG_NO_FIT, "no memory for the %" PRId64 " rows of a step", r->global);
    return mg_sched_read(&r->sched, &r->conf, r->global);
}

static int data_open(mg_run *r, const char *key, bool needed, mg_data **d)
{
    const char *list = mg_conf_str(&r->conf, key, "");
    if (*list == 0 && needed)
        return mg_fail(
            MG_USAGE,
            "%s is not set; make files with `megagen data prepare my.txt -o my`, then %s=my", key,
            key);
    if (*list == 0)
        return MG_OK;
    return mg_data_open(d, list, (uint64_t)mg_conf_int(&r->conf, "data.seed", 1), r->m->seq,
                        r->m->vocab, mg_conf_bool(&r->conf, "data.eod_mask_loss", false));
}

/* What a run takes: the arena, the workers' scratch, the rows of a step. */
static uint64_t memory_need(const mg_run *r)
{
    uint64_t row = (r->lo != NULL ? 3 : 2) * sizeof(int32_t) * (uint64_t)r->m->seq;
    int64_t global = mg_conf_int(&r->conf, "batch.global", r->m->micro);
    return r->m->arena_bytes + MG_SCRATCH_BYTES + row * (uint64_t)(global > 0 ? global : 0);
}

/* Refuses before anything is touched, with what would fit. */
static int memory_check(const mg_run *r)
{
    uint64_t need = memory_need(r), have = mg_memory_free(), rest = need - r->m->arena_bytes;
    if (have == 0 || need <= have)
        return MG_OK;
    mg_text t = {0};
    mg_text_printf(&t, "%s needs %.1f MiB of memory, %.1f MiB are free", r->m->name,
                   (double)need / 0x1p20, (double)have / 0x1p20);
    for (int32_t i = 0; i < r->m->nfit; i++) {
        const mg_fit *f = &r->m->fit[i];
        mg_text_printf(&t, "\n  rebuilt with %s: %.1f MiB%s", f->change,
                       (double)(f->bytes + rest) / 0x1p20,
                       f->bytes + rest <= have ? ", which fits" : "");
    }
    int rc = mg_fail(MG_NO_FIT, "%s", t.p);
    mg_text_free(&t);
    return rc;
}

static int memory_open(mg_run *r)
{
    int workers = mg_pool_size();
    MG_TRY(mg_arena_map(r->m->arena_bytes, &r->c.mem));
    r->c.model = r->m;
    r->c.pool = mg_pool_new(workers);
    if (r->c.pool == NULL)
        return mg_fail(MG_NO_FIT, "cannot start %d threads", workers);
    r->poison = getenv("MG_POISON") != NULL && strcmp(getenv("MG_POISON"), "0") != 0;
    for (int k = MG_SAVED; r->poison && k <= MG_SCRATCH; k++)
        mg_poison(&r->c, (mg_region_kind)k);
    return MG_OK;
}

static int run_open(mg_run *r, bool training)
{
    bool eval = strcmp(r->conf.verb, "eval") == 0;
    MG_TRY(model_check(r));
    MG_TRY(cpu_check(r->m));
    MG_TRY(memory_check(r));
    MG_TRY(batch_read(r));
    if (training)
        MG_TRY(data_open(r, "data.train", true, &r->train));
    if (training || eval)
        MG_TRY(data_open(r, "data.valid", eval, &r->valid));
    return memory_open(r);
}

static void run_close(mg_run *r)
{
    mg_log_close(&r->log);
    mg_data_close(r->train);
    mg_data_close(r->valid);
    mg_pool_free(r->c.pool);
    mg_arena_unmap(r->c.mem, r->m->arena_bytes);
    free(r->row_tokens);
    free(r->row_targets);
    free(r->row_lo);
    mg_conf_free(&r->conf);
}

/* ---- where a run begins ---------------------------------------------------------------------- */

/* The folder to go on from, or NULL for a new run. *fork: the checkpoint is read, the folder is
 * new. */
static int resume_find(mg_run *r, char **from, bool *fork)
{
    const char *resume = mg_conf_str(&r->conf, "resume", ""),
               *out = mg_conf_str(&r->conf, "out", "");
    int64_t step;
    *from = NULL;
    *fork = false;
    if (r->overfit || strcmp(resume, "never") == 0) {
        if (*out != 0 && !r->overfit && mg_ckpt_has(out, &step))
            return mg_fail(MG_USAGE,
                           "%s already has a checkpoint of step %" PRId64
                           "; resume=auto goes on from it",
                           out, step);
        return MG_OK;
    }
    if (*resume != 0 && strcmp(resume, "auto") != 0) {
        *from = strdup(resume);
        *fork = mg_ckpt_is_one(resume) || *out != 0;
        return MG_OK;
    }
    char *dir = *out != 0 ? strdup(out) : *resume != 0 ? mg_log_newest(r->m->name) : NULL;
    if (dir != NULL && mg_ckpt_has(dir, &step) && (*out != 0 || step < r->steps))
        *from = dir;
    else
        free(dir);
    return MG_OK;
}

static int run_json(mg_run *r)
{
    const mg_model *m = r->m;
    mg_text t = {0};
    mg_text_printf(&t, "{\"model\": ");
    mg_json_str(&t, m->name);
    mg_text_printf(
        &t,
        ",\n\"hash\": \"%s\",\n\"megagen\": \"%s\",\n\"target\": \"%s %s\",\n\"workers\": %d,\n",
        m->hash, m->version, m->target, m->cpu, mg_pool_workers(r->c.pool));
    mg_text_printf(&t, "\"parameters\": %" PRIu64 ",\n\"first_step\": %" PRId64 ",\n\"config\": ",
                   m->params, r->step + 1);
    mg_conf_json(&r->conf, &t);
    mg_text_printf(&t, "}\n");
    int rc = mg_file_replace(r->log.dir, "run.json", t.p, t.n);
    mg_text_free(&t);
    return rc;
}

/* First values, or those of a checkpoint; then the run folder is opened where they leave off. */
static int state_open(mg_run *r)
{
    char *from, *dir = NULL;
    bool fork;
    const char *init = mg_conf_str(&r->conf, "train.init", "random"),
               *out = mg_conf_str(&r->conf, "out", "");
    r->saved = -1;
    MG_TRY(resume_find(r, &from, &fork));
    mg_init(&r->c, (uint64_t)mg_conf_int(&r->conf, "train.seed", 1));
    if (from != NULL)
        MG_TRY(mg_ckpt_load(r, from, true, &dir));
    else if (strncmp(init, "ckpt:", 5) == 0)
        MG_TRY(mg_ckpt_load(r, init + 5, false, &dir));
    else if (strcmp(init, "random") != 0)
        return mg_fail(MG_USAGE, "train.init = '%s': known are random and ckpt:DIR", init);
    if (from != NULL && !fork)
        r->saved = r->step;
    if (!r->conf.dry_run && !r->overfit) {
        MG_TRY(mg_log_open(&r->log, from != NULL && !fork ? from : out, r->m->name, r->step));
        if (r->log.dir != NULL) {
            mg_ckpt_sweep(r);
            MG_TRY(run_json(r));
        }
    }
    if (dir != NULL)
        mg_log_line(&r->log, "%s %s: step %" PRId64, from != NULL ? "resumed from" : "weights of",
                    dir, r->step);
    free(dir);
    free(from);
    return MG_OK;
}

/* ---- first lines ----------------------------------------------------------------------------- */

static void say_model(mg_run *r)
{
    const mg_model *m = r->m;
    mg_log_line(&r->log, "%s: %.2f M parameters, %.1f MiB, %.2f MFLOP a token, %s %s, %d threads",
                m->name, (double)m->params / 1e6, (double)m->arena_bytes / 0x1p20,
                m->flops_token / 1e6, m->target, m->cpu, mg_pool_workers(r->c.pool));
    if (r->train != NULL)
        mg_log_line(&r->log,
                    "data: %" PRIu64 " tokens in %" PRIu64 " documents; %" PRId64
                    " x %d tokens a step, %" PRId64 " micro batches",
                    mg_data_tokens(r->train), mg_data_documents(r->train), r->global, m->seq,
                    r->micros);
    if (r->log.dir != NULL)
        mg_log_line(&r->log, "run folder: %s", r->log.dir);
}

/* A step is about three forward passes for each micro batch. */
static void say_forecast(mg_run *r)
{
    char buf[32];
    double forward = mg_run_probe(r), step = forward * 3 * (double)r->micros;
    if (forward == 0)
        return;
    mg_log_line(&r->log, "predicted: %s a step", mg_span(step, buf));
    if (step > 30 && r->micros > 1)
        mg_log_line(&r->log, "  that is slow; batch.global=%d gives %s a step", r->m->micro,
                    mg_span(forward * 3, buf));
    else if (step > 30)
        mg_log_line(
            &r->log,
            "  that is slow; rebuild with a smaller batch.micro or batch.seq, or a smaller model");
}

static void say_memory(mg_run *r)
{
    static const char *const name[MG_NREGION] = {"parameters", "gradients", "state",
                                                 "saved",      "scratch",   "in and out"};
    for (int i = 0; i < MG_NREGION; i++)
        mg_log_line(&r->log, "  %-12s %10.2f MiB", name[i], (double)r->m->region[i].bytes / 0x1p20);
    mg_log_line(&r->log, "  %-12s %10.2f MiB of %.2f MiB free", "arena",
                (double)r->m->arena_bytes / 0x1p20, (double)mg_memory_free() / 0x1p20);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

static int verb_train(mg_run *r)
{
    r->overfit = strcmp(r->conf.verb, "overfit") == 0;
    MG_TRY(run_open(r, true));
    MG_TRY(state_open(r));
    say_model(r);
    say_forecast(r);
    if (r->conf.dry_run) {
        say_memory(r);
        return MG_OK;
    }
    if (r->step >= r->steps)
        mg_log_line(&r->log, "nothing to do: step %" PRId64 " of %" PRId64, r->step, r->steps);
    return mg_run_train(r);
}

static int trained_open(mg_run *r)
{
    const char *ckpt = mg_conf_str(&r->conf, "ckpt", "");
    char *newest = *ckpt != 0 ? strdup(ckpt) : mg_log_newest(r->m->name), *dir = NULL;
    MG_TRY(run_open(r, false));
    if (newest == NULL)
        return mg_fail(MG_INPUT, "no run of %s here (runs/%s-N); train first or give ckpt=PATH",
                       r->m->name, r->m->name);
    mg_init_tables(&r->c);
    MG_TRY(mg_ckpt_load(r, newest, true, &dir));
    fprintf(stderr, "%s: step %" PRId64 "\n", dir, r->step);
    free(dir);
    free(newest);
    return MG_OK;
}

static int verb_eval(mg_run *r)
{
    double loss;
    int64_t targets;
    MG_TRY(trained_open(r));
    if (r->m->eval == NULL)
        return mg_fail(MG_USAGE, "%s has no evaluation", r->m->name);
    MG_TRY(mg_run_eval(r, 0, r->m->seq, &loss, &targets));
    printf("step %" PRId64 "  valid loss %.6f over %" PRId64 " targets\n", r->step, loss, targets);
    int seq = r->m->seq, last = seq > 64 ? seq - 64 : 0;
    if (!mg_conf_bool(&r->conf, "by_position", false))
        return MG_OK;
    MG_TRY(mg_run_eval(r, 0, 8, &loss, &targets));
    printf("  tokens 0-7 of a row: %.6f over %" PRId64 " targets\n", loss, targets);
    MG_TRY(mg_run_eval(r, last, seq, &loss, &targets));
    printf("  tokens %d-%d of a row: %.6f over %" PRId64 " targets\n", last, seq - 1, loss,
           targets);
    return MG_OK;
}

static int verb_sample(mg_run *r)
{
    MG_TRY(trained_open(r));
    r->c.scalar.seed =
        (uint64_t)(mg_conf_int(&r->conf, "train.seed", 1) + mg_conf_int(&r->conf, "seed", 0));
    const char *prompt = mg_conf_str(&r->conf, "prompt", "");
    return mg_run_sample(r, *prompt != 0 ? prompt : mg_conf_str(&r->conf, "sample.prompt", ""));
}

static const struct {
    const char *name;
    int (*run)(mg_run *r);
} verb_table[] = {
    {"train", verb_train}, {"overfit", verb_train}, {"eval", verb_eval}, {"sample", verb_sample}};

static int verb_run(mg_run *r)
{
    const mg_conf *c = &r->conf;
    if (c->help)
        mg_conf_help(c);
    else if (c->version)
        printf("%s, spec %s, megagen %s\n", r->m->name, r->m->hash, r->m->version);
    else if (c->print_config)
        mg_conf_print(c);
    else
        for (size_t i = 0; i < sizeof verb_table / sizeof *verb_table; i++)
            if (strcmp(c->verb, verb_table[i].name) == 0)
                return verb_table[i].run(r);
    return MG_OK;
}

int mg_trainer(int argc, char **argv, const mg_model *m)
{
    mg_run r = {.m = m};
    mg_std_open();
    signal(SIGXFSZ,
           SIG_IGN); /* a file that may not grow is a full disk: the save fails, not the run */
    int rc = mg_conf_parse(&r.conf, m, argc, argv);
    mg_log_start(&r.log, r.conf.quiet);
    if (rc == MG_OK)
        rc = verb_run(&r);
    fflush(stdout);
    if (rc != MG_OK)
        fprintf(stderr, "%s%s: %s\n", r.log.drawn ? "\n" : "",
                rc == MG_PREEMPTED || rc == MG_INTERRUPTED ? "trainer" : "error", mg_errmsg());
    run_close(&r);
    return rc;
}
