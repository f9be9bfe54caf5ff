/* conf.h: the command line of a trainer: VERB, key=value, --flag.
 *
 * Keys and their types come from mg_model.key; a few words (out, resume, ckpt, prompt, dump) belong
 * to the trainer itself. Every value is checked against its type when it is read, so that the
 * getters cannot fail. Later values win.
 */
#ifndef MG_CONF_H
#define MG_CONF_H

#include "base.h"

typedef struct {
    const mg_model *model;
    const char *program; /* argv[0] */
    const char *verb;    /* one of mg_conf_verbs; "train" when none was given */
    const char **value;  /* of model key i, then of the trainer's own words */
    const char **origin; /* same order */
    bool dry_run, print_config, help, version, json, quiet;
} mg_conf;

/* Reads the command line. MG_USAGE with a message for anything unknown, of the wrong type or bound
 * at compile time. The strings of argv and of the model must stay; mg_conf_free frees the rest. */
int mg_conf_parse(mg_conf *c, const mg_model *m, int argc, char **argv);
void mg_conf_free(mg_conf *c);

/* The value of a key; `fallback` when neither model nor command line has it. */
const char *mg_conf_str(const mg_conf *c, const char *name, const char *fallback);
int64_t mg_conf_int(const mg_conf *c, const char *name, int64_t fallback);
double mg_conf_num(const mg_conf *c, const char *name, double fallback);
bool mg_conf_bool(const mg_conf *c, const char *name, bool fallback);
uint64_t mg_conf_size(const mg_conf *c, const char *name, uint64_t fallback); /* bytes */
double mg_conf_time(const mg_conf *c, const char *name, double fallback);     /* seconds */

/* Where the value came from; "default" when nowhere. */
const char *mg_conf_origin(const mg_conf *c, const char *name);

void mg_conf_print(const mg_conf *c);            /* --print-config: key, value, origin; stdout */
void mg_conf_help(const mg_conf *c);             /* --help; stdout */
void mg_conf_json(const mg_conf *c, mg_text *t); /* {"key": {"value": ..., "origin": ...}, ...} */

/* Numbers with units, whole string or false: 80GiB 1.5GB 4096; 1h30m 90s 10; 1000 4k 1e6 1.5B. */
bool mg_parse_size(const char *s, double *bytes);
bool mg_parse_time(const char *s, double *seconds);
bool mg_parse_int(const char *s, int64_t *v);
bool mg_parse_num(const char *s, double *v);
bool mg_parse_bool(const char *s, bool *v);

#endif
