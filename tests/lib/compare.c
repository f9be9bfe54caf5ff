/* compare.c: do two safetensors files hold the same numbers, as far as arithmetic allows?
 *
 *   compare GOT WANT REL [PREFIX]     every tensor of WANT (whose name starts with PREFIX) against
 * the one in GOT
 *
 * A tensor passes if its largest absolute difference is at most
 *
 *   REL * max(largest |WANT| of the tensor, 1e-3 * root mean square of all of WANT's tensors)
 *
 * so that a tensor whose true value is zero (the gradient of a key's bias) is judged by the size of
 * its peers, not by its own noise. Prints the worst tensor; names the missing ones; exit code 1 if
 * one fails.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *bytes;    /* the whole file                                                  */
    size_t n, data; /* its size; where tensors start                                   */
    json_t *head;
} File;

typedef struct {
    const char *dtype, *at;
    size_t n; /* elements                                                        */
    char shape[64];
} Tensor;

static void die(const char *path, const char *why)
{
    fprintf(stderr, "compare: %s: %s\n", path, why);
    exit(5);
}

static File file_open(const char *path)
{
    File f = {0};
    FILE *in = fopen(path, "rb");
    if (!in || fseek(in, 0, SEEK_END))
        die(path, strerror(errno));
    f.n = (size_t)ftell(in);
    rewind(in);
    f.bytes = malloc(f.n + 1);
    uint64_t head = 0;
    if (!f.bytes || fread(f.bytes, 1, f.n, in) != f.n || f.n < 8)
        die(path, "cannot be read");
    fclose(in);
    memcpy(&head, f.bytes, 8);
    if (head > f.n - 8)
        die(path, "the header is longer than the file");
    json_error_t err;
    f.data = 8 + head;
    f.head = json_loadb(f.bytes + 8, head, 0, &err);
    if (!json_is_object(f.head))
        die(path, err.text);
    return f;
}

static size_t dtype_bytes(const char *t)
{
    return !strcmp(t, "F64") || !strcmp(t, "I64")   ? 8
           : !strcmp(t, "F32") || !strcmp(t, "I32") ? 4
           : !strcmp(t, "BF16")                     ? 2
                                                    : 0;
}

static Tensor tensor_of(const File *f, const char *path, json_t *entry)
{
    Tensor t = {.dtype = json_string_value(json_object_get(entry, "dtype")), .n = 1};
    json_t *shape = json_object_get(entry, "shape"),
           *range = json_object_get(entry, "data_offsets"), *dim;
    size_t i, end;
    if (!t.dtype || !dtype_bytes(t.dtype) || !json_is_array(shape) || json_array_size(range) != 2)
        die(path, "an entry that is no tensor of a known type");
    json_array_foreach(shape, i, dim)
    {
        t.n *= (size_t)json_integer_value(dim);
        snprintf(t.shape + strlen(t.shape), sizeof t.shape - strlen(t.shape), "%s%lld",
                 i ? " " : "", (long long)json_integer_value(dim));
    }
    t.at = f->bytes + f->data + json_integer_value(json_array_get(range, 0));
    end = (size_t)json_integer_value(json_array_get(range, 1));
    if (f->data + end > f->n || t.at + t.n * dtype_bytes(t.dtype) != f->bytes + f->data + end)
        die(path, "a tensor's range does not fit its shape");
    return t;
}

static double element(const Tensor *t, size_t i)
{
    if (!strcmp(t->dtype, "F64")) {
        double v;
        memcpy(&v, t->at + 8 * i, 8);
        return v;
    }
    if (!strcmp(t->dtype, "I64")) {
        int64_t v;
        memcpy(&v, t->at + 8 * i, 8);
        return (double)v;
    }
    if (!strcmp(t->dtype, "I32")) {
        int32_t v;
        memcpy(&v, t->at + 4 * i, 4);
        return v;
    }
    float v;
    uint32_t bits = 0;
    if (!strcmp(t->dtype, "F32")) {
        memcpy(&bits, t->at + 4 * i, 4);
    } else {
        uint16_t half;
        memcpy(&half, t->at + 2 * i, 2);
        bits = (uint32_t)half << 16;
    }
    memcpy(&v, &bits, 4);
    return v;
}

static int chosen(const char *name, const char *prefix)
{
    return strcmp(name, "__metadata__") && !strncmp(name, prefix, strlen(prefix));
}

static double rms_of_all(const File *f, const char *path, const char *prefix)
{
    double sum = 0, n = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(f->head, name, entry)
    {
        if (!chosen(name, prefix))
            continue;
        Tensor t = tensor_of(f, path, entry);
        for (size_t i = 0; i < t.n; i++)
            sum += element(&t, i) * element(&t, i);
        n += (double)t.n;
    }
    return n > 0 ? sqrt(sum / n) : 0;
}

/* -> the difference as a share of what is allowed at REL = 1; NaN anywhere is infinitely wrong. */
static double difference(const Tensor *got, const Tensor *want, double floor)
{
    double diff = 0, most = floor;
    for (size_t i = 0; i < want->n; i++) {
        double a = element(got, i), b = element(want, i), d = fabs(a - b);
        if (!(d <= diff))
            diff = isnan(d) ? INFINITY : d;
        most = fmax(most, fabs(b));
    }
    return diff == 0 ? 0 : diff / most;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: compare GOT WANT REL [PREFIX]\n");
        return 2;
    }
    File got = file_open(argv[1]), want = file_open(argv[2]);
    const char *prefix = argc > 4 ? argv[4] : "", *name, *worst_name = "none";
    double rel = strtod(argv[3], NULL), rms = rms_of_all(&want, argv[2], prefix), worst = 0;
    int n = 0, bad = 0;
    json_t *entry;
    json_object_foreach(want.head, name, entry)
    {
        if (!chosen(name, prefix))
            continue;
        n++;
        json_t *other = json_object_get(got.head, name);
        if (!other) {
            printf("%s: not in %s\n", name, argv[1]);
            bad++;
            continue;
        }
        Tensor a = tensor_of(&got, argv[1], other), b = tensor_of(&want, argv[2], entry);
        if (strcmp(a.shape, b.shape)) {
            printf("%s: shape [%s], expected [%s]\n", name, a.shape, b.shape);
            bad++;
            continue;
        }
        double d = difference(&a, &b, 1e-3 * rms);
        if (d > rel) {
            printf("%s: differs by %.3g of its size, allowed %.3g\n", name, d, rel);
            bad++;
        }
        if (d >= worst) {
            worst = d;
            worst_name = name;
        }
    }
    printf("%d tensors, %d wrong; the worst is %s: %.3g (allowed %.3g)\n", n, bad, worst_name,
           worst, rel);
    return bad > 0 || n == 0;
}
