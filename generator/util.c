/* util.c: memory, text, interned strings, files, diagnostics, dtype table.
 *
 * Everything the generator allocates lies in one arena and is freed with it. The hostile build
 * (-DMG_HOSTILE) gives every allocation a block of its own and frees a vector's old place when it
 * grows, so that a pointer kept across an add is found at once under ASan.
 */
#include "megagen.h"

#define XXH_INLINE_ALL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <xxhash.h>
#pragma GCC diagnostic pop

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- arena ----------------------------------------------------------------------------------- */

typedef struct Chunk Chunk;
struct Chunk {
    Chunk *prev, *next;
    u64 used, size; /* payload bytes; the payload follows the header */
};

struct Arena {
    Chunk head; /* of a ring of chunks; head.prev is the one that is being filled */
    u64 bytes;  /* of all its chunks */
};

enum { ALIGN = 16, HEADER = (sizeof(Chunk) + ALIGN - 1) / ALIGN * ALIGN, CHUNK = 1 << 18 };

static void *need(void *p)
{
    if (!p) {
        fputs("megagen: error[E0401]: out of memory\n", stderr);
        exit(6);
    }
    return p;
}

Arena *arena_new(void)
{
    Arena *a = need(calloc(1, sizeof *a));
    a->head.prev = a->head.next = &a->head;
    return a;
}

static void chunk_free(Chunk *c)
{
    c->prev->next = c->next;
    c->next->prev = c->prev;
    free(c);
}

void arena_free(Arena *a)
{
    while (a && a->head.next != &a->head) {
        chunk_free(a->head.next);
    }
    free(a);
}

static Chunk *chunk_new(Arena *a, u64 size)
{
    Chunk *c = need(calloc(1, HEADER + size));
    c->size = size;
    c->prev = a->head.prev;
    c->next = &a->head;
    c->prev->next = a->head.prev = c;
    a->bytes += size;
    return c;
}

void *arena_alloc(Arena *a, u64 bytes)
{
    assert(bytes < (u64)1 << 48 && "a size that no arena can have");
#ifdef MG_HOSTILE
    Chunk *c = chunk_new(a, bytes ? bytes : 1);
    return (char *)c + HEADER;
#else
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    Chunk *c = a->head.prev;
    if (c == &a->head || c->size - c->used < bytes) {
        c = chunk_new(a, bytes > CHUNK ? bytes : CHUNK);
    }
    void *p = (char *)c + HEADER + c->used;
    c->used += bytes;
    return p;
#endif
}

u64 arena_bytes(const Arena *a)
{
    return a->bytes;
}

char *arena_fmt(Arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    char *s = arena_alloc(a, (u64)n + 1);
    vsnprintf(s, (u64)n + 1, fmt, again);
    va_end(again);
    return s;
}

/* ---- vectors and text ------------------------------------------------------------------------ */

static void move(Arena *a, void **at, u64 old_bytes, u64 new_bytes)
{
    void *p = arena_alloc(a, new_bytes);
    if (old_bytes) {
        memcpy(p, *at, old_bytes);
#ifdef MG_HOSTILE
        memset(*at, 0xDB, old_bytes);
        a->bytes -= ((Chunk *)((char *)*at - HEADER))->size;
        chunk_free((Chunk *)((char *)*at - HEADER));
#endif
    }
    *at = p;
}

void vec_grow(Arena *a, void **at, u32 *cap, u32 n, u64 size)
{
    if (n <= *cap) {
        return;
    }
#ifdef MG_HOSTILE
    u32 to = n;
#else
    u32 to = *cap * 2 > n ? *cap * 2 : n < 8 ? 8 : n;
#endif
    move(a, at, *cap * size, to * size);
    *cap = to;
}

/* Text doubles also in the hostile build: nobody keeps pointers into it, and it is appended to
 * often. */
static void text_room(Arena *a, Text *t, u64 more)
{
    u64 want = t->n + more + 1;
    assert(want < UINT32_MAX);
    if (want > t->cap) {
        u64 to = (u64)t->cap * 2 > want ? (u64)t->cap * 2 : want + 64;
        move(a, (void **)&t->at, t->cap, to);
        t->cap = (u32)to;
    }
}

static void text_bytes(Arena *a, Text *t, const char *s, u64 n)
{
    text_room(a, t, n);
    memcpy(t->at + t->n, s, n);
    t->n += (u32)n;
}

void text_put(Arena *a, Text *t, const char *s)
{
    text_bytes(a, t, s, strlen(s));
}

void text_fmt(Arena *a, Text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    text_room(a, t, (u64)n);
    vsnprintf(t->at + t->n, (u64)n + 1, fmt, again);
    va_end(again);
    t->n += (u32)n;
}

const char *text_str(Arena *a, Text *t)
{
    text_room(a, t, 0);
    t->at[t->n] = 0;
    return t->at;
}

/* ---- interned strings ------------------------------------------------------------------------ */

typedef struct {
    const char *s;
    u64 n;
} String;

struct Interned {
    VEC(String) str; /* [0] is "" */
    u32 *slot;       /* open addressing by hash; 0 = free, else a Sym */
    u32 mask;        /* slots - 1 */
};

u64 hash_bytes(const void *p, u64 n, u64 seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

static u32 *slot_find(struct Interned *t, const char *s, u64 n)
{
    u32 i = (u32)hash_bytes(s, n, 0) & t->mask;
    for (;; i = (i + 1) & t->mask) {
        u32 id = t->slot[i];
        if (!id || (t->str.at[id].n == n && memcmp(t->str.at[id].s, s, n) == 0)) {
            return &t->slot[i];
        }
    }
}

static void slots_grow(Graph *g, struct Interned *t)
{
    u32 n = t->mask ? (t->mask + 1) * 2 : 1024;
    t->slot = arena_alloc(g->arena, n * sizeof *t->slot);
    t->mask = n - 1;
    for (u32 id = 1; id < t->str.n; id++) {
        *slot_find(t, t->str.at[id].s, t->str.at[id].n) = id;
    }
}

Sym sym_n(Graph *g, const char *s, u64 n)
{
    if (n == 0) {
        return 0;
    }
    struct Interned *t = g->interned;
    if (!t) {
        t = g->interned = arena_alloc(g->arena, sizeof *t);
        vec_push(g->arena, &t->str, (String){"", 0});
        slots_grow(g, t);
    }
    u32 *slot = slot_find(t, s, n);
    if (*slot) {
        return *slot;
    }
    char *own = arena_alloc(g->arena, n + 1);
    memcpy(own, s, n);
    Sym id = t->str.n;
    vec_push(g->arena, &t->str, (String){own, n});
    *slot = id;
    if (t->str.n * 2 > t->mask) {
        slots_grow(g, t);
    }
    return id;
}

Sym sym(Graph *g, const char *s)
{
    return sym_n(g, s, strlen(s));
}

Sym sym_fmt(Graph *g, const char *fmt, ...)
{
    char small[256];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    char *s = small;
    if ((u64)n >= sizeof small) {
        s = arena_alloc(g->arena, (u64)n + 1);
        vsnprintf(s, (u64)n + 1, fmt, again);
    }
    va_end(again);
    return sym_n(g, s, (u64)n);
}

const char *sym_str(const Graph *g, Sym s)
{
    if (s == 0) {
        return "";
    }
    assert(g->interned && s < g->interned->str.n && "a Sym of this Graph");
    return g->interned->str.at[s].s;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int read_all(Arena *a, FILE *f, char **data, u64 *n)
{
    Text t = {0};
    char block[1 << 14];
    for (;;) {
        u64 got = fread(block, 1, sizeof block, f);
        if (got == 0) {
            break;
        }
        if (t.n + got > INT32_MAX) {
            return EFBIG;
        }
        text_bytes(a, &t, block, got);
    }
    if (ferror(f)) {
        return errno ? errno : EIO;
    }
    text_str(a, &t);
    *data = t.at;
    *n = t.n;
    return 0;
}

int file_read(Arena *a, const char *path, char **data, u64 *n)
{
    errno = 0;
    FILE *f = fopen(path, "rb");
    if (!f) {
        return errno;
    }
    int err = read_all(a, f, data, n);
    fclose(f);
    return err;
}

/* 1 = the file holds exactly these bytes. */
static bool file_equals(const char *path, const char *data, u64 n)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        return false;
    }
    char block[1 << 14];
    u64 at = 0, got = 0;
    bool same = true;
    while (same && (got = fread(block, 1, sizeof block, f)) > 0) {
        same = got <= n - at && memcmp(block, data + at, got) == 0;
        at += got;
    }
    same = same && at == n && !ferror(f);
    fclose(f);
    return same;
}

int file_write_changed(const char *path, const void *data, u64 n)
{
    if (file_equals(path, data, n)) {
        return 0;
    }
    char temp[4096];
    int len =
        snprintf(temp, sizeof temp, "%s.%d.tmp", path, (int)getpid()); /* two may run at once */
    if (len < 0 || (u64)len >= sizeof temp) {
        return -ENAMETOOLONG;
    }
    errno = 0;
    FILE *f = fopen(temp, "wb");
    if (!f) {
        return -errno;
    }
    bool bad = fwrite(data, 1, n, f) != n;
    bad = fclose(f) != 0 || bad;
    if (bad || rename(temp, path)) {
        int err = errno ? errno : EIO;
        remove(temp);
        return -err;
    }
    return 1;
}

/* ---- diagnostics ----------------------------------------------------------------------------- */

enum { SHOWN_MAX = 160, CODE_WRITE = 793, CODE_NO_FIT = 401 };

/* The line of the source with a caret below; nothing if the file cannot be read any more. */
static void print_source(Graph *g, Loc loc)
{
    char *src = NULL;
    u64 n = 0;
    if (!loc.file || loc.line < 1 || file_read(g->arena, sym_str(g, loc.file), &src, &n)) {
        return;
    }
    const char *at = src, *end = src + n;
    for (i32 line = 1; line < loc.line && at; line++) {
        at = memchr(at, '\n', (u64)(end - at));
        at = at ? at + 1 : NULL;
    }
    if (!at || at >= end) {
        return;
    }
    const char *stop = memchr(at, '\n', (u64)(end - at));
    i64 len = (stop ? stop : end) - at;
    len = len < SHOWN_MAX ? len : SHOWN_MAX;
    fprintf(stderr, "%5d | ", (int)loc.line);
    for (i64 i = 0; i < len; i++) {
        u8 c = (u8)at[i];
        fputc(c == '\t' ? ' ' : c < ' ' || c == 0x7F ? '?' : c, stderr);
    }
    fputc('\n', stderr);
    if (loc.col < 1 || loc.col > len + 1) {
        return;
    }
    fputs("      | ", stderr);
    for (i64 i = 0; i < loc.col - 1; i++) {
        if (((u8)at[i] & 0xC0) != 0x80) { /* one column a UTF-8 character */
            fputc(' ', stderr);
        }
    }
    fputs("^\n", stderr);
}

static void report(Graph *g, Loc loc, const char *kind, u32 code, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    assert(n >= 0);
    char *msg = arena_alloc(g->arena, (u64)n + 1);
    vsnprintf(msg, (u64)n + 1, fmt, ap);
    fflush(stdout);
    const char *file = loc.file ? sym_str(g, loc.file) : "megagen";
    int first = (int)strcspn(msg, "\n");
    if (loc.line > 0 && loc.col > 0) {
        fprintf(stderr, "%s:%d:%d: ", file, (int)loc.line, (int)loc.col);
    } else if (loc.line > 0) {
        fprintf(stderr, "%s:%d: ", file, (int)loc.line);
    } else {
        fprintf(stderr, "%s: ", file);
    }
    fprintf(stderr, "%s[E%04u]: %.*s\n", kind, code, first, msg);
    print_source(g, loc);
    const char *rest = msg + first;
    while (*rest == '\n') {
        rest++;
        int len = (int)strcspn(rest, "\n");
        if (len) {
            fprintf(stderr, "  %.*s\n", len, rest);
        }
        rest += len;
    }
    if (g->context) {
        fprintf(stderr, "  note: %s\n", sym_str(g, g->context));
    }
}

void note_error(Graph *g, Loc loc, u32 code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report(g, loc, "error", code, fmt, ap);
    va_end(ap);
}

void warn(Graph *g, Loc loc, u32 code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report(g, loc, "warning", code, fmt, ap);
    va_end(ap);
}

/* A wrong word of the command line is not the spec's mistake, a full disk nobody's. */
static int exit_code(Graph *g, Loc loc, u32 code)
{
    if (code == CODE_WRITE) {
        return 7;
    }
    if (code == CODE_NO_FIT) {
        return 6;
    }
    return loc.file && strcmp(sym_str(g, loc.file), "command line") == 0 ? 2 : 1;
}

void fail(Graph *g, Loc loc, u32 code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report(g, loc, "error", code, fmt, ap);
    va_end(ap);
    g->exit = exit_code(g, loc, code);
    if (g->on_fail) {
        longjmp(*g->on_fail, 1);
    }
    exit(g->exit);
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    u32 size;
} dtypes[] = {
    [DT_NONE] = {"none", 0}, [DT_F] = {"f", 0},       [DT_F64] = {"f64", 8},
    [DT_F32] = {"f32", 4},   [DT_BF16] = {"bf16", 2}, [DT_F16] = {"f16", 2},
    [DT_E4M3] = {"e4m3", 1}, [DT_E5M2] = {"e5m2", 1}, [DT_I64] = {"i64", 8},
    [DT_I32] = {"i32", 4},   [DT_U32] = {"u32", 4},   [DT_U16] = {"u16", 2},
    [DT_U8] = {"u8", 1},     [DT_BOOL] = {"bool", 1},
};
_Static_assert(sizeof dtypes / sizeof dtypes[0] == DT_COUNT, "one row a dtype");

u32 dtype_size(u8 dt)
{
    assert(dt < DT_COUNT && dtypes[dt].size > 0 && "pass precision has replaced f");
    return dtypes[dt].size;
}

const char *dtype_name(u8 dt)
{
    assert(dt < DT_COUNT);
    return dtypes[dt].name;
}

u8 dtype_parse(const char *s)
{
    for (u8 i = 1; i < DT_COUNT; i++) {
        if (strcmp(dtypes[i].name, s) == 0) {
            return i;
        }
    }
    return DT_NONE;
}
