/* loopgen.h: what loop_plan.c decides about a fused node and loopgen.c prints. */
#ifndef LOOPGEN_H
#define LOOPGEN_H

#include "megagen.h"

enum { E_LOOP = 211, LOOPS = 2 * RANK_MAX };

typedef struct {
    u32 mask; /* body dims merged into it */
    u32 last; /* the innermost of them */
    i64 size;
    bool seq; /* summed over into a result that keeps other rows: innermost of the rows */
} Loop;

typedef enum { OUT_PLAIN, OUT_COLUMNS, OUT_TOTAL, OUT_SOME } OutKind;
typedef struct {
    u8 kind; /* OutKind */
    bool adds;
    bool vec; /* varies along the vector loop */
    u32 part; /* OUT_COLUMNS, OUT_TOTAL: its partial buffer, index into Body.out */
    u32 sweep;
} OutInfo;

typedef struct {
    Graph *g;
    u32 node;
    const Node *nd;
    Body *b;
    const char *name;
    Text *t;
    bool wide;       /* f64 lanes */
    u32 inner;       /* mask of the body dims of the vector loop; 0: none */
    i64 n;           /* its extent */
    Loop row[LOOPS]; /* outermost first */
    u32 nrow;
    i64 rows, seqs; /* counts of the parallel and the sequential rows */
    i64 parts;
    bool flat; /* no rows: parts are ranges of the vector loop */
    OutInfo *out;
    u32 *level, *uses, *stored; /* by node; stored: 1 + output that holds it */
    bool *need;                 /* in this sweep */
    bool *done;                 /* row numbers already printed */
    Sym *id;                    /* C name of each node */
    u32 sweep;
    i64 tail;        /* lanes of the tail being printed; 0: a full vector */
    const char *pad; /* indentation */
} Gen;

/* Fill everything but names and text state. */
void loop_plan(Gen *e);
void loop_comment(Gen *e);

/* Elements from one index of a body dim to the next in a port's window; 0 if the value lacks it. */
i64 loop_stride(const Gen *e, bool out, u32 i, u32 dim);
/* Row-major over the logical dims of a node: the order of random numbers. */
i64 loop_rand_stride(const Gen *e, u32 dims, u32 dim);
i64 loop_rand_sample(const Gen *e, const BodyNode *n);
i64 loop_rand_elems(const Gen *e, u32 dims);
bool loop_has_trip(const Gen *e); /* takes `int trip`: it draws, in a loop body */
const BodyPort *loop_port(const Gen *e, bool out, u32 i);
bool loop_is_partial(const Body *b, u32 out);
u32 loop_reduced(const Body *b);
bool loop_is_vec(const Gen *e, u32 id); /* varies along the vector loop */
const char *loop_ctype(u8 dtype);       /* "float"; NULL: rows do not store it */

#endif
