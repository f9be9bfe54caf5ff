/* data.c: see data.h. */
#include "data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATTERN = 65536 };

typedef struct {
    mg_corpus corpus;
    double weight;
    uint64_t key;      /* of its shuffles */
    uint64_t windows;  /* of an epoch */
    uint64_t slack;    /* largest offset of an epoch */
    uint64_t in_order; /* windows of an evaluation */
    uint64_t share;    /* rows of the pattern */
} Source;

struct mg_data {
    Source *source;
    int n;
    uint64_t seq;
    int32_t vocab;
    bool eod_mask;
    uint16_t *pattern; /* [PATTERN] source of a row; NULL with one source */
    uint32_t *rank;    /* [PATTERN] how many rows of the pattern before it are of its source */
};

/* ---- tokens ---------------------------------------------------------------------------------- */

#define GET(name, type)                                                                            \
    static int64_t name(const void *p)                                                             \
    {                                                                                              \
        type v;                                                                                    \
        memcpy(&v, p, sizeof v);                                                                   \
        return (int64_t)v;                                                                         \
    }
GET(get_u8, uint8_t)
GET(get_i8, int8_t)
GET(get_i16, int16_t)
GET(get_i32, int32_t)
GET(get_i64, int64_t)
GET(get_u16, uint16_t)
GET(get_u64, uint64_t)

const mg_token_row mg_token_table[MG_TOKEN_ROWS] = {
    [1] = {"uint8", 1, get_u8},  [2] = {"int8", 1, get_i8},    [3] = {"int16", 2, get_i16},
    [4] = {"int32", 4, get_i32}, [5] = {"int64", 8, get_i64},  [6] = {"float64", 8, NULL},
    [7] = {"float32", 4, NULL},  [8] = {"uint16", 2, get_u16},
};

int64_t mg_corpus_token(const mg_corpus *k, uint64_t i)
{
    return k->type->get(k->bin + i * (uint64_t)k->type->bytes);
}

/* ---- the pair of files ----------------------------------------------------------------------- */

static const unsigned char *lengths(const mg_corpus *k)
{
    return k->idx + MG_IDX_HEAD;
}
static const unsigned char *pointers(const mg_corpus *k)
{
    return lengths(k) + 4 * k->sequences;
}
static const unsigned char *documents(const mg_corpus *k)
{
    return pointers(k) + 8 * k->sequences;
}

static int map_file(const char *prefix, const char *end, const unsigned char **p, uint64_t *n)
{
    mg_text path = {0};
    mg_text_printf(&path, "%s%s", prefix, end);
    struct stat st;
    int rc = MG_OK, fd = open(path.p, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        rc = mg_fail(MG_INPUT, "%s: %s", path.p, strerror(errno));
    else if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = mg_fail(MG_INPUT, "%s: is not a regular file", path.p);
    *p = NULL;
    *n = rc == MG_OK ? (uint64_t)st.st_size : 0;
    if (*n > 0) {
        void *map = mmap(NULL, *n, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            rc = mg_fail(MG_INPUT, "%s: %s", path.p, strerror(errno));
        else
            *p = map;
    }
    if (fd >= 0)
        close(fd);
    mg_text_free(&path);
    return rc;
}

static int check_head(mg_corpus *k)
{
    const char *f = k->prefix;
    if (k->idx_bytes < MG_IDX_HEAD)
        return mg_fail(MG_INPUT, "%s.idx: %" PRIu64 " bytes, the header has %d", f, k->idx_bytes,
                       MG_IDX_HEAD);
    if (memcmp(k->idx, MG_IDX_MAGIC, 9) != 0)
        return mg_fail(MG_INPUT, "%s.idx: offset 0: not the mark of a Megatron index (MMIDIDX)", f);
    if (get_u64(k->idx + 9) != MG_IDX_VERSION)
        return mg_fail(MG_INPUT, "%s.idx: offset 9: version %" PRId64 ", known is %d", f,
                       get_i64(k->idx + 9), MG_IDX_VERSION);
    int code = k->idx[17];
    if (code >= MG_TOKEN_ROWS || mg_token_table[code].get == NULL)
        return mg_fail(MG_INPUT, "%s.idx: offset 17: type code %d is not one of whole numbers", f,
                       code);
    k->type = &mg_token_table[code];
    k->sequences = (uint64_t)get_u64(k->idx + 18);
    uint64_t marks = (uint64_t)get_u64(k->idx + 26), rest = k->idx_bytes - MG_IDX_HEAD;
    if (k->sequences > rest / 12 || marks > (rest - 12 * k->sequences) / 8)
        return mg_fail(MG_INPUT,
                       "%s.idx: offset 18: %" PRIu64 " sequences and %" PRIu64
                       " document marks do not fit into %" PRIu64 " bytes",
                       f, k->sequences, marks, k->idx_bytes);
    uint64_t used = 12 * k->sequences + 8 * marks;
    if (rest != used && rest != used + k->sequences)
        return mg_fail(MG_INPUT, "%s.idx: %" PRIu64 " bytes, header and counts say %" PRIu64, f,
                       k->idx_bytes, MG_IDX_HEAD + used);
    if (marks == 0 && k->sequences > 0)
        return mg_fail(MG_INPUT, "%s.idx: offset 26: no document marks for %" PRIu64 " sequences",
                       f, k->sequences);
    k->documents = marks > 0 ? marks - 1 : 0;
    return MG_OK;
}

/* Lengths, pointers and document marks agree with each other and with the size of .bin. */
static int check_body(mg_corpus *k)
{
    const char *f = k->prefix;
    uint64_t at = 0, size = (uint64_t)k->type->bytes;
    for (uint64_t i = 0; i < k->sequences; i++) {
        int64_t n = get_i32(lengths(k) + 4 * i), p = get_i64(pointers(k) + 8 * i);
        if (n < 0)
            return mg_fail(MG_INPUT, "%s.idx: sequence %" PRIu64 " has length %" PRId64, f, i, n);
        if ((uint64_t)p != at)
            return mg_fail(MG_INPUT,
                           "%s.idx: sequence %" PRIu64 " is said to begin at byte %" PRId64
                           ", the lengths before it end at %" PRIu64,
                           f, i, p, at);
        at += (uint64_t)n * size;
        if (at > k->bin_bytes)
            return mg_fail(MG_INPUT,
                           "%s.bin: %" PRIu64 " bytes, sequence %" PRIu64 " ends at byte %" PRIu64,
                           f, k->bin_bytes, i, at);
    }
    k->tokens = at / size;
    uint64_t before = 0;
    for (uint64_t i = 0; k->documents > 0 && i <= k->documents; i++) {
        uint64_t mark = (uint64_t)get_u64(documents(k) + 8 * i);
        bool end = i == k->documents && mark != k->sequences;
        if (mark < before || mark > k->sequences || (i == 0 && mark != 0) || end)
            return mg_fail(MG_INPUT,
                           "%s.idx: document mark %" PRIu64 " is %" PRIu64
                           "; marks must rise from 0 to the %" PRIu64 " sequences",
                           f, i, mark, k->sequences);
        before = mark;
    }
    return MG_OK;
}

int mg_corpus_open(mg_corpus *k, const char *prefix)
{
    *k = (mg_corpus){.prefix = strdup(prefix)};
    int rc = k->prefix != NULL ? MG_OK : mg_fail(MG_NO_FIT, "no memory for '%s'", prefix);
    if (rc == MG_OK)
        rc = map_file(prefix, ".idx", &k->idx, &k->idx_bytes);
    if (rc == MG_OK)
        rc = map_file(prefix, ".bin", &k->bin, &k->bin_bytes);
    if (rc == MG_OK)
        rc = check_head(k);
    if (rc == MG_OK)
        rc = check_body(k);
    if (rc != MG_OK)
        mg_corpus_close(k);
    return rc;
}

void mg_corpus_close(mg_corpus *k)
{
    if (k->bin != NULL)
        munmap((void *)(uintptr_t)k->bin, k->bin_bytes);
    if (k->idx != NULL)
        munmap((void *)(uintptr_t)k->idx, k->idx_bytes);
    free(k->prefix);
    *k = (mg_corpus){0};
}

uint64_t mg_corpus_document(const mg_corpus *k, uint64_t i)
{
    uint64_t sequence = (uint64_t)get_u64(documents(k) + 8 * i);
    if (i >= k->documents || sequence >= k->sequences)
        return k->tokens;
    return (uint64_t)get_i64(pointers(k) + 8 * sequence) / (uint64_t)k->type->bytes;
}

/* ---- order ----------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A Feistel network over the smallest even number of bits that holds n, walked until it lands below
 * n. */
uint64_t mg_shuffle(uint64_t key, uint64_t e, uint64_t n, uint64_t w)
{
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < n)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = w;
    key = mix(key ^ mix(e + 0x9e3779b97f4a7c15u));
    do {
        uint64_t l = x >> half, r = x & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t t = l ^ (mix(key + r + (round << 56)) & mask);
            l = r;
            r = t;
        }
        x = l << half | r;
    } while (x >= n);
    return x;
}

static void windows_set(Source *s, uint64_t seq)
{
    uint64_t t = s->corpus.tokens;
    s->windows = t > 2 * seq ? (t - seq) / seq : 1;
    s->slack = t - 1 > s->windows * seq ? t - 1 - s->windows * seq : 0;
    if (s->slack > seq - 1)
        s->slack = seq - 1;
    s->in_order = (t - 1 + seq - 1) / seq;
}

/* Deals the rows of the pattern one by one to the source that is furthest behind its share. */
static int pattern_make(mg_data *d)
{
    double sum = 0;
    d->pattern = malloc(PATTERN * sizeof *d->pattern);
    d->rank = malloc(PATTERN * sizeof *d->rank);
    if (d->pattern == NULL || d->rank == NULL)
        return mg_fail(MG_NO_FIT, "no memory for the order of a blend");
    for (int k = 0; k < d->n; k++)
        sum += d->source[k].weight;
    for (int i = 0; i < PATTERN; i++) {
        int best = 0;
        double behind = -1e300;
        for (int k = 0; k < d->n; k++) {
            double b = d->source[k].weight / sum * (i + 1) - (double)d->source[k].share;
            if (b > behind) {
                behind = b;
                best = k;
            }
        }
        d->pattern[i] = (uint16_t)best;
        d->rank[i] = (uint32_t)d->source[best].share++;
    }
    for (int k = 0; k < d->n; k++)
        if (d->source[k].share == 0)
            return mg_fail(MG_USAGE, "%s: weight %g of %g is less than one row of %d",
                           d->source[k].corpus.prefix, d->source[k].weight, sum, PATTERN);
    return MG_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Splits "prefix:weight" in place; weight 0 = none given. */
static int weight_cut(char *item, double *weight)
{
    char *colon = strrchr(item, ':'), *end;
    *weight = 0;
    if (colon == NULL || strchr(colon, '/') != NULL)
        return MG_OK;
    double w = strtod(colon + 1, &end);
    if (end == colon + 1 || *end != 0)
        return MG_OK;
    if (!(w > 0 && w < 1e300))
        return mg_fail(MG_USAGE, "'%s': the weight must be above 0", item);
    *colon = 0;
    *weight = w;
    return MG_OK;
}

static int source_open(mg_data *d, char *item, uint64_t seed)
{
    Source *s = &d->source[d->n];
    *s = (Source){0};
    MG_TRY(weight_cut(item, &s->weight));
    MG_TRY(mg_corpus_open(&s->corpus, item));
    d->n++;
    if (s->corpus.tokens < 2)
        return mg_fail(MG_INPUT,
                       "%s: %" PRIu64 " tokens in %" PRIu64 " documents; a row needs at least 2",
                       item, s->corpus.tokens, s->corpus.documents);
    if (s->weight == 0)
        s->weight = (double)s->corpus.tokens;
    s->key = mix(seed) + (uint64_t)d->n;
    windows_set(s, d->seq);
    return MG_OK;
}

static int list_open(mg_data *d, char *list, uint64_t seed)
{
    int weighted = 0;
    for (char *item = list, *next; item != NULL; item = next) {
        next = strchr(item, ',');
        if (next != NULL)
            *next++ = 0;
        if (*item == 0)
            return mg_fail(MG_USAGE, "a list of data has an empty entry");
        char *colon = strrchr(item, ':');
        MG_TRY(source_open(d, item, seed));
        weighted += colon != NULL && *colon == 0;
    }
    if (weighted != 0 && weighted != d->n)
        return mg_fail(MG_USAGE, "%d of %d files have a weight; give it to all or to none",
                       weighted, d->n);
    return d->n > 1 ? pattern_make(d) : MG_OK;
}

int mg_data_open(mg_data **out, const char *list, uint64_t seed, int seq, int vocab, bool eod_mask)
{
    size_t most = 1;
    for (const char *p = list; *p != 0; p++)
        most += *p == ',';
    mg_data *d = calloc(1, sizeof *d);
    char *copy = strdup(list);
    *out = NULL;
    if (d == NULL || copy == NULL || (d->source = calloc(most, sizeof *d->source)) == NULL ||
        most > UINT16_MAX) {
        free(d);
        free(copy);
        return mg_fail(MG_NO_FIT, "no memory for a list of %zu files", most);
    }
    d->seq = (uint64_t)seq;
    d->vocab = vocab;
    d->eod_mask = eod_mask;
    int rc = list_open(d, copy, seed);
    free(copy);
    if (rc != MG_OK)
        mg_data_close(d);
    else
        *out = d;
    return rc;
}

void mg_data_close(mg_data *d)
{
    if (d == NULL)
        return;
    for (int i = 0; i < d->n; i++)
        mg_corpus_close(&d->source[i].corpus);
    free(d->source);
    free(d->pattern);
    free(d->rank);
    free(d);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* First document that begins behind token `at`. */
static uint64_t document_after(const mg_corpus *k, uint64_t at)
{
    uint64_t lo = 0, hi = k->documents;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (mg_corpus_document(k, mid) > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* Document by document: where it begins in the row, and no target at the end of the one before. */
static void cut_documents(const mg_data *d, const mg_corpus *k, uint64_t from, int32_t *targets,
                          int32_t *lo)
{
    uint64_t begin = 0, at = 0;
    for (uint64_t i = document_after(k, from); begin < d->seq; i++, begin = at) {
        at = i < k->documents ? mg_corpus_document(k, i) - from : d->seq + 1;
        for (uint64_t t = begin; lo != NULL && t < at && t < d->seq; t++)
            lo[t] = (int32_t)begin;
        if (d->eod_mask && at > 0 && at <= d->seq)
            targets[at - 1] = -1;
    }
}

static int read_window(const mg_data *d, const mg_corpus *k, uint64_t from, int32_t *tokens,
                       int32_t *targets, int32_t *lo)
{
    uint64_t n = k->tokens - from < d->seq + 1 ? k->tokens - from : d->seq + 1;
    for (uint64_t i = 0; i < d->seq; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    for (uint64_t i = 0; i < n; i++) {
        int64_t v = mg_corpus_token(k, from + i);
        if (v < 0 || v >= d->vocab)
            return mg_fail(MG_INPUT,
                           "%s.bin: offset %" PRIu64 ": token %" PRId64
                           " is not below the vocabulary of %d",
                           k->prefix, (from + i) * (uint64_t)k->type->bytes, v, d->vocab);
        if (i < d->seq)
            tokens[i] = (int32_t)v;
        if (i > 0)
            targets[i - 1] = (int32_t)v;
    }
    if (d->eod_mask || lo != NULL)
        cut_documents(d, k, from, targets, lo);
    return MG_OK;
}

int mg_data_row(const mg_data *d, uint64_t i, int32_t *tokens, int32_t *targets, int32_t *lo)
{
    uint64_t at = i;
    const Source *s = d->source;
    if (d->pattern != NULL) {
        s += d->pattern[i % PATTERN];
        at = i / PATTERN * s->share + d->rank[i % PATTERN];
    }
    uint64_t e = at / s->windows, w = mg_shuffle(s->key, e, s->windows, at % s->windows);
    uint64_t offset = mix(s->key ^ mix(~e)) % (s->slack + 1);
    return read_window(d, &s->corpus, offset + w * d->seq, tokens, targets, lo);
}

int mg_data_window(const mg_data *d, uint64_t i, int32_t *tokens, int32_t *targets, int32_t *lo)
{
    const Source *s = d->source;
    for (; i >= s->in_order; s++)
        i -= s->in_order;
    return read_window(d, &s->corpus, i * d->seq, tokens, targets, lo);
}

uint64_t mg_data_windows(const mg_data *d)
{
    uint64_t n = 0;
    for (int i = 0; i < d->n; i++)
        n += d->source[i].in_order;
    return n;
}

uint64_t mg_data_tokens(const mg_data *d)
{
    uint64_t n = 0;
    for (int i = 0; i < d->n; i++)
        n += d->source[i].corpus.tokens;
    return n;
}

uint64_t mg_data_documents(const mg_data *d)
{
    uint64_t n = 0;
    for (int i = 0; i < d->n; i++)
        n += d->source[i].corpus.documents;
    return n;
}
