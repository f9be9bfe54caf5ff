/* data.h: tokens from Megatron .bin/.idx files, mapped into memory.
 *
 * Row i of a run is a pure function of (files, seed, i): nothing is kept between calls, so a
 * resumed run reads on where the straight run would, and any rank can read any row.
 *
 * An epoch of a file of T tokens is its documents laid end to end and cut into n = (T - seq) / seq
 * windows of seq + 1 tokens (neighbours share one token), beginning at an offset that the epoch
 * draws. The windows of an epoch come in the order of a counter-based permutation of 0 .. n - 1:
 * each once. A blend deals rows to files by a pattern of 65,536 rows in which each has its share.
 */
#ifndef MG_DATA_H
#define MG_DATA_H

#include "base.h"

enum { MG_IDX_HEAD = 34, MG_IDX_VERSION = 1 };
#define MG_IDX_MAGIC "MMIDIDX\0\0"

/* Types of .bin by their code; bytes 0 = the code is unknown. */
typedef struct {
    const char *name;
    int bytes;
    int64_t (*get)(const void *p); /* reads one token, p unaligned; NULL: not a whole number */
} mg_token_row;
enum { MG_TOKEN_ROWS = 9 };
extern const mg_token_row mg_token_table[MG_TOKEN_ROWS];

/* One pair of files. */
typedef struct {
    char *prefix;
    const unsigned char *bin, *idx;
    uint64_t bin_bytes, idx_bytes;
    uint64_t sequences, documents, tokens;
    const mg_token_row *type;
} mg_corpus;

/* Maps and checks PREFIX.bin and PREFIX.idx. MG_INPUT names file, offset and rule. Threads may read
 * it. */
int mg_corpus_open(mg_corpus *k, const char *prefix);
void mg_corpus_close(mg_corpus *k);

/* First token of document i; of i = documents: the number of tokens. */
uint64_t mg_corpus_document(const mg_corpus *k, uint64_t i);

/* Token i, whatever its value. */
int64_t mg_corpus_token(const mg_corpus *k, uint64_t i);

typedef struct mg_data mg_data;

/* Opens a list "prefix,prefix" or "prefix:weight,prefix:weight". `eod_mask`: no loss where the
 * input is the last token of a document. MG_USAGE for a bad list, MG_INPUT for bad files. */
int mg_data_open(mg_data **d, const char *list, uint64_t seed, int seq, int vocab, bool eod_mask);
void mg_data_close(mg_data *d); /* NULL is allowed */

/* Row i of the shuffled blend, i >= 0: tokens and targets [seq]; a target of -1 has no loss, what
 * lies behind the end of a short file is token 0, target -1. lo [seq], or NULL: the place in the
 * row where the token's document begins, 0 if before the row. */
int mg_data_row(const mg_data *d, uint64_t i, int32_t *tokens, int32_t *targets, int32_t *lo);

/* Window i of all files in order, without overlap: evaluation. i < mg_data_windows. */
int mg_data_window(const mg_data *d, uint64_t i, int32_t *tokens, int32_t *targets, int32_t *lo);

uint64_t mg_data_windows(const mg_data *d);
uint64_t mg_data_tokens(const mg_data *d);
uint64_t mg_data_documents(const mg_data *d);

/* Row of window w in epoch e of a file with n windows: a permutation of 0 .. n - 1 for each (key,
 * e). */
uint64_t mg_shuffle(uint64_t key, uint64_t e, uint64_t n, uint64_t w);

#endif
