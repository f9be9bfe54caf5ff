/* run.h: one run of a trainer, shared by its loop (train.c), checkpoints (ckpt.c), samples
 * (sample.c) and verbs (trainer.c). */
#ifndef MG_RUN_H
#define MG_RUN_H

#include "conf.h"
#include "data.h"
#include "log.h"
#include "schedule.h"

typedef struct {
    mg_conf conf;
    const mg_model *m;
    mg_ctx c;
    mg_log log;
    mg_sched sched;
    mg_data *train, *valid;                 /* NULL = not given */
    const mg_io *tokens, *targets, *lo;     /* lo: NULL = documents see each other */
    const mg_io *logits;                    /* logits: NULL = the model has no head */
    const mg_var *loss_sum, *count, *gnorm; /* metrics; gnorm may be NULL */
    int64_t global, micros;                 /* rows of a step; micro batches of a step */
    int64_t step, steps;                    /* updates done; updates wanted */
    uint64_t samples;                       /* rows consumed */
    int64_t best_step;                      /* of the best evaluation; 0 = none */
    double best_loss;
    int64_t saved; /* step of the newest checkpoint of this run, or -1 */
    int32_t *row_tokens, *row_targets,
        *row_lo;   /* [global seq] the rows of a step; row_lo: or NULL */
    bool overfit;  /* every step reads the rows of the first */
    bool by_micro; /* loss_mean = microbatch */
    bool poison;   /* MG_POISON: NaN in what a step must write first */
} mg_run;

/* ---- train.c --------------------------------------------------------------------------------- */

/* Steps from r->step to r->steps with evaluation, samples and checkpoints. The exit code of the
 * run. */
int mg_run_train(mg_run *r);

/* One forward pass of zeros: touches the memory and gives the seconds it took; 0 without `eval`. */
double mg_run_probe(mg_run *r);

/* Mean loss over data.valid at the tokens [from, to) of each row; *targets = how many it was taken
 * over. */
int mg_run_eval(mg_run *r, int from, int to, double *loss, int64_t *targets);

/* ---- sample.c -------------------------------------------------------------------------------- */

/* Prints text that continues `prompt`. Random numbers depend only on (seed, step, place). */
int mg_run_sample(mg_run *r, const char *prompt);

/* ---- ckpt.c ---------------------------------------------------------------------------------- */

/* Saves into DIR/ckpt/step-N: temporary folder, fsync, rename, then the `latest` pointer; then
 * checks what was written and removes all but the newest save.keep. MG_STORAGE: the old checkpoint
 * is intact. */
int mg_ckpt_save(mg_run *r);

/* Loads a run folder (its newest good checkpoint) or one checkpoint folder. `state`: moments, step
 * and position too; else weights only. *dir: what was loaded, the caller's to free. */
int mg_ckpt_load(mg_run *r, const char *path, bool state, char **dir);

/* Whether a run folder has a checkpoint, and its step. */
bool mg_ckpt_has(const char *run_dir, int64_t *step);

/* Whether `path` is one checkpoint rather than a run folder. */
bool mg_ckpt_is_one(const char *path);

/* Removes what a killed save left behind, and what save.keep does not keep. The run folder must be
 * locked, and r->saved be -1 or a checkpoint that was loaded from it. */
void mg_ckpt_sweep(mg_run *r);

/* dump=WHAT@STEP: writes gradients, weights or marked values of this step into the run folder. */
int mg_dump(mg_run *r, const char *what);

#endif
