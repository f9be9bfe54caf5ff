/* verify.h: what verify.c (Funcs), verify_run.c (calls, bytes) and verify_step.c (commands) share.
 */
#ifndef VERIFY_H
#define VERIFY_H

#include "megagen.h"

enum {
    E_SSA = 710,    /* order and ownership of values, nodes, Funcs */
    E_TYPE = 711,   /* types differ from what the op gives */
    E_EFFECT = 712, /* read, write, accum */
    E_LOOP = 713,
    E_BODY = 714,   /* a fused node and its body */
    E_WINDOW = 715, /* a window outside of its base, or overwritten while it is needed */
    E_PLACE = 716,  /* placement on the mesh */
    E_CALL = 720,   /* calls, regs, bindings */
    E_SAVE = 721,
    E_MEMORY = 722, /* two things in the same bytes */
    E_PAIR = 723,   /* a send without its receive, or another one */
    E_DEADLOCK = 724,
    E_ORDER = 725, /* collectives in another order */
};

/* What is being looked at; every complaint names it. */
typedef struct {
    Graph *g;
    const char *after; /* the pass */
    u32 func, node;
} Check;

_Noreturn void verify_fail(const Check *c, u32 code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
const char *verify_value(const Check *c, u32 value); /* "%5 (attn.q)", numbered as in the text */
bool verify_same_place(const Graph *g, const Place *a, const Place *b);
bool verify_stage_atom(Graph *g, u32 a); /* atom a + 1 belongs to pp: stages, not copies */
const char *verify_reg(const Check *c, u32 reg);
void verify_run(Check *c);
void verify_steps(Check *c);

#endif
