/* emit_int.h: what emit.c (files and tables) and emit_func.c (one Func as one C function) share. */
#ifndef EMIT_INT_H
#define EMIT_INT_H

#include "megagen.h"

typedef struct {
    const char *text; /* C, with its indentation */
    const char *note; /* margin comment, "" for none */
    u32 node;         /* 1 + node for the line map, 0: none */
} Line;
typedef VEC(Line) Lines;

/* One field of a Func's table of calls: a byte offset from c->mem that differs from call to call.
 */
typedef enum { FIELD_IN, FIELD_OUT, FIELD_FORMAL, FIELD_SAVED, FIELD_LAYER } FieldKind;
typedef struct {
    u8 kind;
    Sym name, formal;
    u32 index;        /* FIELD_IN, FIELD_OUT: of Func.in, Func.out */
    const char *note; /* type, for the comment beside the field */
} Field;

/* A position in a call's block of saves, as a #define of model.h. */
typedef struct {
    Sym name;
    u32 value;
    u64 off;
    const char *note;
} SaveName;

typedef struct {
    u32 func;
    Loc loc;                   /* of the Func, else of its first node */
    Sym name, type;            /* block_fwd, block_fwd_k */
    const char *title;         /* for the comment above it */
    const char *what, *layers; /* "block, forward"; "layers 0..3" or "" */
    VEC(Field) field;
    Lines decl, line;
    f64 flops; /* of one call */
    u32 first; /* row of the table of calls where the next call goes */
} CFunc;

typedef struct {
    Graph *g;
    VEC(CFunc) func;
    u32 *cfunc; /* by Func id: 1 + index of func */
    VEC(SaveName) save;
    VEC(Sym) taken; /* C names of file scope */
} Emit;

enum { MARGIN = 62, WIDTH = 100 };

Sym name_unique(Emit *e, Sym want); /* of file scope; taken from then on */
void emit_func(Emit *e, u32 func);  /* appends a CFunc */
const char *func_prototype(Graph *g, const Inst *inst);
const char *type_text(Graph *g, const Type *t);        /* "[b=8 s=128 d=128]" */
const char *file_text(Graph *g, Sym file);             /* without the folders of an absolute path */
const char *loc_text(Graph *g, Loc loc);               /* "specs/tiny.lua:12" */
const char *amount(Graph *g, f64 v, const char *unit); /* "50.3 MFLOP" */
u32 var_of_formal(Graph *g, const Call *call, Sym formal); /* var id, or FLAT_BIND | flat */
bool is_op(const Graph *g, u32 node, const char *name);

#endif
