/* sample.c: text from a model, one token at a time, by its chain `logits`.
 *
 * Tokens are bytes (0-255) and 256 for the end of a document where the vocabulary has it; a larger
 * vocabulary is printed as numbers. The window slides by half when it is full.
 */
#include "run.h"
#include "mgk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256, END = 256 };

typedef struct {
    float p;
    int id;
} Choice;

static int by_chance(const void *a, const void *b)
{
    const Choice *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p ? 1 : -1) : x->id - y->id;
}

/* Picks from logits by temperature and top-k; `u` in [0, 1). Ties go to the lower id. */
static int pick(const float *logits, Choice *c, int n, double temperature, int top, double u)
{
    for (int i = 0; i < n; i++)
        c[i] = (Choice){logits[i], i};
    qsort(c, (size_t)n, sizeof *c, by_chance);
    if (temperature <= 0)
        return c[0].id;
    int k = top > 0 && top < n ? top : n;
    double sum = 0, most = (double)c[0].p;
    for (int i = 0; i < k; i++)
        sum += exp(((double)c[i].p - most) / temperature);
    double left = u * sum;
    for (int i = 0; i < k; i++) {
        left -= exp(((double)c[i].p - most) / temperature);
        if (left < 0)
            return c[i].id;
    }
    return c[k - 1].id;
}

static void token_print(mg_text *t, int id, int vocab)
{
    if (vocab > BYTES + 1)
        mg_text_printf(t, "%d ", id);
    else if (id == END)
        mg_text_printf(t, "\n");
    else
        mg_text_printf(t, "%c", id);
}

/* A terminal gets text only: control bytes and what is not UTF-8 become '?'. */
static void text_tame(mg_text *t)
{
    for (size_t i = 0; i < t->n;) {
        int n = mg_utf8_length(t->p + i);
        unsigned char c = (unsigned char)t->p[i];
        if (n == 0 || (c < ' ' && c != '\n' && c != '\t') || c == 0x7f)
            t->p[i] = '?';
        i += n > 0 ? (size_t)n : 1;
    }
}

/* The window's first tokens: the prompt, or the end of a document, after which one begins. */
static int window_start(const mg_run *r, const char *prompt, int32_t *w)
{
    int seq = r->m->seq, n = (int)strlen(prompt), skip = n > seq ? n - seq : 0;
    for (int i = skip; i < n; i++)
        w[i - skip] = (unsigned char)prompt[i];
    if (n > 0)
        return n - skip;
    w[0] = r->m->vocab > END ? END : '\n';
    return 1;
}

/* Documents of the window of row 0: what lies behind an end begins a new one. */
static void documents_mark(const mg_run *r, const int32_t *w, int n)
{
    if (r->lo == NULL)
        return;
    int32_t *lo = (int32_t *)(void *)(r->c.mem + r->lo->off), begin = 0;
    memset(lo, 0, (size_t)r->m->micro * (size_t)r->m->seq * sizeof *lo);
    for (int i = 0; i < n; i++) {
        lo[i] = begin;
        if (w[i] == END && r->m->vocab > END)
            begin = i + 1;
    }
}

int mg_run_sample(mg_run *r, const char *prompt)
{
    const mg_model *m = r->m;
    if (r->logits == NULL || m->logits == NULL)
        return mg_fail(MG_USAGE, "%s has no head to sample from", m->name);
    if (m->vocab < BYTES)
        return mg_fail(MG_USAGE, "samples need a vocabulary of bytes, this one has %d", m->vocab);
    int64_t tokens = mg_conf_int(&r->conf, "sample.tokens", 200);
    double temperature = mg_conf_num(&r->conf, "sample.temperature", 0.8);
    int top = (int)mg_conf_int(&r->conf, "sample.top_k", 0);
    int32_t *w = (int32_t *)(void *)(r->c.mem + r->tokens->off);
    memset(w, 0, (size_t)m->micro * (size_t)m->seq * sizeof *w);
    Choice *c = malloc((size_t)m->vocab * sizeof *c);
    if (c == NULL)
        return mg_fail(MG_NO_FIT, "no memory for a sample");
    mg_text text = {0};
    mg_text_printf(&text, "%s", prompt);
    int n = window_start(r, prompt, w);
    for (int64_t i = 0; i < tokens; i++) {
        documents_mark(r, w, n);
        r->c.scalar.pos = n - 1;
        m->logits(&r->c);
        uint32_t word =
            mgk_rand(r->c.scalar.seed, mg_path_site("sample"), (uint64_t)i, (uint32_t)r->step, 0);
        int id = pick((const float *)(const void *)(r->c.mem + r->logits->off), c, m->vocab,
                      temperature, top, (double)word * 0x1p-32);
        token_print(&text, id, m->vocab);
        if (n == m->seq) {
            int half = n / 2;
            memmove(w, w + n - half, (size_t)half * sizeof *w);
            memset(w + half, 0, (size_t)(n - half) * sizeof *w);
            n = half;
        }
        w[n++] = id;
    }
    text_tame(&text);
    mg_log_line(&r->log, "%s", text.p);
    mg_text_free(&text);
    free(c);
    return MG_OK;
}
