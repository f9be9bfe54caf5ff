/* schedule.h: learning rate and weight decay as functions of the samples consumed.
 *
 * n counts samples including those of the step that is about to be applied, so that the first step
 * of a warm-up is not lost. W = samples of the warm-up, D = samples at which the floor is reached.
 */
#ifndef MG_SCHED_H
#define MG_SCHED_H

#include "conf.h"

typedef struct {
    double lr, init, least;     /* largest, at the start of the warm-up, smallest */
    double warmup, decay;       /* W, D: samples */
    double wsd;                 /* samples of the decay at the end of wsd */
    double wd, wd_end, total;   /* weight decay at the start and after `total` samples */
    int style, shape, wd_style; /* rows of the tables in schedule.c */
} mg_sched;

/* Reads train.*; `global` = rows of a step. MG_USAGE for an unknown schedule or impossible numbers.
 */
int mg_sched_read(mg_sched *s, const mg_conf *c, int64_t global);

double mg_sched_lr(const mg_sched *s, double n);
double mg_sched_wd(const mg_sched *s, double n);

#endif
