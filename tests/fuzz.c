/* fuzz.c: the parser and verify against garbage: programs in the text form, mutated. Every text
 * must end in a Graph or in a message; what is accepted must print to a text that reads back to
 * itself.
 *
 * usage: fuzz SECONDS SEED LAST.mg FILE.mg ...     LAST.mg: the text that was being tried, for
 * after a crash
 */
#include "megagen.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 16, HANG_SECONDS = 20 };

typedef struct {
    char *at;
    u64 n;
} Bytes;

static u64 rng;

static u64 below(u64 n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return n ? rng % n : 0;
}

static void insert(Bytes *b, u64 at, const char *s, u64 n)
{
    if (b->n + n < TEXT_MAX) {
        memmove(b->at + at + n, b->at + at, b->n - at);
        memcpy(b->at + at, s, n);
        b->n += n;
    }
}

static void erase(Bytes *b, u64 at, u64 n)
{
    n = n < b->n - at ? n : b->n - at;
    memmove(b->at + at, b->at + at + n, b->n - at - n);
    b->n -= n;
}

/* Start and length of a random line, its newline included. */
static u64 line(const Bytes *b, u64 *n)
{
    u64 at = below(b->n), end = at;
    while (at > 0 && b->at[at - 1] != '\n') {
        at--;
    }
    while (end < b->n && b->at[end] != '\n') {
        end++;
    }
    *n = end - at + (end < b->n);
    return at;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void mutate(Bytes *b, const Bytes *other)
{
    static const char *const words[] = {
        "%1",      "%99",         "@",     "loop",  "read",          "[",    "]",
        "{dim=d}", "on %2 +0[1]", "-1",    "0",     "9999999999999", "f32[", "\"",
        "flat",    "send",        "P(tp)", "F(dp)", "micro=1",       "end\n"};
    char copy[512];
    u64 n, at = line(b, &n), m = n < sizeof copy ? n : sizeof copy, p = below(b->n);
    switch (below(9)) {
    case 0: /* a byte */
        b->at[p] = (char)below(256);
        break;
    case 1: /* drop a line */
        erase(b, at, n);
        break;
    case 2: /* a line a second time, elsewhere */
        memcpy(copy, b->at + at, m);
        at = line(b, &n);
        insert(b, at, copy, m);
        break;
    case 3: /* a line of another program */
        at = line(other, &n);
        m = n < sizeof copy ? n : sizeof copy;
        memcpy(copy, other->at + at, m);
        at = line(b, &n);
        insert(b, at, copy, m);
        break;
    case 4: /* a word */
        n = below(sizeof words / sizeof words[0]);
        insert(b, p, words[n], strlen(words[n]));
        break;
    case 5: /* drop some bytes */
        erase(b, p, 1 + below(12));
        break;
    case 6: /* cut off the rest */
        b->n = below(8) ? b->n : p;
        break;
    default: /* another number */
        for (u64 i = 0; i < 200 && p < b->n && !is_digit(b->at[p]); i++) {
            p++;
        }
        if (p < b->n && is_digit(b->at[p])) {
            b->at[p] = (char)('0' + below(10));
        }
    }
    b->n = b->n ? b->n : 1;
}

static const char *try_text(Graph *g, const char *src, u64 n)
{
    jmp_buf trap;
    g->on_fail = &trap;
    if (setjmp(trap)) {
        return NULL;
    }
    text_parse(g, "fuzz", src, n);
    verify(g, "parse");
    Text t = {0};
    text_print(g, &t);
    return text_str(g->arena, &t);
}

/* 1 accepted, 0 refused; ends the program if the printed text is not stable. */
static int try(const Bytes *b)
{
    Graph *g = graph_new(), *again = graph_new();
    const char *text = try_text(g, b->at, b->n);
    if (text) {
        const char *other = try_text(again, text, strlen(text));
        if (!other || strcmp(text, other) != 0) {
            printf("fuzz: an accepted text prints to one that is refused or differs\n");
            exit(1);
        }
    }
    arena_free(g->arena);
    arena_free(again->arena);
    return text != NULL;
}

static void keep(const char *path, const Bytes *b)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b->at, 1, b->n, f) != b->n || fclose(f)) {
        printf("fuzz: cannot write %s\n", path);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        printf("usage: fuzz SECONDS SEED LAST.mg FILE.mg ...\n");
        return 2;
    }
    int nfile = argc - 4;
    time_t end = time(NULL) + atoi(argv[1]);
    rng = strtoull(argv[2], NULL, 10) * 2654435761u + 88172645463325252u;
    Arena *a = arena_new();
    Bytes *file = arena_alloc(a, (u64)nfile * sizeof *file);
    for (int i = 0; i < nfile; i++) {
        if (file_read(a, argv[i + 4], &file[i].at, &file[i].n) || file[i].n >= TEXT_MAX / 2) {
            printf("fuzz: cannot use %s\n", argv[i + 4]);
            return 2;
        }
    }
    if (!freopen("/dev/null", "w", stderr) && argc) {
        return 3;
    }
    Bytes b = {arena_alloc(a, TEXT_MAX), 0};
    long tried = 0, accepted = 0;
    while (time(NULL) < end) {
        const Bytes *from = &file[below((u64)nfile)];
        memcpy(b.at, from->at, from->n);
        b.n = from->n;
        for (u64 k = 0, n = 1 + below(4); k < n; k++) {
            mutate(&b, &file[below((u64)nfile)]);
        }
        keep(argv[3], &b);
        alarm(HANG_SECONDS);
        accepted += try(&b);
        tried++;
    }
    printf("%ld texts, %ld accepted\n", tried, accepted);
    return tried > 0 && accepted > 0 && accepted < tried ? 0 : 1;
}
