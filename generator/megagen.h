/* megagen.h: every structure of the generator and the prototypes of every file, in pass order.
 *
 *   spec (Lua) --expand--> Graph --autodiff update precision remat fuse tune plan--> Graph
 * --emit--> text
 *
 * The whole program lives in one Graph. Ids are 32-bit indices into its arrays, 0 is none; strings
 * are interned as Sym. A pass is `void pass_NAME(Graph *)`; it never calls another pass; the list
 * is in main.c; verify() runs after each. Arrays may move when they grow: keep ids, never pointers,
 * across an add. The text form of everything here is `.mg` (text.c); its grammar is in
 * generator/README.md.
 */
#ifndef MEGAGEN_H
#define MEGAGEN_H

#define MEGAGEN_VERSION "0.1"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int8_t i8;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef double f64;

typedef u32 Sym; /* interned string, sym_str() gives it back; 0 is "" */

typedef struct Graph Graph;
typedef struct Arena Arena;

enum { RANK_MAX = 8, ATOM_MAX = 8 };

/* ==== util.c: memory, strings, files, diagnostics ============================================= */

Arena *arena_new(void);
void arena_free(Arena *a);
void *arena_alloc(Arena *a, u64 bytes); /* zeroed, 16-byte aligned, never NULL */
u64 arena_bytes(const Arena *a);        /* taken from the system so far */
char *arena_fmt(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A growable array in an arena: { at, n, cap }. Growing moves it; the hostile build (-DMG_HOSTILE)
 * grows by one and poisons the old place, so that a pointer kept across a push is found. */
#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *at;                                                                                     \
        u32 n, cap;                                                                                \
    }
void vec_grow(Arena *a, void **at, u32 *cap, u32 n, u64 size); /* room for n elements */
#define vec_push(a, v, ...)                                                                        \
    (vec_grow((a), (void **)&(v)->at, &(v)->cap, (v)->n + 1, sizeof *(v)->at),                     \
     (v)->at[(v)->n] = __VA_ARGS__, (v)->n++)

typedef VEC(char) Text; /* string builder; text_str() ends it with a NUL */
void text_put(Arena *a, Text *t, const char *s);
void text_fmt(Arena *a, Text *t, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *text_str(Arena *a, Text *t);

Sym sym(Graph *g, const char *s);
Sym sym_n(Graph *g, const char *s, u64 n);
Sym sym_fmt(Graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *sym_str(const Graph *g, Sym s);

u64 hash_bytes(const void *p, u64 n, u64 seed); /* XXH3-64; stable across machines */
int file_read(Arena *a, const char *path, char **data, u64 *n); /* 0, or errno */
/* 0 same, 1 written, <0 -errno */
int file_write_changed(const char *path, const void *data, u64 n);

typedef struct {
    Sym file;
    i32 line, col; /* 1-based; col 0 = unknown; line 0 = no position */
} Loc;

/* Our own files (rules, templates, kernels, the runtime's sources), named from the top of the tree:
 * "kernels/cpu/mgk.h". Embedded in the binary by the build (const Asset *asset_table(void)), else
 * read from the folder that holds the binary. */
typedef struct {
    const char *path, *data; /* data ends with a NUL that n does not count */
    u64 n;
} Asset;
const char *asset_read(Arena *a, const char *path, u64 *n); /* NULL: there is none */
/* Paths of the assets directly in folder `dir` that end in `suffix`, sorted by bytes; -> count. */
u32 asset_list(Arena *a, const char *dir, const char *suffix, const char ***path);
/* asset, or a kernel file of the spec's own */
const char *kernel_read(Graph *g, const char *path, u64 *n);

/* User mistakes. The first line of the message is the error; further lines starting with "help:" or
 * "note:" follow the source line and caret. CODE is Exxxx of the table in diag.lua (1xx Lua, 2xx
 * schema, 3xx shapes and layout, 4xx memory, 5xx target, 6xx names). Does not return: jumps to
 * g->on_fail. */
_Noreturn void fail(Graph *g, Loc loc, u32 code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same report, but the pass goes on to find more; it must end in fail(). */
void note_error(Graph *g, Loc loc, u32 code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void warn(Graph *g, Loc loc, u32 code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* ==== types, values, nodes ==================================================================== */

typedef enum {
    DT_NONE,
    DT_F, /* "the compute type": what layers are written in; pass precision replaces it */
    DT_F64,
    DT_F32,
    DT_BF16,
    DT_F16,
    DT_E4M3,
    DT_E5M2,
    DT_I64,
    DT_I32,
    DT_U32,
    DT_U16,
    DT_U8,
    DT_BOOL,
    DT_COUNT
} Dtype;
u32 dtype_size(u8 dt);          /* bytes; DT_F has none and asserts */
const char *dtype_name(u8 dt);  /* "f", "f64", "bf16", ... */
const char *dtype_ctype(u8 dt); /* "double", "float", "bf16" (a uint16_t), "int32_t", ... */
u8 dtype_parse(const char *s);  /* DT_NONE if unknown */

/* A named dim. Two dims with one letter and different sizes are two Dims ("d", "d.1"). */
typedef struct {
    Sym name;
    i64 size;  /* logical extent */
    i64 pad;   /* extent in memory, >= size (vocabulary padding); 0 = size */
    i64 max;   /* upper bound of a dynamic dim; 0 = static */
    u32 count; /* value with the live count of a dynamic dim */
} Dim;

typedef struct {
    u8 dtype, rank;
    u32 dim[RANK_MAX]; /* ids of g->dim, outermost first */
} Type;

typedef enum { PL_R, PL_S, PL_P, PL_M, PL_F, PL_W } PlaceKind;
typedef enum { SPLIT_BLOCK, SPLIT_ZIGZAG } SplitOrder;
/* Placement on one mesh atom: Replicated, Split on a dim, Partial sum, partial Max, Flat range of a
 * bucket (ZeRO), Whole tensors dealt out (matrix optimizers). */
typedef struct {
    u8 kind, order;
    u8 dim;     /* PL_S: index into Type.dim */
    u32 bucket; /* PL_F, PL_W: id of g->flat */
} Place;

typedef struct {
    Sym name;
    i32 size;
} Atom; /* a factor of the rank grid; atom a has its Place in at[a - 1]; an Axis lists some */

typedef struct {
    Sym name;
    u8 natom, atom[ATOM_MAX];
} Axis;

typedef enum {
    VF_RESID = 1,   /* on the residual stream: always worth saving */
    VF_ROWSTAT = 2, /* one number a row (rstd, mean, lse): 4 B a row, saved */
    VF_MARKED = 4,  /* mg.mark(v, name): dump, log and place patterns may name it */
    VF_NOGRAD = 8,  /* integer or explicitly stopped */
} ValueFlags;

/* A value is a window on a base: element offset and stride per dim (0 = broadcast). View nodes make
 * windows and print no code. view_resolve() fills base, off and stride from the view nodes. */
typedef struct {
    Type type;
    Place at[ATOM_MAX];
    u32 node, func;            /* producer; node 0 = input of func */
    u16 out, flags;            /* which result of node; ValueFlags */
    Sym path;                  /* module path, or the name given by mark */
    u32 base;                  /* value whose buffer this is; itself when it owns one */
    i64 off, stride[RANK_MAX]; /* elements from the start of base */
    u32 buf;                   /* pass plan: id of g->buf (bases only) */
} Value;

typedef enum { AT_INT, AT_NUM, AT_SYM, AT_DIM, AT_DIMS, AT_NUMS } AttrKind;
typedef struct {
    Sym key;
    u8 kind, n; /* AttrKind; element count of AT_DIMS and AT_NUMS */
    union {
        i64 i;
        f64 num;
        Sym sym;
        u32 dim[RANK_MAX];
        f64 nums[RANK_MAX];
    };
} Attr;

typedef enum { WHEN_ALWAYS, WHEN_FIRST_MICRO, WHEN_LAST_MICRO } When;
typedef enum { OPERAND_CARRY, OPERAND_SLICE, OPERAND_INVARIANT } OperandKind; /* loop operands */
typedef enum { RESULT_CARRY, RESULT_STACK, RESULT_SUM } ResultKind;           /* loop results */

typedef struct {
    u32 op;          /* id of g->op */
    u32 in, nin;     /* value ids: g->arg[in .. in+nin) */
    u32 out, nout;   /* results: value ids out .. out+nout-1 */
    u32 attr, nattr; /* g->attr[attr .. attr+nattr) */
    u32 func;        /* the Func it stands in */
    u32 formal;      /* read, write, accum: 1 + index into Func.formal */
    u32 body;        /* op fused: Body id. op loop: Func id of one trip */
    i32 trips;       /* loop only */
    u8 when;         /* When */
    i8 skew;         /* calls ahead in the chain (prefetch); 0 = in place */
    u8 beta;         /* accum: 1 = add, 0 = first writer of the step (trip 0 of micro batch 0) */
    u8 lane;         /* pass order */
    u16 kern;        /* pass tune: id of g->inst (kernel instance) */
    bool dead;
    Sym path, pass; /* module path; the pass that made it */
    Loc loc;        /* spec position */
} Node;

/* ==== Funcs, Vars, chains ===================================================================== */

typedef enum {
    ROLE_FWD,
    ROLE_BWD,
    ROLE_BWDW,
    ROLE_LOSS,
    ROLE_EVAL,
    ROLE_LOGITS,
    ROLE_UPD,
    ROLE_PREFILL,
    ROLE_DECODE,
    ROLE_LOOP,
    ROLE_COUNT
} Role; /* LOSS: value and gradient in one Func. LOOP: the body of a loop node */

/* A persistent variable as a Func sees it: by a name relative to the call's prefix ("attn.wqkv"),
 * or absolute with a leading slash ("/embed.w", shared by every call). */
typedef struct {
    Sym name;
    Type type;
    u8 kind; /* VarKind */
} Formal;

/* One layer's body; knows no layer count. Nodes stand in execution order. */
typedef struct {
    Sym name;
    u8 role;
    bool dead;
    VEC(u32) node;    /* node ids */
    VEC(u32) in, out; /* value ids */
    VEC(Formal) formal;
    VEC(u8) in_kind, out_kind; /* ROLE_LOOP: OperandKind of in, ResultKind of out */
    u32 twin;                  /* the forward Func that a BWD, LOSS or EVAL Func was made from */
    Sym path;                  /* "layers.*", for the comment above it */
    Loc loc;
} Func;

typedef enum {
    VAR_WEIGHT,
    VAR_ACCUM,
    VAR_MASTER,
    VAR_MOMENT,
    VAR_CACHE,
    VAR_STAT,
    VAR_TABLE,
    VAR_SCALAR,
    VAR_METRIC,
    VAR_COUNT
} VarKind;
typedef enum { LIFE_RUN, LIFE_STEP, LIFE_MICRO, LIFE_REQUEST } Life;
typedef enum { INIT_ZERO, INIT_ONE, INIT_CONST, INIT_NORMAL, INIT_UNIFORM, INIT_TABLE } InitKind;
typedef struct {
    u8 kind;
    f64 a, b;  /* const: a; normal: mean a, std b; uniform: [a, b) */
    Sym table; /* INIT_TABLE: a named pure function of (attrs), e.g. rope tables */
    u32 attr, nattr;
} Init;

/* Everything that outlives a Func. A weight has an accumulator and state as Vars of their own. */
typedef struct {
    Sym path; /* "layers.0.attn.wqkv", ".grad", ".m", ".v", ".master" appended */
    Type type;
    Place at[ATOM_MAX];
    u8 kind, life;
    bool saved;  /* written to checkpoints */
    bool frozen; /* no gradient, no state */
    Init init;
    Sym group;  /* parameter group: "decay" or "plain" */
    u32 of;     /* accum, master, moment: the weight it belongs to */
    u64 stages; /* bit s: lives on pipeline stage s */
    u32 flat;   /* id of g->flat, the flat arena it lies in; 0 = alone */
    u64 elem;   /* its first element in the flat arena */
    u64 off;    /* pass plan: bytes from the start of the arena */
    Loc loc;
} Var;

/* A flat arena: weights (or grads, masters, moments) in chain order with equal element offsets, so
 * that the optimizer is one map kernel and ZeRO is a range. Segments give `group(name)` its value.
 */
typedef struct {
    Sym name;       /* "weight", "grad", "master", "m", "v" */
    u8 dtype, kind; /* VarKind */
    u64 elems;      /* padded */
    u64 off;        /* pass plan: bytes from the start of the arena */
    Place at[ATOM_MAX];
    VEC(u32) var; /* members in order */
} Flat;

/* One call in a chain. Values that pass between calls are Regs, in SSA. */
typedef struct {
    u32 func;
    i32 layer;        /* -1: not in a stack */
    Sym prefix;       /* "layers.3"; relative formals resolve to prefix .. "." .. name */
    VEC(u32) in, out; /* reg ids, one per Func.in / Func.out */
    VEC(u32) bind;    /* var ids, one per Func.formal (flat arenas: FLAT_BIND | id) */
    u32 twin; /* BWD: the FWD call whose saves it reads (1 + index in its chain's call list) */
    i32 stage, chunk;
    u64 saved_off; /* pass plan: bytes from arena start to this call's block of saves, ring slot 0
                    */
} Call;
#define FLAT_BIND 0x80000000u

typedef struct {
    Sym name;
    Type type;
    Place at[ATOM_MAX];
    u64 off;    /* pass plan: bytes from the start of the arena, ring slot 0 */
    bool io;    /* a batch input ("tokens", "targets") filled by the loader */
    bool saved; /* lies in the saved region and has a slot per micro batch in flight */
} Reg;

typedef struct {
    Sym name; /* "fwd", "bwd", "upd", "eval", "logits" */
    u8 role;
    VEC(Call) call;
    VEC(u32) in, out; /* regs: batch inputs; results kept for the host */
} Chain;

typedef enum { SAVE_KEEP, SAVE_RECOMPUTE, SAVE_OFFLOAD } SaveMode;
typedef struct {
    u32 from, from_value; /* Func and value that make it */
    u32 to, to_value;     /* Func (BWD, BWDW) and its input value */
    u8 mode;
    u64 off; /* pass plan: bytes from the start of a call's block of saves */
} Save;

/* ==== Step: what a stage runs, where bytes are ================================================ */

typedef enum {
    CMD_FWD,
    CMD_BWD,
    CMD_BWDW,
    CMD_LOSS,
    CMD_UPD,
    CMD_SEND,
    CMD_RECV,
    CMD_SENDRECV,
    CMD_WAIT,
    CMD_SIGNAL
} CmdKind;
typedef struct {
    u8 kind, lane;
    i32 chunk, micro; /* which chain slice, which micro batch */
    i32 micro2;       /* SENDRECV: micro batch of the received reg */
    u32 reg;          /* SEND, RECV: the reg that travels; SENDRECV: sent */
    u32 reg2;         /* SENDRECV: received */
    i32 peer, peer2;  /* stages */
    u32 event;        /* WAIT, SIGNAL */
} Cmd;
typedef struct {
    i32 stage;
    VEC(Cmd) cmd;
} Step;

typedef enum {
    REGION_PARAMS,
    REGION_GRADS,
    REGION_STATE,
    REGION_SAVED,
    REGION_SCRATCH,
    REGION_IO,
    REGION_COUNT
} RegionKind;
typedef struct {
    u64 off, bytes; /* within the one arena of a rank; 4 KiB aligned */
} Region;
typedef struct {
    u8 region;
    u32 func; /* scratch: the Func it lives in */
    u64 off,
        bytes; /* scratch: from the start of the scratch region; saved: from the call's block */
    u32 first, last; /* positions in the Func's node list */
} Buf;

/* ==== ops, bodies, kernels ==================================================================== */

typedef enum {
    OF_VIEW = 1,     /* slice, split, merge, transpose, concat, rename, broadcast: no code */
    OF_EFFECT = 2,   /* read, write, accum: order per variable is kept; never dead */
    OF_COMM = 4,     /* collective */
    OF_BODY = 8,     /* has a body: opened by fuse */
    OF_KERNEL = 16,  /* served by a kernel block */
    OF_STRUCT = 32,  /* known to C by name: loop, fused, matmul, read ... */
    OF_NOGRAD = 64,  /* no cotangent flows through */
    OF_MIXES = 128,  /* mixes along s: needs a stateful form to decode */
    OF_TEXT = 256,   /* declared by an `op` statement of a .mg text */
    OF_LINEAR = 512, /* linear in each operand: a partial sum may pass through */
    OF_PARTIAL =
        1024, /* a split dim that it sums (or takes the maximum) over leaves a partial result */
} OpFlags;

/* A signature: `rmsnorm: x[.. d], w[d] -> y[.. d], saved r[..]:f32`. A result marked `saved` is a
 * row statistic (VF_ROWSTAT): it takes no cotangent and is an operand of the derived backward. */
typedef struct {
    Sym name;
    u8 dtype; /* after ":"; DT_NONE: float, and for a result the type of the first operand */
    bool optional, saved;
    u8 n;
    struct {
        Sym part[4]; /* factors; more than one: a merged dim "(h e)"; ".." any leading dims;
                      * "K..": a set of dims, K the attr `sum`; "2": a dim of that size */
        u8 n;
    } dim[RANK_MAX]; /* outermost first */
} SigPort;
typedef struct Sig {
    VEC(SigPort) in, out;
} Sig;

/* What a body op means, as a DAG in topological order: the result of parsing the grammar in body.c.
 * node[0] is "none". Dims are bits of a mask, outermost first; a node varies along `dims` only. An
 * output port with fewer dims than its node is a sum over the missing ones (column sum). */
typedef enum { BT_F, BT_I, BT_U, BT_B } BodyType; /* float, integer, 32 random bits, bool */
typedef enum {
    BF_NONE,
    BF_CONST,
    BF_INPUT,
    BF_ATTR,
    BF_SCALAR,
    BF_GROUP,
    BF_INDEX,
    BF_SIZE,
    BF_RAND, /* leaves */
    BF_ADD,
    BF_SUB,
    BF_MUL,
    BF_DIV,
    BF_NEG,
    BF_LT,
    BF_LE,
    BF_GT,
    BF_GE,
    BF_EQ,
    BF_NE,
    BF_WHERE,
    BF_EXP,
    BF_LOG,
    BF_SQRT,
    BF_RSQRT,
    BF_TANH,
    BF_SIGMOID,
    BF_ERF,
    BF_SIN,
    BF_COS,
    BF_ABS,
    BF_MIN,
    BF_MAX,
    BF_FLOOR,
    BF_UNIT,
    BF_NORMAL,
    BF_TO_F,
    BF_TO_I,
    BF_ROUND,
    BF_SROUND,
    BF_STOP,
    BF_SUM,
    BF_ROWMAX,
    BF_ROWMIN,
    BF_LSE,
    BF_AMAX,
    BF_COUNT
} BodyFn;
typedef struct {
    u8 fn; /* BodyFn, a row of the table in body.c */
    u8 type, narg;
    u8 to;      /* BF_ROUND: Dtype rounded to */
    u32 dims;   /* mask of Body.dim that it varies along */
    u32 over;   /* reductions: mask summed over; index, size: the dim */
    u32 arg[3]; /* node ids, all smaller than this node's */
    f64 num;    /* constant */
    Sym name;   /* input, attribute, scalar, group, site; else the statement */
    u32 port;   /* input: index into Body.in; rand: lane */
} BodyNode;
typedef struct {
    Sym name;
    u8 dtype;                /* storage type; DT_NONE in an op block */
    u8 rank, axis[RANK_MAX]; /* Body.dim index of each dim of the value, outermost first */
    u32 dims;                /* the same as a mask */
    u32 node;                /* the input node, or the node stored */
    i32 inplace;             /* output: 1 + input whose buffer it may overwrite; 0 none */
    bool saved, accum;       /* accum: the result is an accumulator and takes `int beta` */
} BodyPort;
typedef struct Body {
    u8 ndim;
    struct {
        Sym name;
        u32 dim; /* id of g->dim in a fused node; 0 in an op block */
    } dim[2 * RANK_MAX];
    VEC(BodyPort) in, out;
    VEC(BodyNode) node;
    Sym text; /* statements, for the comment above the printed C */
} Body;

/* One op block of generator/rules/. */
typedef struct {
    Sym name;
    u32 flags;
    Sym sig_text, body_text; /* as written */
    Sig *sig;                /* NULL: result types by rule, or given */
    u32 rule;                /* type rule of a structural op in sig.c; 0 = by sig */
    Body *body;              /* over the signature's own dim names, ".." as one dim */
    u32 bwd;                 /* op id of the derived backward; 0 until asked for */
    VEC(u16)
    from; /* of a derived NAME.bwd, per operand: i = operand i of NAME, nin + j = result j, nin +
             nout + j = cotangent of result j */
    VEC(u16)
    to; /* per result: the operand of NAME whose cotangent it is. Operands that the derivative does
           not need are not there */
    int vjp, ref, split, flops; /* Lua registry references; 0 = none */
    VEC(Sym) inplace;           /* pairs out, in */
    VEC(Sym) whole;
    Sym doc;
    Loc loc;
} Op;

/* One kernel block, from the first comment of a file in kernels/. */
typedef struct {
    Sym name, op, file, target;
    int lua; /* registry reference of the block's table */
} Kern;
/* A kernel instance: constants bound; equal ones are shared. Named after its first user. */
typedef struct {
    Sym name;
    u32 kern;            /* 0: generated by loopgen */
    u32 node;            /* its first user */
    VEC(Sym) key, value; /* #define key value */
    u64 hash;
} Inst;

/* The same spec with a few other words on the command line, and the arena that it would have. */
typedef struct {
    Sym change; /* "batch.micro=4 batch.global=8" */
    u64 bytes;
} Fit;

/* ==== Graph =================================================================================== */

typedef struct {
    Sym name, spec_file, target;        /* "cpu" */
    Sym cpu;                            /* feature level: "avx512", "avx2", "generic" */
    u8 compute, master, grads, moments; /* Dtype */
    i64 micro, seq, global;
    Sym remat;             /* "none", "selective", "full" */
    Sym optimizer;         /* "adamw" (0 too) or "sgd" */
    f64 beta1, beta2, eps; /* adamw; sgd: beta1 is the momentum */
    Sym out_dir;           /* where emit writes: "out/NAME" */
    bool fuse;             /* false: every body op its own kernel (test of the bits rule) */
} Config;

typedef struct lua_State lua_State;
struct Graph {
    Arena *arena;
    jmp_buf *on_fail; /* where fail() goes, with code g->exit */
    int exit;
    Sym phase;   /* name of the running pass */
    Sym context; /* a note under every diagnostic, set by verify; 0 = none */
    Config cfg;
    lua_State *lua;      /* only lua.c looks inside */
    lua_State *emit_lua; /* kernel blocks and templates; only lua_emit.c looks inside */
    struct Interned *interned;

    VEC(Dim) dim; /* [0] of each is the "none" entry */
    VEC(Atom) atom;
    VEC(Axis) axis;
    VEC(u32) arg;
    VEC(Attr) attr;
    VEC(Op) op;
    VEC(Value) value;
    VEC(Node) node;
    VEC(Func) func;
    VEC(Var) var;
    VEC(Flat) flat;
    VEC(Reg) reg;
    VEC(Chain) chain;
    VEC(Save) save;
    VEC(Step) step;
    VEC(Buf) buf;
    VEC(Body *) body; /* bodies of fused nodes */
    VEC(Kern) kern;
    VEC(Asset)
    kernel_file; /* kernel files beside the spec, under the names they get in the output */
    VEC(Inst) inst;
    Region region[REGION_COUNT];
    u64 arena_bytes;
    VEC(Fit) fit;
};

/* ==== graph.c: build, walk, replace =========================================================== */

Graph *graph_new(void);
/* same name and size: the same Dim; same name, other size: name.1 ... */
u32 dim_add(Graph *g, const char *name, i64 size);
i64 dim_mem(const Graph *g, u32 dim);          /* extent in memory: pad or size */
u64 type_elems(const Graph *g, const Type *t); /* in memory; 1 for rank 0 */
u64 type_bytes(const Graph *g, const Type *t);
u32 op_find(const Graph *g, const char *name); /* 0 if unknown */
u32 func_add(Graph *g, Sym name, Role role);
u32 func_input(Graph *g, u32 func, Type type, Sym path); /* -> value */
/* adds if new; -> index + 1 */
u32 formal_find(Graph *g, u32 func, Sym name, Type type, VarKind kind);
i32 type_pos(const Type *t, u32 dim);          /* position of dim, -1 if it has none */
bool type_equal(const Type *a, const Type *b); /* dtype and dims */
const char *type_str(Graph *g, const Type *t); /* "f[b s d]" */
/* of an axis or atom; -> how many, -1 unknown */
i32 axis_atoms(const Graph *g, Sym name, u8 atom[ATOM_MAX]);
void value_set_dense(Graph *g, u32 value); /* its own buffer, row-major */
/* Elements that one rank holds of a value of this type, with places `at` (g->atom.n of them). */
u64 type_local_elems(const Graph *g, const Type *t, const Place *at);
/* Attrs are built by value and copied by node_add: (Attr[]){attr_dim(k, d), ...}. */
Attr attr_int(Sym key, i64 v);
Attr attr_num(Sym key, f64 v);
Attr attr_sym(Sym key, Sym v);
Attr attr_dim(Sym key, u32 dim);
Attr attr_dims(Sym key, const u32 *dim, u32 n);
const Attr *node_attr(const Graph *g, u32 node, const char *key); /* NULL if absent */
/* Append a node to func; result types by the op's signature (sig_infer). in[] may name values of
 * this Func only. Returns the node; its results are g->node[n].out + i. */
u32 node_add(Graph *g, u32 func, u32 op, const u32 *in, u32 nin, const Attr *attr, u32 nattr);
u32 node_add_typed(Graph *g, u32 func, u32 op, const u32 *in, u32 nin, const Attr *attr, u32 nattr,
                   const Type *out, u32 nout); /* read, loop, fused: types given */
u32 node_read(Graph *g, u32 func, u32 formal); /* -> value */
void node_accum(Graph *g, u32 func, u32 formal, u32 value);
void node_write(Graph *g, u32 func, u32 formal, u32 value);
u32 node_clone(Graph *g, u32 node, u32 func, const u32 *value_map); /* map: old value -> new */
/* all uses in func, outs too */
void value_replace(Graph *g, u32 func, u32 old, u32 new_);
u32 *value_uses(Graph *g, u32 func, u32 value, u32 *n); /* node ids, in order */
void func_sweep(Graph *g, u32 func);                    /* drop dead nodes and unused formals */
u64 func_hash(const Graph *g, u32 func);                /* structure, types, attrs; no names */
bool value_dense(const Graph *g, u32 value);            /* window = its whole base, in order */

/* ==== views.c: windows, and what the passes of the middle share =============================== */

bool node_is(const Graph *g, u32 node, const char *op); /* node 0 is nothing */
u32 op_need(Graph *g, const char *name);                /* fail() if no block has it */
u32 var_by_path(const Graph *g, Sym path);              /* 0 if unknown */
u32 var_resolve(Graph *g, Sym prefix, Sym name);        /* what a formal's name means in a call */
u32 chain_find(const Graph *g, const char *name);       /* 0 if unknown */
u32 chain_add(Graph *g, const char *name, Role role);
void calls_bind(Graph *g, u32 chain);                /* fill Call.bind by name */
void chains_ports(Graph *g);                         /* inputs of all chains */
bool func_reaches(const Graph *g, u32 from, u32 to); /* to is from, or a loop's body in it */
/* with its loops' bodies */
u32 func_clone(Graph *g, u32 func, Role role, const char *name, u32 *map);
void loops_sweep(Graph *g, u32 func);                 /* func_sweep, loops' bodies included */
void node_move(Graph *g, u32 node, u32 before);       /* in front of a node of the same Func */
void node_drop(Graph *g, u32 node);                   /* whatever it does or who uses it */
u32 dim_like(Graph *g, u32 dim, i64 size);            /* the dim of that name with this size */
u32 view_reshape(Graph *g, u32 func, u32 x, Type to); /* split, merge, rename; -> value */
u32 view_transpose(Graph *g, u32 func, u32 x, Type to);
u32 view_slice(Graph *g, u32 func, u32 x, u32 pos, i64 from, u32 dim);
u32 view_concat(Graph *g, u32 func, const u32 *in, u32 nin, u32 pos, Type to);
/* matmul over all dims that x and y share; the result has the dims of `to`, in that order. */
u32 contract_to(Graph *g, u32 func, u32 x, u32 y, Type to);
typedef struct {
    u32 dim;       /* slice, concat: position of the dim */
    i64 from, len; /* slice: range */
} View;
View view_of(const Graph *g, u32 node);
/* Fill base, off, stride of every value of func from its view nodes; concat places its operands
 * inside its own buffer where the producer allows it. Inserts copy nodes where a window is
 * impossible. Loops' bodies included. */
void view_resolve(Graph *g, u32 func);

/* ==== text.c, verify.c, sig.c ================================================================= */

void text_print(Graph *g, Text *t);
void text_parse(Graph *g, const char *file, const char *src, u64 n); /* fail() with position */
void verify(Graph *g, const char *after); /* fail(E7xx) naming pass, Func and node */

/* parse, verify, print, parse: 0 = the same, else an exit code */
int text_check(const char *file);
Sig *sig_parse(Graph *g, Loc loc, const char *text);
void sig_register(Graph *g);        /* the structural ops; graph_new calls it */
i32 sig_in(const Sig *s, Sym name); /* index of operand name, -1 if none */
i32 sig_out(const Sig *s, Sym name);
/* Dims that a name of the signature stands for at this node ("d", "..", "K"); -> how many, -1
 * unknown. */
i32 sig_factor(Graph *g, u32 node, Sym name, u32 dim[RANK_MAX]);
/* Result types of node from its operand types; fail(E03xx) naming the factor, both sizes and both
 * sources. */
u32 sig_infer(Graph *g, const Op *op, Loc loc, const u32 *in, u32 nin, const Attr *attr, u32 nattr,
              Type *out); /* -> nout */
f64 node_flops(Graph *g, u32 node);
u64 node_traffic(Graph *g, u32 node); /* bytes read + written */
/* matmul is the one general contraction: attr `sum` = contracted dims; result = the first operand's
 * other dims, then the second's. gemm_shape() flattens it to C[m n] (+)= op(A)[m k] op(B)[k n] with
 * leading strides. */
typedef struct {
    i64 m, n, k, lda, ldb, ldc; /* strides in elements of the outer index */
    bool ta, tb;                /* A stored [k m]; B stored [n k] */
} Gemm;
/* false: dims cannot be flattened; fuse copies */
bool gemm_shape(const Graph *g, u32 node, Gemm *out);

/* ==== body.c, loopgen.c: what a body means, how it is printed ================================= */

Body *body_parse(Graph *g, Loc loc, const Sig *sig, const char *text);
/* Op id of NAME.bwd, made on the first call: the operands of NAME that it needs, then its saved
 * results, then cotangents of the other results (Op.from) -> cotangents of the float operands
 * (Op.to). */
u32 body_derive(Graph *g, u32 op);
/* by its name, made if need be; 0 = no such */
u32 body_derived(Graph *g, const char *name);
/* bit i: the cotangent of operand i is wanted; the others are not computed */
u32 body_derive_for(Graph *g, u32 op, u64 want);
/* it draws random numbers: its kernel takes `site` */
bool body_has_rand(const Body *b);
/* The body of a node over the dims of its operands: attributes and sizes are constants, results are
 * rounded to their types. */
Body *body_bind(Graph *g, u32 node);
Body *body_new(Graph *g);
/* Append a node (or find an equal or simpler one): fills type, dims and narg from the arguments. */
u32 body_node(Graph *g, Body *b, BodyNode n);
/* drop nodes that no output needs; ports stay */
void body_prune(Graph *g, Body *b);
const char *body_fn_name(u8 fn);                          /* of the table in body.c: "mul" */
i32 body_fn_find(const char *name);                       /* -1 if unknown */
f64 body_fn_eval(const BodyNode *n, f64 x, f64 z, f64 u); /* value of a pointwise function */
bool body_reduces(u8 fn);                                 /* sum, rowmax, rowmin, lse */
void body_print(Graph *g, const Body *b, Text *out);      /* statements, one a line */
/* what they are called there, by node; 0: inside another */
const Sym *body_names(Graph *g, const Body *b);
/* Interpreter in f64 for tests: dense row-major arrays, size[i] of Body.dim i; attributes and
 * scalars by name through `lookup`. */
void body_eval(Graph *g, const Body *b, const i64 *size, const f64 *const *in, f64 *const *out,
               f64 (*lookup)(void *arg, const char *name), void *arg);
/* Parts of a column sum or total, each with a line in a partial buffer that pass fuse adds as a
 * hidden result of the node, behind the others (Body.out with node 0); 0: the result needs none. */
i64 loopgen_lines(const Graph *g, const Body *b, u32 out);
/* loopgen_node prints the C text of one fused node (worker function and launcher) named `name`. */
void loopgen_node(Graph *g, u32 node, const char *name, Text *out);

/* ==== lua.c: the only file that includes lua.h ================================================ */

/* Three doors: load a spec, call a rule, render a template. */
void lua_open(Graph *g);
/* rules, schema, spec -> forward Funcs */
void lua_load_spec(Graph *g, const char *spec, int noverride, char **override);
void lua_rule_vjp(Graph *g, u32 node, u32 func, const u32 *value_map, const u32 *cotangent,
                  u32 *grad);
/* the inside of a block */
void lua_kern_add(Graph *g, Loc loc, const char *target, const char *text, u64 n);
/* evaluates `when`; fills the Inst's constants */
bool lua_kern_match(Graph *g, u32 kern, u32 node, u32 inst);
/* Render templates/TMPL.lt over the snapshot. map: for each line of out, the template line, and 1 +
 * the node that the template named with at(n); may be NULL. */
typedef struct {
    u32 line, node;
} MapLine;
typedef VEC(MapLine) LineMap;
void lua_render(Graph *g, const char *tmpl, Text *out, LineMap *map);
/* The snapshot is what templates see: plain tables, every decision taken. snap_open starts one; key
 * NULL appends to an array. */
void snap_begin(Graph *g);
void snap_open(Graph *g, const char *key);
void snap_close(Graph *g);
void snap_str(Graph *g, const char *key, const char *s);
void snap_int(Graph *g, const char *key, i64 v);
/* adds `keys`: the schema's rows with value and origin, as C literals, in order */
void snap_keys(Graph *g);
f64 lua_flops(Graph *g, u32 node);
/* chain "fwd" with a Func of its own for each call; pass_expand shares the equal ones */
void lua_trace(Graph *g);
/* The text that function lib.FN of generator/lib/ makes of string arguments: "print_config",
 * "explain", "help", "manual", "completion". */
const char *lua_text(Graph *g, const char *fn, int narg, const char *const *arg);

/* ==== tune.c, names.c: who writes where, names ================================================ */

/* The accum or write node whose variable the producer of value writes itself (its result pointer is
 * the variable): the value's only use, and nobody reads the old content later. 0: value has a
 * buffer of its own. Such a sink prints no code. */
u32 value_sink(const Graph *g, u32 value);
/* its producer adds into it: merged accum, or a sum result of a loop body */
bool value_adds(const Graph *g, u32 value);
/* one of its results adds: it takes the extra `int beta` */
bool node_adds(const Graph *g, u32 node);
const char *node_ops(Graph *g, u32 node); /* "add_rmsnorm", "rope_bwd": what a node computes */
/* of a matmul: the weight it reads or whose gradient it is; or NULL */
const char *node_weight(Graph *g, u32 node);
/* "attn.wqkv", "ln_1": the weight of a product, else the module */
const char *node_place(Graph *g, u32 node);
const char *node_name(Graph *g, u32 node); /* "attn_qkv_mm": what it computes where; not unique */
Sym func_c_name(Graph *g, u32 func);       /* "block_fwd" */
void c_wrap(Graph *g, const char *s, Text *out); /* wrap.c: C text with its long lines broken */
void c_wrap_commas(Graph *g, Text *out, const char *line, u32 indent); /* one long list */
const char *comment_safe(Graph *g, const char *s); /* no byte of s ends or opens a comment */
const char *c_string(Graph *g, const char *s);     /* s as a C literal that nothing in it can end */
/* s as a C identifier, no keyword and none of our own names */
Sym c_name(Graph *g, const char *s);
/* the same for a function's own names, which may hide those of libc */
Sym local_name(Graph *g, const char *s);
/* "qkv", "lse", "dlogits": what a value is called; not unique */
const char *value_word(Graph *g, u32 value);
Sym cotangent_name(Graph *g, u32 value); /* "dqkv": what a value's gradient is called */
/* the result's name in its op's signature or body, or "" */
const char *value_port(Graph *g, u32 value);

/* ==== eval.c: part of autodiff ================================================================ */

void eval_chains(Graph *g);                              /* "eval" and "logits", from "fwd" */
void loss_metrics(Graph *g, u32 func, const Call *call); /* results become metric Vars */
u32 reg_add(Graph *g, Sym name, Type type);
/* same layer and operands, no results */
Call call_like(Graph *g, const Call *fwd, u32 func);

/* ==== passes, in order ======================================================================== */

void pass_expand(Graph *g);
void pass_autodiff(Graph *g);
void pass_update(Graph *g);
void pass_precision(Graph *g);
void pass_remat(Graph *g);
void pass_fuse(Graph *g);
void pass_tune(Graph *g);
void pass_plan(Graph *g);
void pass_emit(Graph *g);

/* ==== build.c: the parent's side, after the child that compiled the spec has ended ============ */

/* cc: dir/trainer; 0 or an exit code */
int build_trainer(const char *dir, const char *cpu);
/* Shared object, dlopen, mg_trainer in this process; its exit code. temp: dir is removed once it is
 * loaded. */
int build_run(const char *dir, const char *cpu, bool temp, int argc, char **argv);
/* a fresh folder for build_run; 0 or an exit code */
int build_temp(char *dir, u64 size);
/* what the compiler is told for that level */
const char *cpu_flags(const char *cpu);
/* "avx512", "avx2" or "generic" */
const char *cpu_detect(void);

/* ==== cost.c: what plan and the first lines say =============================================== */

u64 cost_params(const Graph *g); /* trained numbers, shared ones once */
f64 cost_flops_token(Graph *g);  /* training FLOPs per token: forward + backward */
/* memory by region, FLOPs, time estimate: the text of `plan` */
const char *bytes_str(Graph *g, u64 bytes); /* "3.39 GiB" */
void cost_report(Graph *g, Text *t);

/* ==== fit.c: what would take less memory ====================================================== */

/* Plans the spec with these words behind its own overrides; the arena's bytes, 0 = it does not
 * plan. */
typedef u64 FitPlan(void *arg, const char *const *word, int n);
void fit_plan(Graph *g, FitPlan *plan, void *arg); /* fills g->fit */

/* ==== verbs.c: the verbs that look; argv[0] is the verb; an exit code comes back ============== */

int verb_new(int argc, char **argv);
int verb_why(int argc, char **argv);
int verb_doctor(int argc, char **argv);

#endif
