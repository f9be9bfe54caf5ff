/* fuzz_spec.c: the compiler against specs that nobody would write: those of the tree, mutated.
 * Every one of them must end in files or in a message, within seconds, with an exit code of the
 * table.
 *
 * The compiler's own main.c is included, so that what runs is what a user runs, child process and
 * limits included; a compile takes milliseconds and nothing is executed anew.
 *
 * usage: fuzz_spec COUNT SEED FOLDER FILE.lua ...     FOLDER: for the spec, its files and its words
 */
int megagen_main(int argc, char **argv);
#define main megagen_main
#include "../generator/main.c"
#undef main

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

enum { TEXT_MAX = 1 << 16, SEED_MAX = 512, SLOW_SECONDS = 8, WRONG_MAX = 20 };

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

/* ---- mutations -----------------------------------------------------------------------------------
 */

static void replace(Bytes *b, u64 at, u64 old, const char *s, u64 n)
{
    old = old < b->n - at ? old : b->n - at;
    if (b->n - old + n < TEXT_MAX) {
        memmove(b->at + at + n, b->at + at + old, b->n - at - old);
        memcpy(b->at + at, s, n);
        b->n = b->n - old + n;
    }
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

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.';
}

/* Start and length of a random name or number; the length is 0 if none is near. */
static u64 word(const Bytes *b, bool number, u64 *n)
{
    u64 at = below(b->n);
    for (u64 i = 0; i < 400; i++, at = at + 1 < b->n ? at + 1 : 0) {
        bool digit = b->at[at] >= '0' && b->at[at] <= '9';
        if (is_word(b->at[at]) && (at == 0 || !is_word(b->at[at - 1])) && digit == number) {
            u64 end = at;
            while (end < b->n && is_word(b->at[end])) {
                end++;
            }
            *n = end - at;
            return at;
        }
    }
    *n = 0;
    return at;
}

static const char *const numbers[] = {
    "0",      "1",     "-1",       "2",    "3",        "7",       "0.5",   "1e9",
    "1e308",  "1<<31", "1<<62",    "-0.0", "0/0",      "1/0",     "65536", "2147483648",
    "1e-320", "nil",   "\"four\"", "{}",   "{ 1, 2 }", "1000000", "4097",  "9223372036854775807"};
static const char *const words[] = {"{",
                                    "}",
                                    "(",
                                    ")",
                                    ",",
                                    "=",
                                    "\"",
                                    "--[[",
                                    "nil",
                                    "true",
                                    "mg.",
                                    "mg.ops.",
                                    "return ",
                                    "function() ",
                                    " end ",
                                    "local ",
                                    "for i = 1, 3 do ",
                                    ":with",
                                    "mg.spec",
                                    "mg.stack(3, ",
                                    "mg.residual",
                                    "mg.layer",
                                    "mg.op",
                                    "mg.weight",
                                    "mg.replace",
                                    "x + x",
                                    "error{}",
                                    "error()",
                                    "assert(nil)",
                                    "..",
                                    "mg.matmul(x, x)",
                                    "\\",
                                    "\xff",
                                    "\xe2\x82\xac",
                                    "name = \"*/\"",
                                    "remat = \"full\"",
                                    "dropout = 0.5",
                                    "window = 3",
                                    "bias = true",
                                    "tied = true",
                                    "heads = 3",
                                    "act = \"gelu\"",
                                    "x[b s d] -> y[b s d]",
                                    "y = x / x",
                                    "sum(x)",
                                    "batch.tokens",
                                    "batch.targets",
                                    "#"};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static void mutate(Bytes *b, const Bytes *other)
{
    char copy[512];
    u64 n, m, at = line(b, &n), p = below(b->n);
    switch (below(12)) {
    case 0: /* a byte */
        b->at[p] = (char)below(256);
        break;
    case 1: /* drop a line */
        replace(b, at, n, "", 0);
        break;
    case 2: /* a line of another spec */
        m = line(other, &n);
        n = n < sizeof copy ? n : sizeof copy;
        memcpy(copy, other->at + m, n);
        replace(b, at, 0, copy, n);
        break;
    case 3: /* a line a second time, elsewhere */
        n = n < sizeof copy ? n : sizeof copy;
        memcpy(copy, b->at + at, n);
        at = line(b, &m);
        replace(b, at, 0, copy, n);
        break;
    case 4: /* drop some bytes */
        replace(b, p, 1 + below(20), "", 0);
        break;
    case 5: /* cut off the rest */
        b->n = below(8) ? b->n : p;
        break;
    case 6: /* some word of the language */
        n = below(COUNT(words));
        replace(b, p, 0, words[n], strlen(words[n]));
        break;
    case 7: /* a name in place of another */
    case 8:
        m = word(other, false, &n);
        n = n < sizeof copy ? n : sizeof copy;
        memcpy(copy, other->at + m, n);
        p = word(b, false, &m);
        replace(b, p, m, copy, n);
        break;
    default: /* another number */
        p = word(b, true, &n);
        m = below(COUNT(numbers));
        replace(b, p, n, numbers[m], n ? strlen(numbers[m]) : 0);
    }
    b->n = b->n ? b->n : 1;
}

/* ---- one spec ------------------------------------------------------------------------------------
 */

static void put_file(const char *path, const Bytes *b)
{
    FILE *f = fopen(path, "w");
    if (!f || fwrite(b->at, 1, b->n, f) != b->n || fclose(f)) {
        perror(path);
        exit(3);
    }
}

static bool in_table(int code)
{
    for (const mg_exit_row *e = mg_exit_table; e->meaning; e++) {
        if (e->code == code) {
            return code < 70;
        }
    }
    return false;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is wrong with the end of a compile, or NULL. said: the file of all that it wrote. */
static const char *judge(int code, double seconds, const char *said)
{
    static char text[1 << 16];
    FILE *f = fopen(said, "r");
    u64 n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f) {
        fclose(f);
    }
    if (!in_table(code)) {
        return "an exit code of a crash";
    }
    if (seconds > SLOW_SECONDS) {
        return "too slow";
    }
    if (code && !strstr(text, "error[E")) {
        return "no message";
    }
    return strstr(text, "E0199") ? "an internal error is reported" : NULL;
}

static int compile_spec(const char *spec, const char *out, int said)
{
    int keep[2] = {dup(1), dup(2)};
    if (ftruncate(said, 0)) {
        return 3;
    }
    lseek(said, 0, SEEK_SET);
    dup2(said, 1);
    dup2(said, 2);
    Record rec;
    Job job = {.spec = spec, .out = out, .first = EXPAND, .last = EMIT, .report = true};
    char *none[1] = {NULL};
    job.override = none;
    int code = compile_in_child(&job, &rec);
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        dup2(keep[i], i + 1);
        close(keep[i]);
    }
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc - 4 > SEED_MAX) {
        return 2;
    }
    char spec[512], out[512], words_file[512];
    snprintf(spec, sizeof spec, "%s/spec.lua", argv[3]);
    snprintf(out, sizeof out, "%s/out", argv[3]);
    snprintf(words_file, sizeof words_file, "%s/said", argv[3]);
    int said = open(words_file, O_CREAT | O_RDWR, 0666);
    Bytes seed[SEED_MAX], b = {malloc(TEXT_MAX), 0};
    Arena *a = arena_new();
    u32 nseed = (u32)argc - 4, count = (u32)atoi(argv[1]), per_code[256] = {0}, nwrong = 0;
    for (u32 i = 0; i < nseed; i++) {
        if (file_read(a, argv[i + 4], &seed[i].at, &seed[i].n) || seed[i].n >= TEXT_MAX) {
            fprintf(stderr, "%s cannot be used as a seed\n", argv[i + 4]);
            return 3;
        }
    }
    double slowest = 0;
    for (u32 i = 0; i < count; i++) {
        rng = (strtoull(argv[2], NULL, 10) + 1) * 0x9e3779b97f4a7c15 + i * 0xd1b54a32d192ed03ull;
        below(1), below(1), below(1);
        const Bytes *from = &seed[below(nseed)];
        memcpy(b.at, from->at, b.n = from->n);
        for (u64 k = 1 + below(2) * below(3); k; k--) {
            mutate(&b, &seed[below(nseed)]);
        }
        put_file(spec, &b);
        double t0 = now();
        int code = compile_spec(spec, out, said);
        double seconds = now() - t0;
        const char *wrong = judge(code, seconds, words_file);
        if (wrong) {
            char kept[600];
            snprintf(kept, sizeof kept, "%s/wrong.%u.lua", argv[3], i);
            put_file(kept, &b);
            printf("%s: exit %d after %.1f s: %s\n", kept, code, seconds, wrong);
            if (++nwrong == WRONG_MAX) {
                return 1;
            }
        }
        per_code[code]++;
        slowest = seconds > slowest ? seconds : slowest;
    }
    printf("%u specs; slowest %.2f s; exit codes", count, slowest);
    for (int i = 0; i < 256; i++) {
        if (per_code[i]) {
            printf(" %d: %u", i, per_code[i]);
        }
    }
    printf("\n");
    return nwrong > 0;
}
