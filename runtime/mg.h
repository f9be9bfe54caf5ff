/* mg.h: the contract between generated code and the runtime.
 *
 * Generated code exports one symbol, mg_model_get(). The runtime knows the tables below and never
 * an architecture: it allocates one arena, initialises variables, fills the batch inputs, runs the
 * functions of the model and keeps checkpoints. Generated code calls only what is declared here and
 * in kernels/cpu/mgk.h; it has no mutable statics, so that ranks can be threads.
 */
#ifndef MG_H
#define MG_H

#include <stddef.h>
#include <stdint.h>

#define MG_ABI 1

typedef enum {
    MG_NONE,
    MG_F,
    MG_F64,
    MG_F32,
    MG_BF16,
    MG_F16,
    MG_E4M3,
    MG_E5M2,
    MG_I64,
    MG_I32,
    MG_U32,
    MG_U16,
    MG_U8,
    MG_BOOL
} mg_dtype; /* same numbers as Dtype in the generator; MG_F never reaches a table */

typedef enum {
    MG_PARAMS,
    MG_GRADS,
    MG_STATE,
    MG_SAVED,
    MG_SCRATCH,
    MG_IO,
    MG_NREGION
} mg_region_kind;

typedef enum {
    MG_WEIGHT,
    MG_ACCUM,
    MG_MASTER,
    MG_MOMENT,
    MG_CACHE,
    MG_STAT,
    MG_TABLE,
    MG_SCALAR,
    MG_METRIC
} mg_var_kind;

typedef enum {
    MG_INIT_ZERO,
    MG_INIT_ONE,
    MG_INIT_CONST,
    MG_INIT_NORMAL,
    MG_INIT_UNIFORM,
    MG_INIT_TABLE
} mg_init_kind;

typedef struct {
    uint64_t off, bytes; /* from mg_ctx.mem */
} mg_region;

/* A persistent variable. Elements are dense, row-major. Only dim 0 may be padded in memory
 * (vocabulary): files hold `elems`, memory `elems_mem`; what is between them is zero and stays
 * zero. */
typedef struct {
    const char *path; /* "layers.0.attn.wqkv"; unique */
    uint8_t kind, dtype, init, rank;
    uint8_t saved, decay; /* in checkpoints; weight decay applies */
    int32_t of;           /* index of the weight this belongs to; -1 = none */
    int64_t dim[8];       /* logical */
    const char *dims;     /* "d g r e" */
    uint64_t off;         /* bytes from mg_ctx.mem */
    uint64_t elems, elems_mem;
    double a, b; /* init: const a; normal mean a, std b; uniform [a, b) */
    void (*table)(void *dst, const int64_t *dim); /* MG_INIT_TABLE: fills it (rope tables) */
} mg_var;

/* A batch input or a result that the host reads. */
typedef struct {
    const char *name; /* "tokens", "targets": i32 [micro seq]; target -1 = no loss here */
    uint8_t dtype, rank;
    int64_t dim[8];
    uint64_t off;
} mg_io;

/* A key of the schema with the value this binary was made with. */
typedef struct {
    const char *name, *type; /* "train.lr", one of: int num bool str list size time */
    const char *value;       /* text as on a command line; list: comma separated */
    const char *origin;      /* "default", "tiny.lua:20", "command line", "derived" */
    const char *binds;       /* "compile" or "run" */
    const char *help;        /* one line, with the unit */
    const char *allows;      /* "a|b|c": one of these; "0..1", "1..", "0..<1"; "": anything */
} mg_key;

/* What the arena would be if the trainer were rebuilt with these words; cheapest change first. */
typedef struct {
    const char *change; /* "batch.micro=4 batch.global=8" */
    uint64_t bytes;
} mg_fit;

typedef struct mg_ctx mg_ctx;
typedef void mg_fn(mg_ctx *c);

typedef struct {
    uint32_t abi;
    const char *name, *version, *hash; /* of model, megagen, and of spec + overrides (hex) */
    const char *target, *cpu;          /* "cpu", feature level needed: avx512 avx2 generic */
    uint64_t arena_bytes;
    mg_region region[MG_NREGION];
    const mg_var *var;
    int32_t nvar;
    const mg_io *io;
    int32_t nio;
    const mg_key *key;
    int32_t nkey;
    const mg_fit *fit; /* NULL: nothing else was planned */
    int32_t nfit;
    int32_t micro, seq, vocab; /* rows and tokens a row of one micro batch; true vocabulary */
    double flops_token;        /* training FLOPs per token: forward + backward */
    uint64_t params;           /* trained numbers, shared ones once */
    mg_fn *fwd;                /* forward of one micro batch, saves included */
    mg_fn *bwd;    /* loss, its gradient and backward; metrics and gradients accumulate */
    mg_fn *upd;    /* norm, clip, optimizer */
    mg_fn *eval;   /* forward and loss, no dropout, no gradients; metrics accumulate */
    mg_fn *logits; /* forward; io "logits" = f32 [micro vocab] at position scalar.pos */
} mg_model;

const mg_model *mg_model_get(void);

/* Run-time scalars, read by kernels. Written by the training loop between commands. */
typedef struct {
    double step;    /* number of the update, 1-based */
    double lr, wd;  /* learning rate and weight decay of this step */
    double clip;    /* largest gradient norm; 0 = no clipping */
    double gscale;  /* what a unit of summed loss weighs: 1 / targets of the global batch */
    uint64_t seed;  /* of dropout */
    int64_t sample; /* global index in this run of the micro batch's first row */
    int32_t micro;  /* index of this micro batch in the step, 0-based */
    int32_t micros; /* micro batches of the step */
    int32_t pos;    /* logits(): position in the row */
} mg_scalar;

struct mg_ctx {
    char *mem; /* the arena; every offset of generated code counts from here */
    mg_scalar scalar;
    const mg_model *model;
    struct mg_pool *pool;
};

/* Run fn(arg, 0) .. fn(arg, parts - 1), spread over the rank's workers, and wait. Which worker
 * takes a part depends only on `parts` and the number of workers; results must not depend on it at
 * all. */
void mg_par(mg_ctx *c, int parts, void (*fn)(void *arg, int part), void *arg);

/* Workers of the rank, 1 without a pool: for cuts that suit them. Results must not depend on it. */
int mg_workers(const mg_ctx *c);

/* Working memory of the rank for one kernel call: MG_SCRATCH_BYTES, 2 MiB aligned, shared by all
 * parts of the mg_par calls of that kernel call. Contents are lost between kernel calls. Needs a
 * pool. */
#define MG_SCRATCH_BYTES ((uint64_t)16 << 20)
void *mg_scratch(mg_ctx *c);

/* Linkage of a kernel instance. Generated code sets it to nothing before it includes this: its
 * instances stand in one file and are called from another. A file compiled alone keeps them to
 * itself. */
#ifndef MG_KERNEL
#define MG_KERNEL static __attribute__((unused))
#endif

/* Fillers of MG_INIT_TABLE. cos, sin: dst[s h] = scale * f(s * freq[h]), dim[1] doubles follow
 * scale; iota: dst[s] = s. Written in dtype (f32 or f64; iota i32). */
void mg_table_cos(void *dst, const int64_t *dim, mg_dtype dtype, double scale, ...);
void mg_table_sin(void *dst, const int64_t *dim, mg_dtype dtype, double scale, ...);
void mg_table_iota(void *dst, const int64_t *dim, mg_dtype dtype);

/* The trainer's main: command line, data, loop, checkpoints. Exit code by the table in README. */
int mg_trainer(int argc, char **argv, const mg_model *m);

/* Is a word of a command line one that every trainer knows, whatever its model: --dry-run, out=DIR?
 */
int mg_trainer_word(const char *word);

/* Opens /dev/null for each of stdin, stdout and stderr that is closed, so that no file becomes one.
 * The first thing that every program does. */
void mg_std_open(void);

/* Bytes that this process may still take, from the machine and its control group; 0 = unknown.
 * MG_MEMORY=SIZE in the environment says less. */
uint64_t mg_memory_free(void);

/* Exit codes of every program, with their meaning. Ends with meaning NULL. */
typedef struct {
    int code;
    const char *meaning;
    const char *restart; /* does starting again help */
} mg_exit_row;

extern const mg_exit_row mg_exit_table[];

/* megagen's verb `data`: prepare, info, peek (prep.c; needs Jansson and zlib, not in the trainer).
 */
int mg_data_main(int argc, char **argv);

#endif
