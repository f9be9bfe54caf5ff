/* tensor.h: variables to safetensors files and back.
 *
 * A file is: u64 length of the header, the header (JSON, padded with blanks so that data begin at a
 * multiple of 64), the data back to back. Only the logical elements of a variable are in a file.
 */
#ifndef MG_TENSOR_H
#define MG_TENSOR_H

#include "base.h"

typedef struct {
    const char *name;
    unsigned dtype;
    int rank;
    const int64_t *dim;
    void *data;      /* where the elements lie in memory */
    uint64_t bytes;  /* of the logical elements */
    uint64_t offset; /* in the file, from its start; set by mg_tensor_write */
    char hash[33];   /* XXH3-128 of the data, hex; set by mg_tensor_write */
} mg_tensor;

/* The tensor of a variable, under its path. */
mg_tensor mg_tensor_of(const mg_ctx *c, const mg_var *v);

/* Writes and fsyncs a new file. *head and head_hash: length and hash of what stands before the
 * data. MG_STORAGE on failure; the partial file is then still there. */
int mg_tensor_write(const char *path, mg_tensor *t, int n, uint64_t *bytes, uint64_t *head,
                    char head_hash[33]);

/* XXH3-128 as 32 hex digits. */
void mg_hash_hex(const void *p, size_t n, char hex[33]);

#endif
