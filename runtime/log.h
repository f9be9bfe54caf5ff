/* log.h: the run folder and everything a person or a program reads of a run.
 *
 *     runs/NAME-N/  run.json metrics.jsonl train.log ckpt/ lock
 *
 * metrics.jsonl has one object a line, "step" first. Lines go to stdout and train.log; on a
 * terminal the lines of steps are redrawn in place instead, at most four times a second.
 */
#ifndef MG_LOG_H
#define MG_LOG_H

#include "base.h"

#include <stdio.h>

typedef struct {
    char *dir;         /* run folder; NULL = no files are written */
    int lock, metrics; /* file descriptors, -1 = closed */
    FILE *text;        /* train.log */
    bool tty, quiet;
    bool drawn; /* a progress line stands on the terminal */
    double drawn_at;
} mg_log;

typedef struct {
    int64_t step, steps;
    double loss, gnorm, lr, wd;
    int64_t targets;
    uint64_t samples;
    double rate;    /* tokens a second since the line before */
    double seconds; /* a step since the line before */
} mg_progress;

/* A log that only prints. */
void mg_log_start(mg_log *l, bool quiet);

/* Makes or takes the run folder `dir` (empty: the next free runs/NAME-N) and locks it: MG_HELD with
 * the holder when another process has it. Lines of metrics.jsonl after `step` are cut off. */
int mg_log_open(mg_log *l, const char *dir, const char *name, int64_t step);
void mg_log_close(mg_log *l);

/* One line of text. Needs no newline. */
void mg_log_line(mg_log *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The line and the metrics of a step. `record`: a line that stays; else only the terminal is
 * redrawn. */
int mg_log_step(mg_log *l, const mg_progress *p, bool record);

/* Appends a line, which must be an object that begins with "step", to metrics.jsonl. */
int mg_log_metric(mg_log *l, const mg_text *line);

/* What was appended lasts. */
int mg_log_sync(mg_log *l);

/* The newest runs/NAME-N, or NULL. The caller frees it. */
char *mg_log_newest(const char *name);

/* "1h05m", "12m30s", "42s", "1.5s", "520ms" for people. */
const char *mg_span(double seconds, char buf[32]);

#endif
