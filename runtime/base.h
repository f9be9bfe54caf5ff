/* base.h: what every part of the runtime stands on: exit codes, errors, text, files, clock, memory.
 *
 * Functions that can fail from outside return int: MG_OK or the exit code that fits, with the words
 * in mg_errmsg() of the calling thread. MG_TRY passes a failure on. Nothing here keeps state but
 * that message.
 */
#ifndef MG_BASE_H
#define MG_BASE_H

#include "mg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- exit codes and errors ------------------------------------------------------------------- */

enum {
    MG_OK = 0,
    MG_BAD = 1,
    MG_USAGE = 2,
    MG_ENVIRONMENT = 3,
    MG_COMPILE = 4,
    MG_INPUT = 5,
    MG_NO_FIT = 6,
    MG_STORAGE = 7,
    MG_HELD = 8,
    MG_NONFINITE = 10,
    MG_HANG = 11,
    MG_PEER = 12,
    MG_HARDWARE = 13,
    MG_INTERNAL = 70,
    MG_PREEMPTED = 75,
    MG_UNSAVED = 76,
    MG_INTERRUPTED = 130
};

/* Sets the message of this thread and returns `code`. */
int mg_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The last message of this thread; never NULL. Valid until the next mg_fail of this thread. */
const char *mg_errmsg(void);

/* With MG_TRACE set in the environment, prints where a failure passes by. Returns rc. */
int mg_trace(int rc, const char *file, int line);

#define MG_TRY(call)                                                                               \
    do {                                                                                           \
        int mg_rc_ = (call);                                                                       \
        if (mg_rc_ != MG_OK)                                                                       \
            return mg_trace(mg_rc_, __FILE__, __LINE__);                                           \
    } while (0)

/* Says the message on stderr and ends the process. For failures after which no step is possible. */
_Noreturn void mg_die(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- text ------------------------------------------------------------------------------------ */

/* A growing text, always 0-terminated once something was added. Start with {0}; mg_text_free. Ends
 * the process when there is no memory. */
typedef struct {
    char *p;
    size_t n, cap;
} mg_text;

void mg_text_add(mg_text *t, const void *p, size_t n);
void mg_text_printf(mg_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mg_text_free(mg_text *t);

/* Bytes of the UTF-8 sequence at s, 0 if it is none. Reads no further than a 0 byte. */
int mg_utf8_length(const char *s);

/* Adds a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void mg_json_str(mg_text *t, const char *s);

/* Adds a number in the fewest digits that read back to the same bits; null if not finite. */
void mg_json_num(mg_text *t, double v);

/* The entry of `names` (n of them) nearest to `word`, or NULL when none is near. */
const char *mg_nearest(const char *word, const char *const *names, int n);

/* ---- clock and signals ----------------------------------------------------------------------- */

double mg_now(void); /* seconds of the monotonic clock */

/* ---- files; a path is UTF-8 and may hold any byte but 0 -------------------------------------- */

/* Joins with one '/'. The result is the caller's to free. */
char *mg_path(const char *dir, const char *name);

/* Makes a folder and those above it. */
int mg_mkdirs(const char *dir);

/* The whole of a regular file, 0-terminated; the caller frees *text. At most `limit` bytes. */
int mg_file_read(const char *path, uint64_t limit, char **text, size_t *n);

/* Writes all of it, however often the system cuts it. Errors: MG_STORAGE. */
int mg_fd_write(int fd, const void *p, size_t n, const char *path);

/* fsync of a folder, so that names made in it last. */
int mg_dir_sync(const char *dir);

/* Replaces `dir/name` by a file with this text: temporary name, fsync, rename, fsync of the folder.
 */
int mg_file_replace(const char *dir, const char *name, const char *text, size_t n);

/* ---- element types --------------------------------------------------------------------------- */

typedef struct {
    const char *name; /* as in safetensors */
    int bytes;
} mg_dtype_row;

/* Row of a dtype; bytes 0 = no element of a table can have it. */
const mg_dtype_row *mg_dtype_of(unsigned dtype);

double mg_elem_get(unsigned dtype, const void *p, uint64_t i);
void mg_elem_set(unsigned dtype, void *p, uint64_t i,
                 double v); /* rounds to nearest, ties to even */

/* ---- memory of a rank ------------------------------------------------------------------------ */

/* Maps `bytes` zeroed, 2 MiB aligned, huge pages wished for. MG_NO_FIT with need and have when the
 * machine or the control group has less. Freed by mg_arena_unmap with the same size. */
int mg_arena_map(uint64_t bytes, char **mem);
void mg_arena_unmap(char *mem, uint64_t bytes);

/* Fills a region with bytes that are NaN in every float type; of the gradients only what a step
 * writes, since the padding between tensors is zero and stays zero. */
void mg_poison(mg_ctx *c, mg_region_kind region);

/* ---- first values (init.c) ------------------------------------------------------------------- */

/* Fills every variable of the model: weights by (seed, path, global element), tables by their
 * function, the rest by its constant. Elements between elems and elems_mem become 0. The values do
 * not depend on the number of workers or the machine. */
void mg_init(mg_ctx *c, uint64_t seed);

/* Only tables: what a checkpoint does not hold. */
void mg_init_tables(mg_ctx *c);

/* Weights that have a master copy become its rounding (to nearest, ties to even), as the update
 * leaves them: a checkpoint holds only the master. */
void mg_init_rounded(mg_ctx *c);

/* FNV-1a of a path: the site of its random numbers. */
uint32_t mg_path_site(const char *path);

#endif
