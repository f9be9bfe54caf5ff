/* ngram.c: what counting can do, so that a model can be compared with it.
 *
 *   ngram TRAIN VALID     fits byte models of orders 1 to 7 on TRAIN, prints nats a byte on VALID
 *
 * Order n predicts a byte from the n - 1 bytes before it. The models are interpolated by Witten and
 * Bell's rule: with c(h) the count of the history h, t(h) the number of different bytes seen after
 * it,
 *
 *   p_n(b | h) = (c(h b) + t(h) p_{n-1}(b | h')) / (c(h) + t(h)),    h' = h without its first byte,
 *
 * p_0 = 1 / 256, and p_n = p_{n-1} for a history that was never seen. A gram of up to 7 bytes is a
 * 64-bit key in an open hash table; one thread fits the odd orders, one the even ones.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORDER_MAX = 7 };

typedef struct {
    uint64_t
        key;    /* the gram's bytes, the last one lowest; 0 together with n = 0 is an empty slot */
    uint32_t n; /* how often                                                            */
    uint32_t kinds; /* of a history: different bytes after it                               */
} Slot;

typedef struct {
    Slot *at;
    uint64_t mask, used;
} Table;

typedef struct {
    unsigned char *at;
    size_t n;
} Bytes;

typedef struct {
    Table gram[ORDER_MAX + 1], history[ORDER_MAX + 1]; /* by order; a history has order - 1 bytes */
    Bytes train;
} Model;

typedef struct {
    Model *model;
    int first;
} Job;

static void die(const char *what)
{
    fprintf(stderr, "ngram: %s: %s\n", what, strerror(errno));
    exit(5);
}

static Bytes file_bytes(const char *path)
{
    Bytes b = {0};
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END))
        die(path);
    b.n = (size_t)ftell(f);
    rewind(f);
    b.at = malloc(b.n + 1);
    if (!b.at || fread(b.at, 1, b.n, f) != b.n)
        die(path);
    fclose(f);
    return b;
}

static Slot *slot_of(const Table *t, uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    for (uint64_t i = h ^ h >> 29;; i++) {
        Slot *s = &t->at[i & t->mask];
        if (s->n == 0 || s->key == key)
            return s;
    }
}

static void table_init(Table *t, uint64_t size)
{
    *t = (Table){.at = calloc(size, sizeof(Slot)), .mask = size - 1};
    if (!t->at)
        die("tables");
}

static void table_double(Table *t)
{
    Table old = *t;
    table_init(t, (old.mask + 1) * 2);
    t->used = old.used;
    for (uint64_t i = 0; i <= old.mask; i++) {
        if (old.at[i].n)
            *slot_of(t, old.at[i].key) = old.at[i];
    }
    free(old.at);
}

/* Counts one occurrence; -> the slot. */
static Slot *table_count(Table *t, uint64_t key)
{
    Slot *s = slot_of(t, key);
    if (s->n == 0 && ++t->used * 2 > t->mask) {
        table_double(t);
        s = slot_of(t, key);
    }
    s->key = key;
    s->n++;
    return s;
}

static uint64_t last_bytes(uint64_t window, int n)
{
    return n == 0 ? 0 : window & (~(uint64_t)0 >> (64 - 8 * n));
}

/* Bytes before the start of the text count as zeros. */
static void fit(Model *m, int order)
{
    uint64_t window = 0;
    table_init(&m->gram[order], 1 << 12);
    table_init(&m->history[order], 1 << 12);
    for (size_t i = 0; i < m->train.n; i++) {
        Slot *h = table_count(&m->history[order], last_bytes(window, order - 1));
        window = window << 8 | m->train.at[i];
        Slot *g = table_count(&m->gram[order], last_bytes(window, order));
        if (g->n == 1)
            h->kinds++;
    }
}

static void *fit_some(void *arg)
{
    Job *job = arg;
    for (int order = job->first; order <= ORDER_MAX; order += 2)
        fit(job->model, order);
    return NULL;
}

/* Sums of -log p over the text, by order. */
static void evaluate(const Model *m, Bytes text, double nats[ORDER_MAX + 1])
{
    uint64_t window = 0;
    for (size_t i = 0; i < text.n; i++) {
        uint64_t next = window << 8 | text.at[i];
        double p = 1.0 / 256;
        for (int order = 1; order <= ORDER_MAX; order++) {
            const Slot *h = slot_of(&m->history[order], last_bytes(window, order - 1));
            if (h->n) {
                const Slot *g = slot_of(&m->gram[order], last_bytes(next, order));
                p = (g->n + h->kinds * p) / ((double)h->n + h->kinds);
            }
            nats[order] -= log(p);
        }
        window = next;
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: ngram TRAIN VALID\n");
        return 2;
    }
    Model m = {.train = file_bytes(argv[1])};
    Bytes valid = file_bytes(argv[2]);
    if (m.train.n == 0 || valid.n == 0) {
        fprintf(stderr, "ngram: an empty text\n");
        return 5;
    }
    Job odd = {&m, 1}, even = {&m, 2};
    pthread_t thread;
    if (pthread_create(&thread, NULL, fit_some, &even))
        die("thread");
    fit_some(&odd);
    pthread_join(thread, NULL);

    double nats[ORDER_MAX + 1] = {0}, best = INFINITY;
    evaluate(&m, valid, nats);
    for (int order = 1; order <= ORDER_MAX; order++) {
        double a_byte = nats[order] / (double)valid.n;
        printf("order %d  %.4f nats/byte\n", order, a_byte);
        best = fmin(best, a_byte);
    }
    printf("best     %.4f nats/byte\n", best);
    return 0;
}
