/* tensor.c: see tensor.h. */
#include "tensor.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DATA_ALIGN = 64, PIECE = 4 << 20 };

mg_tensor mg_tensor_of(const mg_ctx *c, const mg_var *v)
{
    return (mg_tensor){.name = v->path,
                       .dtype = v->dtype,
                       .rank = v->rank,
                       .dim = v->dim,
                       .data = c->mem + v->off,
                       .bytes = v->elems * (uint64_t)mg_dtype_of(v->dtype)->bytes};
}

static void hex_of(XXH128_hash_t h, char hex[33])
{
    snprintf(hex, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
}

void mg_hash_hex(const void *p, size_t n, char hex[33])
{
    hex_of(XXH3_128bits(p, n), hex);
}

/* The header with its length in front. */
static void head_text(mg_text *h, mg_tensor *t, int n)
{
    uint64_t at = 0, length;
    mg_text_add(h, "\0\0\0\0\0\0\0\0", 8);
    mg_text_printf(h, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < n; i++) {
        mg_text_printf(h, ",");
        mg_json_str(h, t[i].name);
        mg_text_printf(h, ":{\"dtype\":\"%s\",\"shape\":[", mg_dtype_of(t[i].dtype)->name);
        for (int k = 0; k < t[i].rank; k++)
            mg_text_printf(h, "%s%" PRId64, k > 0 ? "," : "", t[i].dim[k]);
        mg_text_printf(h, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + t[i].bytes);
        at += t[i].bytes;
    }
    mg_text_printf(h, "}");
    while (h->n % DATA_ALIGN != 0)
        mg_text_add(h, " ", 1);
    length = h->n - 8;
    for (int i = 0; i < 8; i++)
        h->p[i] = (char)(length >> 8 * i & 0xff);
    at = h->n;
    for (int i = 0; i < n; i++) {
        t[i].offset = at;
        at += t[i].bytes;
    }
}

/* Hashes each piece just before it is written, while it is in the cache. */
static int data_write(int fd, mg_tensor *t, const char *path, XXH3_state_t *state)
{
    XXH3_128bits_reset(state);
    for (uint64_t at = 0; at < t->bytes; at += PIECE) {
        size_t k = t->bytes - at < PIECE ? (size_t)(t->bytes - at) : PIECE;
        XXH3_128bits_update(state, (const char *)t->data + at, k);
        MG_TRY(mg_fd_write(fd, (const char *)t->data + at, k, path));
    }
    hex_of(XXH3_128bits_digest(state), t->hash);
    return MG_OK;
}

int mg_tensor_write(const char *path, mg_tensor *t, int n, uint64_t *bytes, uint64_t *head,
                    char head_hash[33])
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return mg_fail(MG_STORAGE, "%s: %s", path, strerror(errno));
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL)
        mg_die(MG_NO_FIT, "no memory for a hash");
    mg_text h = {0};
    head_text(&h, t, n);
    *head = *bytes = h.n;
    mg_hash_hex(h.p, h.n, head_hash);
    int rc = mg_fd_write(fd, h.p, h.n, path);
    for (int i = 0; i < n && rc == MG_OK; i++) {
        rc = data_write(fd, &t[i], path, state);
        *bytes += t[i].bytes;
    }
    if (rc == MG_OK && fsync(fd) != 0)
        rc = mg_fail(MG_STORAGE, "%s: fsync: %s", path, strerror(errno));
    if (close(fd) != 0 && rc == MG_OK)
        rc = mg_fail(MG_STORAGE, "%s: close: %s", path, strerror(errno));
    XXH3_freeState(state);
    mg_text_free(&h);
    return rc;
}
