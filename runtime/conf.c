/* conf.c: the command line of a trainer. See conf.h. */
#include "conf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words of the trainer itself: how to run, not what. */
static const mg_key own[] = {
    {"out", "str", "", "default", "run", "run folder; empty: the next runs/NAME-N", ""},
    {"resume", "str", "", "default", "run", "auto, never, or a run or checkpoint folder", ""},
    {"ckpt", "str", "", "default", "run", "checkpoint of eval and sample; empty: the newest run's",
     ""},
    {"prompt", "str", "", "default", "run", "text that sample continues", ""},
    {"seed", "int", "0", "default", "run", "another sample: added to train.seed", ""},
    {"by_position", "bool", "false", "default", "run",
     "eval: loss of the first 8 and the last 64 tokens of a row, too", ""},
    {"dump", "list", "", "default", "run", "what@step,...: grads, weights, marked; to safetensors",
     ""},
};
enum { OWN = sizeof own / sizeof *own };

static const struct {
    const char *name, *help;
} verbs[] = {
    {"train", "train (also without a verb)"},
    {"eval", "loss on data.valid of a checkpoint"},
    {"sample", "text from a checkpoint; prompt=\"...\""},
    {"overfit", "train on one batch; fails unless its loss is halved"},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static const struct {
    const char *name, *help;
    size_t at; /* offset of the bool in mg_conf */
} flags[] = {
    {"--dry-run", "everything but the steps: data, memory, checkpoint", offsetof(mg_conf, dry_run)},
    {"--print-config", "every key with its value and origin", offsetof(mg_conf, print_config)},
    {"--json", "with --print-config: as JSON", offsetof(mg_conf, json)},
    {"--quiet", "no line for each step", offsetof(mg_conf, quiet)},
    {"--version", "name, version and hash of the spec", offsetof(mg_conf, version)},
    {"--help", "this text", offsetof(mg_conf, help)},
};
enum { FLAGS = sizeof flags / sizeof *flags };

int mg_trainer_word(const char *word)
{
    for (int i = 0; i < FLAGS; i++)
        if (strcmp(word, flags[i].name) == 0)
            return 1;
    size_t n = strcspn(word, "=");
    for (int i = 0; i < OWN; i++)
        if (word[n] == '=' && strlen(own[i].name) == n && memcmp(word, own[i].name, n) == 0)
            return 1;
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    double factor;
} Unit;

static bool unit_of(const Unit *u, const char *s, double *factor)
{
    for (; u->name != NULL; u++)
        if (strcmp(u->name, s) == 0) {
            *factor = u->factor;
            return true;
        }
    return false;
}

static bool number_unit(const char *s, const Unit *units, double *v)
{
    char *end;
    double factor;
    if (strchr("+-.0123456789", *s) == NULL || *s == 0 || strpbrk(s, "xXnN") != NULL)
        return false;
    *v = strtod(s, &end);
    if (end == s || !unit_of(units, end, &factor))
        return false;
    *v *= factor;
    return isfinite(*v);
}

static const Unit count_units[] = {{"", 1},    {"k", 1e3},  {"K", 1e3}, {"M", 1e6},
                                   {"B", 1e9}, {"T", 1e12}, {NULL, 0}};

bool mg_parse_size(const char *s, double *bytes)
{
    static const Unit units[] = {{"", 1},         {"B", 1},        {"kB", 1e3},     {"KB", 1e3},
                                 {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"K", 1e3},
                                 {"M", 1e6},      {"G", 1e9},      {"T", 1e12},     {"KiB", 0x1p10},
                                 {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {NULL, 0}};
    return number_unit(s, units, bytes) && *bytes >= 0;
}

bool mg_parse_time(const char *s, double *seconds)
{
    static const Unit units[] = {{"ms", 1e-3}, {"s", 1},     {"m", 60},
                                 {"h", 3600},  {"d", 86400}, {NULL, 0}};
    static const Unit none[] = {{"", 1}, {NULL, 0}};
    if (number_unit(s, none, seconds))
        return *seconds >= 0;
    double sum = 0, v;
    for (char part[32]; *s != 0;) {
        size_t digits = strspn(s, "0123456789."), letters = strspn(s + digits, "dhms");
        if (digits == 0 || letters == 0 || digits + letters >= sizeof part)
            return false;
        memcpy(part, s, digits + letters);
        part[digits + letters] = 0;
        if (!number_unit(part, units, &v))
            return false;
        sum += v;
        s += digits + letters;
    }
    *seconds = sum;
    return true;
}

bool mg_parse_int(const char *s, int64_t *v)
{
    double d;
    if (!number_unit(s, count_units, &d) || d != floor(d) || fabs(d) > 0x1p53)
        return false;
    *v = (int64_t)d;
    return true;
}

bool mg_parse_num(const char *s, double *v)
{
    return number_unit(s, count_units, v);
}

bool mg_parse_bool(const char *s, bool *v)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(s, words[i]) == 0) {
            *v = i % 2 == 1;
            return true;
        }
    return false;
}

/* What a type expects, for the message; NULL = the value is good. */
static const char *type_refuses(const char *type, const char *s)
{
    int64_t i;
    double d;
    bool b;
    if (strcmp(type, "int") == 0)
        return mg_parse_int(s, &i) ? NULL : "a whole number";
    if (strcmp(type, "num") == 0)
        return mg_parse_num(s, &d) ? NULL : "a number";
    if (strcmp(type, "bool") == 0)
        return mg_parse_bool(s, &b) ? NULL : "true or false";
    if (strcmp(type, "size") == 0)
        return mg_parse_size(s, &d) ? NULL : "a size such as 512MiB or 80GiB";
    if (strcmp(type, "time") == 0)
        return mg_parse_time(s, &d) ? NULL : "a time such as 90s or 1h30m";
    return NULL;
}

/* A range is "0..1", "0..", "..1" or "0..<1": without the top. */
static int range_check(const mg_key *k, const char *s, const char *dots)
{
    double v = 0, min, max;
    char least[32];
    const char *top = dots + 2;
    bool below = *top == '<';
    if (strcmp(k->type, "size") == 0 ? !mg_parse_size(s, &v) : !mg_parse_num(s, &v))
        return MG_OK;
    if (number_unit(top + below, count_units, &max) && (below ? v >= max : v > max))
        return mg_fail(MG_USAGE, "%s = %s %s %s; allowed is %s", k->name, s,
                       below ? "must be below" : "is above", top + below, k->allows);
    snprintf(least, sizeof least, "%.*s", (int)(dots - k->allows), k->allows);
    if (number_unit(least, count_units, &min) && v < min)
        return mg_fail(MG_USAGE, "%s = %s is below %s; allowed is %s", k->name, s, least,
                       k->allows);
    return MG_OK;
}

static int choice_check(const mg_key *k, const char *s)
{
    enum { MOST = 16 };
    char words[256];
    const char *word[MOST];
    int n = 0;
    snprintf(words, sizeof words, "%s", k->allows);
    for (char *p = strtok(words, "|"); p != NULL && n < MOST; p = strtok(NULL, "|"), n++) {
        word[n] = p;
        if (strcmp(p, s) == 0)
            return MG_OK;
    }
    const char *near = mg_nearest(s, word, n);
    return mg_fail(MG_USAGE, "%s = '%s' is not one of %s%s%s%s", k->name, s, k->allows,
                   near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                   near != NULL ? "'?" : "");
}

/* The value is one that the schema allows. */
static int value_check(const mg_key *k, const char *s)
{
    const char *dots = k->allows != NULL ? strstr(k->allows, "..") : NULL;
    if (dots != NULL)
        return range_check(k, s, dots);
    return k->allows != NULL && *k->allows != 0 ? choice_check(k, s) : MG_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int key_count(const mg_conf *c)
{
    return c->model->nkey + OWN;
}

static const mg_key *key_at(const mg_conf *c, int i)
{
    return i < c->model->nkey ? &c->model->key[i] : &own[i - c->model->nkey];
}

static int key_find(const mg_conf *c, const char *name, size_t n)
{
    for (int i = 0; i < key_count(c); i++) {
        const char *k = key_at(c, i)->name;
        if (strncmp(k, name, n) == 0 && k[n] == 0)
            return i;
    }
    return -1;
}

static bool key_at_run(const mg_key *k)
{
    return strcmp(k->binds, "run") == 0;
}

static int fail_near(const mg_conf *c, const char *what, const char *word, const char *const *names,
                     int n)
{
    const char *near = mg_nearest(word, names, n);
    if (near != NULL)
        return mg_fail(MG_USAGE, "unknown %s '%s'; did you mean '%s'?", what, word, near);
    return mg_fail(MG_USAGE, "unknown %s '%s'; %s --help lists them", what, word, c->program);
}

static int fail_key(const mg_conf *c, const char *arg, size_t n)
{
    const char **names = malloc((size_t)key_count(c) * sizeof *names);
    char word[96];
    snprintf(word, sizeof word, "%.*s", (int)(n < 90 ? n : 90), arg);
    if (names == NULL)
        return mg_fail(MG_USAGE, "unknown key '%s'", word);
    for (int i = 0; i < key_count(c); i++)
        names[i] = key_at(c, i)->name;
    int rc = fail_near(c, "key", word, names, key_count(c));
    free(names);
    return rc;
}

/* The spec as far as the table knows it: some key came from "PATH.lua:LINE". */
static void spec_name(const mg_conf *c, mg_text *t)
{
    for (int i = 0; i < c->model->nkey; i++) {
        const char *o = c->model->key[i].origin, *at = strstr(o, ".lua:");
        if (at != NULL) {
            mg_text_add(t, o, (size_t)(at - o) + 4);
            return;
        }
    }
    mg_text_printf(t, "SPEC.lua");
}

static int fail_compiled(const mg_conf *c, const mg_key *k, const char *arg)
{
    mg_text spec = {0};
    spec_name(c, &spec);
    int rc = mg_fail(MG_USAGE, "%s is compiled in (%s, from %s). Rebuild with: megagen %s '%s'",
                     k->name, k->value, k->origin, spec.p, arg);
    mg_text_free(&spec);
    return rc;
}

static int read_key(mg_conf *c, const char *arg, const char *eq)
{
    int i = key_find(c, arg, (size_t)(eq - arg));
    if (i < 0)
        return fail_key(c, arg, (size_t)(eq - arg));
    const mg_key *k = key_at(c, i);
    const char *value = eq + 1, *expects = type_refuses(k->type, value);
    if (!key_at_run(k))
        return strcmp(value, k->value) == 0 ? MG_OK : fail_compiled(c, k, arg);
    if (expects != NULL)
        return mg_fail(MG_USAGE, "%s: '%s' is not %s", k->name, value, expects);
    MG_TRY(value_check(k, value));
    c->value[i] = value;
    c->origin[i] = "command line";
    return MG_OK;
}

static int read_flag(mg_conf *c, const char *arg)
{
    const char *names[FLAGS];
    if (strcmp(arg, "-h") == 0)
        arg = "--help";
    for (int i = 0; i < FLAGS; i++) {
        names[i] = flags[i].name;
        if (strcmp(arg, names[i]) != 0)
            continue;
        *(bool *)((char *)c + flags[i].at) = true;
        return MG_OK;
    }
    return fail_near(c, "flag", arg, names, FLAGS);
}

static int read_verb(mg_conf *c, const char *arg)
{
    const char *names[VERBS];
    for (int i = 0; i < VERBS; i++) {
        names[i] = verbs[i].name;
        if (strcmp(arg, names[i]) != 0)
            continue;
        if (c->verb != NULL)
            return mg_fail(MG_USAGE, "two verbs: '%s' and '%s'", c->verb, arg);
        c->verb = names[i];
        return MG_OK;
    }
    return fail_near(c, "verb", arg, names, VERBS);
}

int mg_conf_parse(mg_conf *c, const mg_model *m, int argc, char **argv)
{
    *c = (mg_conf){.model = m, .program = argc > 0 ? argv[0] : "trainer"};
    int n = key_count(c);
    c->value = malloc((size_t)n * sizeof *c->value);
    c->origin = malloc((size_t)n * sizeof *c->origin);
    if (c->value == NULL || c->origin == NULL)
        return mg_fail(MG_NO_FIT, "no memory for %d keys", n);
    for (int i = 0; i < n; i++) {
        const mg_key *k = key_at(c, i);
        c->value[i] = k->value;
        c->origin[i] = k->origin;
        if (*k->value != 0 && type_refuses(k->type, k->value) != NULL)
            return mg_fail(MG_INTERNAL, "table of keys: %s = '%s' is not %s", k->name, k->value,
                           type_refuses(k->type, k->value));
    }
    for (int i = 1; i < argc; i++) {
        const char *eq = strchr(argv[i], '=');
        if (argv[i][0] == '-')
            MG_TRY(read_flag(c, argv[i]));
        else if (eq != NULL)
            MG_TRY(read_key(c, argv[i], eq));
        else
            MG_TRY(read_verb(c, argv[i]));
    }
    if (c->verb == NULL)
        c->verb = "train";
    return MG_OK;
}

void mg_conf_free(mg_conf *c)
{
    free(c->value);
    free(c->origin);
    c->value = c->origin = NULL;
}

/* ---- getters --------------------------------------------------------------------------------- */

const char *mg_conf_str(const mg_conf *c, const char *name, const char *fallback)
{
    int i = key_find(c, name, strlen(name));
    return i < 0 ? fallback : c->value[i];
}

const char *mg_conf_origin(const mg_conf *c, const char *name)
{
    int i = key_find(c, name, strlen(name));
    return i < 0 ? "default" : c->origin[i];
}

int64_t mg_conf_int(const mg_conf *c, const char *name, int64_t fallback)
{
    int64_t v;
    return mg_parse_int(mg_conf_str(c, name, ""), &v) ? v : fallback;
}

double mg_conf_num(const mg_conf *c, const char *name, double fallback)
{
    double v;
    return mg_parse_num(mg_conf_str(c, name, ""), &v) ? v : fallback;
}

bool mg_conf_bool(const mg_conf *c, const char *name, bool fallback)
{
    bool v;
    return mg_parse_bool(mg_conf_str(c, name, ""), &v) ? v : fallback;
}

uint64_t mg_conf_size(const mg_conf *c, const char *name, uint64_t fallback)
{
    double v;
    return mg_parse_size(mg_conf_str(c, name, ""), &v) ? (uint64_t)v : fallback;
}

double mg_conf_time(const mg_conf *c, const char *name, double fallback)
{
    double v;
    return mg_parse_time(mg_conf_str(c, name, ""), &v) ? v : fallback;
}

/* ---- printed forms --------------------------------------------------------------------------- */

void mg_conf_json(const mg_conf *c, mg_text *t)
{
    mg_text_printf(t, "{");
    for (int i = 0; i < key_count(c); i++) {
        const mg_key *k = key_at(c, i);
        mg_text_printf(t, "%s\n  ", i > 0 ? "," : "");
        mg_json_str(t, k->name);
        mg_text_printf(t, ": {\"value\": ");
        mg_json_str(t, c->value[i]);
        mg_text_printf(t, ", \"origin\": ");
        mg_json_str(t, c->origin[i]);
        mg_text_printf(t, ", \"binds\": ");
        mg_json_str(t, k->binds);
        mg_text_printf(t, "}");
    }
    mg_text_printf(t, "\n}");
}

void mg_conf_print(const mg_conf *c)
{
    mg_text t = {0};
    if (c->json)
        mg_conf_json(c, &t);
    for (int i = 0; i < key_count(c) && !c->json; i++) {
        const mg_key *k = key_at(c, i);
        mg_text_printf(&t, "%-28s %-24s %s%s\n", k->name, *c->value[i] != 0 ? c->value[i] : "\"\"",
                       c->origin[i], key_at_run(k) ? "" : "  [compiled in]");
    }
    printf("%s%s", t.p, c->json ? "\n" : "");
    mg_text_free(&t);
}

void mg_conf_help(const mg_conf *c)
{
    const mg_model *m = c->model;
    printf("usage: %s [VERB] [key=value ...] [--flag ...]\n", c->program);
    printf("%s, spec %.8s, megagen %s, %s\n\nverbs\n", m->name, m->hash, m->version, m->target);
    for (int i = 0; i < VERBS; i++)
        printf("  %-26s %s\n", verbs[i].name, verbs[i].help);
    printf("\nflags\n");
    for (int i = 0; i < FLAGS; i++)
        printf("  %-26s %s\n", flags[i].name, flags[i].help);
    printf("\nkeys                         value now: meaning\n");
    for (int i = 0; i < key_count(c); i++) {
        const mg_key *k = key_at(c, i);
        if (key_at_run(k))
            printf("  %-26s %s%s%s\n", k->name, c->value[i], *c->value[i] != 0 ? ": " : "",
                   k->help);
    }
    printf("\ncompiled in (change the spec or override, and rebuild)\n");
    for (int i = 0; i < m->nkey; i++)
        if (!key_at_run(&m->key[i]))
            printf("  %-26s %s\n", m->key[i].name, m->key[i].value);
    printf("\nexit codes\n");
    for (const mg_exit_row *e = mg_exit_table; e->meaning != NULL; e++)
        printf("  %-4d %s%s%s\n", e->code, e->meaning, *e->restart != 0 ? "; restart helps: " : "",
               e->restart);
}
