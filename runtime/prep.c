/* prep.c: `megagen data`: text to token files, and looking into them. Part of megagen, not of a
 * trainer.
 *
 * The tokenizer is the byte tokenizer: ids 0-255 are bytes, 256 ends a document; .bin holds uint16.
 * A text file is one document, or one for each paragraph (--split-lines-empty) or line
 * (--split-lines); a line of .jsonl is one. Files that end in .gz, or begin like one, are unpacked.
 * Output is written beside its place and renamed, .idx last, so that a pair that can be opened is
 * whole.
 */
#include "data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { END = 256, TYPE_U16 = 8, SEQUENCE_MOST = 1 << 30 };

typedef struct {
    const char *out, *key; /* prefix; member of a jsonl line that holds the text */
    bool split_empty, split_line, no_end, json, raw;
    int64_t seq, seed; /* peek: rows as a trainer cuts them */
    const char **file; /* operands */
    int files;
} Options;

/* ---- writing a pair -------------------------------------------------------------------------- */

typedef struct {
    mg_text bin_path, idx_path; /* temporary names */
    FILE *bin;
    mg_text lengths, marks; /* int32 of each sequence; int64 of each document */
    uint64_t sequences, tokens, empty;
} Writer;

static int writer_open(Writer *w, const char *prefix)
{
    int64_t zero = 0;
    *w = (Writer){0};
    mg_text_printf(&w->bin_path, "%s.bin.new", prefix);
    mg_text_printf(&w->idx_path, "%s.idx.new", prefix);
    mg_text_add(&w->marks, &zero, sizeof zero);
    w->bin = fopen(w->bin_path.p, "we");
    return w->bin != NULL ? MG_OK : mg_fail(MG_STORAGE, "%s: %s", w->bin_path.p, strerror(errno));
}

static int tokens_put(Writer *w, const unsigned char *p, size_t n, bool end)
{
    uint16_t buf[4096];
    size_t k = 0;
    for (size_t i = 0; i < n + end; i++) {
        buf[k++] = i < n ? p[i] : END;
        if (k < 4096 && i + 1 < n + end)
            continue;
        if (fwrite(buf, sizeof *buf, k, w->bin) != k)
            return mg_fail(MG_STORAGE, "%s: write: %s", w->bin_path.p, strerror(errno));
        k = 0;
    }
    return MG_OK;
}

/* A length is an int32, so a very long document is several sequences. */
static int document_put(Writer *w, const char *p, size_t n, const Options *o)
{
    if (n == 0) {
        w->empty++;
        return MG_OK;
    }
    for (size_t at = 0; at < n; at += SEQUENCE_MOST) {
        size_t k = n - at < SEQUENCE_MOST ? n - at : SEQUENCE_MOST;
        bool end = at + k == n && !o->no_end;
        int32_t length = (int32_t)k + end;
        MG_TRY(tokens_put(w, (const unsigned char *)p + at, k, end));
        mg_text_add(&w->lengths, &length, sizeof length);
        w->sequences++;
        w->tokens += (uint64_t)length;
    }
    int64_t mark = (int64_t)w->sequences;
    mg_text_add(&w->marks, &mark, sizeof mark);
    return MG_OK;
}

static void idx_text(const Writer *w, mg_text *t)
{
    uint64_t version = MG_IDX_VERSION, marks = w->marks.n / 8;
    int64_t at = 0;
    mg_text_add(t, MG_IDX_MAGIC, 9);
    mg_text_add(t, &version, 8);
    mg_text_printf(t, "%c", TYPE_U16);
    mg_text_add(t, &w->sequences, 8);
    mg_text_add(t, &marks, 8);
    mg_text_add(t, w->lengths.p, w->lengths.n);
    for (uint64_t i = 0; i < w->sequences; i++) {
        int32_t length;
        memcpy(&length, w->lengths.p + 4 * i, 4);
        mg_text_add(t, &at, 8);
        at += 2 * (int64_t)length;
    }
    mg_text_add(t, w->marks.p, w->marks.n);
}

static int rename_over(const char *from, const char *prefix, const char *end)
{
    mg_text to = {0};
    mg_text_printf(&to, "%s%s", prefix, end);
    int rc = rename(from, to.p) == 0 ? MG_OK
                                     : mg_fail(MG_STORAGE, "%s: rename: %s", to.p, strerror(errno));
    mg_text_free(&to);
    return rc;
}

static int writer_finish(Writer *w, const char *prefix)
{
    mg_text idx = {0};
    idx_text(w, &idx);
    FILE *f = fopen(w->idx_path.p, "we");
    int rc = MG_OK;
    if (f == NULL || fwrite(idx.p, 1, idx.n, f) != idx.n || fflush(f) != 0 || fsync(fileno(f)) != 0)
        rc = mg_fail(MG_STORAGE, "%s: %s", w->idx_path.p, strerror(errno));
    if (f != NULL && fclose(f) != 0 && rc == MG_OK)
        rc = mg_fail(MG_STORAGE, "%s: close: %s", w->idx_path.p, strerror(errno));
    if (rc == MG_OK && (fflush(w->bin) != 0 || fsync(fileno(w->bin)) != 0))
        rc = mg_fail(MG_STORAGE, "%s: %s", w->bin_path.p, strerror(errno));
    if (rc == MG_OK)
        rc = rename_over(w->bin_path.p, prefix, ".bin");
    if (rc == MG_OK)
        rc = rename_over(w->idx_path.p, prefix, ".idx");
    mg_text_free(&idx);
    return rc;
}

static void writer_close(Writer *w)
{
    if (w->bin != NULL)
        fclose(w->bin);
    if (w->bin_path.p != NULL)
        unlink(w->bin_path.p); /* gone already when all went well */
    if (w->idx_path.p != NULL)
        unlink(w->idx_path.p);
    mg_text_free(&w->bin_path);
    mg_text_free(&w->idx_path);
    mg_text_free(&w->lengths);
    mg_text_free(&w->marks);
}

/* ---- reading text ---------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    gzFile f;
    char buf[1 << 16];
    int at, n;
    uint64_t line; /* number of the line that was read, from 1 */
} Reader;

/* The next line with its newline into t; *more = false at the end. */
static int line_read(Reader *r, mg_text *t, bool *more)
{
    t->n = 0;
    for (;;) {
        if (r->at == r->n) {
            r->n = gzread(r->f, r->buf, sizeof r->buf);
            r->at = 0;
            int code = Z_OK;
            const char *why = gzerror(r->f, &code);
            if (r->n < 0 || (r->n == 0 && code != Z_OK && code != Z_STREAM_END))
                return mg_fail(MG_INPUT, "%s: %s", r->name,
                               code == Z_ERRNO ? strerror(errno) : why);
            if (r->n == 0) {
                *more = t->n > 0;
                r->line += *more;
                return MG_OK;
            }
        }
        char *end = memchr(r->buf + r->at, '\n', (size_t)(r->n - r->at));
        int to = end != NULL ? (int)(end - r->buf) + 1 : r->n;
        mg_text_add(t, r->buf + r->at, (size_t)(to - r->at));
        r->at = to;
        if (end != NULL) {
            r->line++;
            *more = true;
            return MG_OK;
        }
    }
}

static bool is_blank(const mg_text *t)
{
    return strspn(t->p, " \t\r\n") == t->n;
}

static int text_read(Reader *r, Writer *w, const Options *o)
{
    mg_text line = {0}, document = {0};
    bool more = true;
    int rc = MG_OK;
    while (rc == MG_OK && (rc = line_read(r, &line, &more)) == MG_OK && more) {
        bool cut = o->split_line || (o->split_empty && is_blank(&line));
        if (o->split_line)
            mg_text_add(&document, line.p, line.n - (line.p[line.n - 1] == '\n'));
        else if (!cut)
            mg_text_add(&document, line.p, line.n);
        if (cut && (document.n > 0 || o->split_line)) {
            rc = document_put(w, document.p, document.n, o);
            document.n = 0;
        }
    }
    if (rc == MG_OK && !o->split_line && (document.n > 0 || !o->split_empty))
        rc = document_put(w, document.p, document.n, o);
    mg_text_free(&line);
    mg_text_free(&document);
    return rc;
}

static int json_put(Reader *r, const mg_text *line, Writer *w, const Options *o)
{
    json_error_t e;
    json_t *root = json_loadb(line->p, line->n, JSON_ALLOW_NUL, &e);
    if (root == NULL)
        return mg_fail(MG_INPUT, "%s:%" PRIu64 ":%d: %s", r->name, r->line, e.column, e.text);
    json_t *text = json_object_get(root, o->key);
    int rc = json_is_string(text)
                 ? document_put(w, json_string_value(text), json_string_length(text), o)
                 : mg_fail(MG_INPUT,
                           "%s:%" PRIu64 ": no string \"%s\" in this object (--json-key names it)",
                           r->name, r->line, o->key);
    json_decref(root);
    return rc;
}

static int jsonl_read(Reader *r, Writer *w, const Options *o)
{
    mg_text line = {0};
    bool more = true;
    int rc = MG_OK;
    while (rc == MG_OK && (rc = line_read(r, &line, &more)) == MG_OK && more)
        if (!is_blank(&line))
            rc = json_put(r, &line, w, o);
    mg_text_free(&line);
    return rc;
}

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static int file_read(const char *name, Writer *w, const Options *o)
{
    Reader *r = calloc(1, sizeof *r);
    if (r == NULL)
        return mg_fail(MG_NO_FIT, "no memory");
    r->name = name;
    r->f = strcmp(name, "-") == 0 ? gzdopen(STDIN_FILENO, "r") : gzopen(name, "r");
    int rc = r->f != NULL ? MG_OK : mg_fail(MG_INPUT, "%s: %s", name, strerror(errno));
    bool jsonl = ends_in(name, ".jsonl") || ends_in(name, ".jsonl.gz");
    if (rc == MG_OK)
        rc = jsonl ? jsonl_read(r, w, o) : text_read(r, w, o);
    if (r->f != NULL)
        gzclose(r->f);
    free(r);
    return rc;
}

static int verb_prepare(const Options *o)
{
    if (o->files == 0 || o->out == NULL)
        return mg_fail(MG_USAGE, "usage: megagen data prepare FILE... -o PREFIX");
    Writer w;
    int rc = writer_open(&w, o->out);
    for (int i = 0; i < o->files && rc == MG_OK; i++)
        rc = file_read(o->file[i], &w, o);
    if (rc == MG_OK)
        rc = writer_finish(&w, o->out);
    if (rc == MG_OK) {
        printf("%s.bin %s.idx: %" PRIu64 " tokens in %zu documents, vocabulary 257, uint16\n",
               o->out, o->out, w.tokens, w.marks.n / 8 - 1);
        if (w.empty > 0)
            printf("%" PRIu64 " empty documents left out\n", w.empty);
    }
    writer_close(&w);
    return rc;
}

/* ---- looking --------------------------------------------------------------------------------- */

typedef struct {
    uint64_t least, most;
    int64_t top; /* largest token */
} Survey;

static Survey survey(const mg_corpus *k)
{
    Survey s = {.least = UINT64_MAX, .top = -1};
    for (uint64_t i = 0; i < k->documents; i++) {
        uint64_t n = mg_corpus_document(k, i + 1) - mg_corpus_document(k, i);
        s.least = n < s.least ? n : s.least;
        s.most = n > s.most ? n : s.most;
    }
    for (uint64_t i = 0; i < k->tokens; i++) {
        int64_t v = mg_corpus_token(k, i);
        s.top = v > s.top ? v : s.top;
    }
    if (k->documents == 0)
        s.least = 0;
    return s;
}

static int verb_info(const Options *o)
{
    if (o->files == 0)
        return mg_fail(MG_USAGE, "usage: megagen data info PREFIX...");
    for (int i = 0; i < o->files; i++) {
        mg_corpus k;
        MG_TRY(mg_corpus_open(&k, o->file[i]));
        Survey s = survey(&k);
        if (o->json) {
            mg_text t = {0};
            mg_text_printf(&t, "{\"prefix\": ");
            mg_json_str(&t, o->file[i]);
            printf("%s, \"tokens\": %" PRIu64 ", \"documents\": %" PRIu64
                   ", \"sequences\": %" PRIu64 ", \"type\": \"%s\", "
                   "\"shortest\": %" PRIu64 ", \"longest\": %" PRIu64
                   ", \"largest_token\": %" PRId64 "}\n",
                   t.p, k.tokens, k.documents, k.sequences, k.type->name, s.least, s.most, s.top);
            mg_text_free(&t);
        } else
            printf("%s: %" PRIu64 " tokens, %s, largest %" PRId64 "; %" PRIu64
                   " documents of %" PRIu64 " to %" PRIu64 " tokens; %" PRIu64 " sequences\n",
                   o->file[i], k.tokens, k.type->name, s.top, k.documents, s.least, s.most,
                   k.sequences);
        mg_corpus_close(&k);
    }
    return MG_OK;
}

/* Bytes as they are, the end of a document as <end>; anything else, or all with --raw, as a number.
 */
static void token_show(int64_t v, bool raw)
{
    if (raw || v > END || v < 0)
        printf("%" PRId64 " ", v);
    else if (v == END)
        printf("<end>\n");
    else
        putchar((int)v);
}

static int peek_document(const Options *o, uint64_t n)
{
    mg_corpus k;
    MG_TRY(mg_corpus_open(&k, o->file[0]));
    int rc = MG_OK;
    if (n >= k.documents)
        rc = mg_fail(MG_USAGE, "%s: document %" PRIu64 " of %" PRIu64 " does not exist", o->file[0],
                     n, k.documents);
    else
        for (uint64_t i = mg_corpus_document(&k, n); i < mg_corpus_document(&k, n + 1); i++)
            token_show(mg_corpus_token(&k, i), o->raw);
    mg_corpus_close(&k);
    return rc;
}

static int peek_row(const Options *o, uint64_t n)
{
    mg_data *d;
    int32_t *row = malloc((size_t)o->seq * 2 * sizeof *row);
    if (row == NULL)
        return mg_fail(MG_NO_FIT, "no memory for a row of %" PRId64 " tokens", o->seq);
    int rc = mg_data_open(&d, o->file[0], (uint64_t)o->seed, (int)o->seq, INT32_MAX, false);
    if (rc == MG_OK)
        rc = mg_data_row(d, n, row, row + o->seq, NULL);
    for (int64_t i = 0; i < o->seq && rc == MG_OK; i++)
        token_show(row[i], o->raw);
    mg_data_close(d);
    free(row);
    return rc;
}

static int verb_peek(const Options *o)
{
    char *end = NULL;
    unsigned long long n = o->files > 1 ? strtoull(o->file[1], &end, 10) : 0;
    if (o->files < 1 || o->files > 2 || (end != NULL && (*end != 0 || end == o->file[1])))
        return mg_fail(MG_USAGE,
                       "usage: megagen data peek PREFIX [N] [--seq S [--seed K]] [--raw]");
    int rc = o->seq > 0 ? peek_row(o, n) : peek_document(o, n);
    if (rc == MG_OK)
        putchar('\n');
    return rc;
}

/* ---- command line ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(const Options *o);
    const char *help;
} verbs[] = {
    {"prepare", verb_prepare,
     "FILE... -o PREFIX       text, .jsonl, .gz to PREFIX.bin and PREFIX.idx"},
    {"info", verb_info, "PREFIX... [--json]      tokens, documents, lengths"},
    {"peek", verb_peek,
     "PREFIX [N]              document N as text; with --seq S: row N of a training run"},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

typedef enum { FLAG_SET, FLAG_TEXT, FLAG_NUMBER, FLAG_HELP } FlagKind;

static const struct {
    const char *name;
    FlagKind kind;
    size_t at;     /* offset in Options */
    int64_t least; /* of a number */
    const char *help;
} flags[] = {
    {"-o", FLAG_TEXT, offsetof(Options, out), 0, "prefix of the files to write"},
    {"--json-key", FLAG_TEXT, offsetof(Options, key), 0,
     "member of a .jsonl line that holds the text (default text)"},
    {"--split-lines-empty", FLAG_SET, offsetof(Options, split_empty), 0,
     "an empty line ends a document"},
    {"--split-lines", FLAG_SET, offsetof(Options, split_line), 0, "every line is a document"},
    {"--no-end", FLAG_SET, offsetof(Options, no_end), 0, "no token 256 at the end of a document"},
    {"--seq", FLAG_NUMBER, offsetof(Options, seq), 1, "peek: tokens of a row"},
    {"--seed", FLAG_NUMBER, offsetof(Options, seed), 0, "peek: data.seed of the run (default 1)"},
    {"--raw", FLAG_SET, offsetof(Options, raw), 0, "peek: numbers instead of text"},
    {"--json", FLAG_SET, offsetof(Options, json), 0, "info: one object a line"},
    {"--help", FLAG_HELP, 0, 0, "this text"},
};
enum { FLAGS = sizeof flags / sizeof *flags };

static int help(void)
{
    printf("usage: megagen data VERB ...\n");
    for (int i = 0; i < VERBS; i++)
        printf("  %-8s %s\n", verbs[i].name, verbs[i].help);
    for (int i = 0; i < FLAGS; i++)
        printf("  %-20s %s\n", flags[i].name, flags[i].help);
    return MG_OK;
}

static int number_of(const char *flag, const char *s, int64_t least, int64_t *v)
{
    char *end;
    *v = strtoll(s, &end, 10);
    if (*end == 0 && end != s && *v >= least && *v <= 1 << 30)
        return MG_OK;
    return mg_fail(MG_USAGE, "%s: '%s' is not a whole number from %" PRId64 " on", flag, s, least);
}

/* Sets the field of flag k; `value` is the word behind it. */
static int flag_set(Options *o, int k, const char *value)
{
    void *field = (char *)o + flags[k].at;
    if (flags[k].kind == FLAG_SET)
        *(bool *)field = true;
    else if (value == NULL)
        return mg_fail(MG_USAGE, "%s needs a value: %s", flags[k].name, flags[k].help);
    else if (flags[k].kind == FLAG_TEXT)
        *(const char **)field = value;
    else
        return number_of(flags[k].name, value, flags[k].least, field);
    return MG_OK;
}

/* argv ends with NULL, so that the word behind the last flag is NULL. */
static int flag_read(Options *o, char **argv, int *i)
{
    const char *names[FLAGS], *arg = argv[*i];
    for (int k = 0; k < FLAGS; k++) {
        names[k] = flags[k].name;
        if (strcmp(arg, names[k]) != 0)
            continue;
        const char *value = flags[k].kind == FLAG_SET ? NULL : argv[++*i];
        return flag_set(o, k, value);
    }
    const char *near = mg_nearest(arg, names, FLAGS);
    return mg_fail(MG_USAGE, "unknown flag '%s'%s%s%s", arg, near != NULL ? "; did you mean '" : "",
                   near != NULL ? near : "", near != NULL ? "'?" : "");
}

static int data_run(int argc, char **argv, Options *o)
{
    const char *names[VERBS], *word = argc > 1 ? argv[1] : "";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return help();
    for (int i = 2; i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1] != 0)
            MG_TRY(flag_read(o, argv, &i));
        else
            o->file[o->files++] = argv[i];
    for (int k = 0; k < VERBS; k++) {
        names[k] = verbs[k].name;
        if (strcmp(word, names[k]) == 0)
            return verbs[k].run(o);
    }
    const char *near = mg_nearest(word, names, VERBS);
    return mg_fail(MG_USAGE, "data needs a verb: prepare, info or peek%s%s%s",
                   near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                   near != NULL ? "'?" : "");
}

int mg_data_main(int argc, char **argv)
{
    mg_std_open();
    Options o = {.key = "text", .seed = 1, .file = calloc((size_t)argc + 1, sizeof *o.file)};
    int rc = o.file != NULL ? data_run(argc, argv, &o) : mg_fail(MG_NO_FIT, "no memory");
    if (fflush(stdout) != 0 && rc == MG_OK)
        rc = mg_fail(MG_STORAGE, "standard output: %s", strerror(errno));
    if (rc != MG_OK)
        fprintf(stderr, "error: %s\n", mg_errmsg());
    free(o.file);
    return rc;
}
