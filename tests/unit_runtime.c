/* unit_runtime.c: the parts of runtime/ one by one, on the hand-written model of tests/mini. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pool.h"
#include "run.h"
#include "tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define main mini_main
int mini_main(int argc, char **argv);
#include "mini/model.c"
#undef main

/* ---- text and values ------------------------------------------------------------------------- */

static void test_values(void **state)
{
    (void)state;
    double d;
    int64_t i;
    bool b;
    assert_true(mg_parse_size("80GiB", &d) && d == 80 * 0x1p30);
    assert_true(mg_parse_size("1.5GB", &d) && d == 1.5e9);
    assert_true(mg_parse_time("1h30m", &d) && d == 5400);
    assert_true(mg_parse_time("90s", &d) && d == 90);
    assert_true(mg_parse_time("7", &d) && d == 7);
    assert_true(mg_parse_int("1e6", &i) && i == 1000000);
    assert_true(mg_parse_int("1.5B", &i) && i == 1500000000);
    assert_true(mg_parse_num("2e-4", &d) && d == 2e-4);
    assert_true(mg_parse_bool("yes", &b) && b);
    static const char *const bad[] = {"", "x", "1.5", "0x10", "nan", "inf", "1 ", "1GiB"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_false(mg_parse_int(bad[k], &i));
    assert_false(mg_parse_size("-1", &d));
    assert_false(mg_parse_time("1h30", &d));
}

static void test_text(void **state)
{
    (void)state;
    mg_text t = {0};
    mg_json_str(&t, "a\"\\\n\x01\xc3\xa9\xff\xed\xa0\x80");
    assert_string_equal(
        t.p, "\"a\\\"\\\\\\u000a\\u0001\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    t.n = 0;
    mg_json_num(&t, 0.1);
    mg_text_printf(&t, " ");
    mg_json_num(&t, 1.0 / 3);
    mg_text_printf(&t, " ");
    mg_json_num(&t, NAN);
    assert_string_equal(t.p, "0.1 0.3333333333333333 null");
    mg_text_free(&t);
    static const char *const names[] = {"train.lr", "train.steps", "data.train"};
    assert_string_equal(mg_nearest("train.step", names, 3), "train.steps");
    assert_string_equal(mg_nearest("lr", names, 3), "train.lr");
    assert_null(mg_nearest("zzzzzz", names, 3));
}

static void test_bf16(void **state)
{
    (void)state;
    uint16_t h[1];
    static const double in[] = {1, 1.00390625, 1.01171875, -2.5, 3.4e38};
    static const uint16_t out[] = {0x3f80, 0x3f80, 0x3f82, 0xc020, 0x7f80}; /* ties go to even */
    for (size_t i = 0; i < 5; i++) {
        mg_elem_set(MG_BF16, h, 0, in[i]);
        assert_int_equal(h[0], out[i]);
    }
    mg_elem_set(MG_BF16, h, 0, NAN);
    assert_true(isnan(mg_elem_get(MG_BF16, h, 0)));
}

/* ---- schedules: numbers of the formulas in Megatron-LM --------------------------------------- */

static void schedule_is(const char *style, double n, double want)
{
    mg_conf c;
    char arg[64];
    snprintf(arg, sizeof arg, "train.schedule=%s", style);
    char *argv[] = {"t", arg, "train.lr=1", "train.warmup=10", "train.steps=110", NULL};
    mg_sched s;
    assert_int_equal(mg_conf_parse(&c, &mini_model, 5, argv), MG_OK);
    assert_int_equal(mg_sched_read(&s, &c, 1), MG_OK);
    double lr = mg_sched_lr(&s, n);
    if (fabs(lr - want) > 1e-12)
        fail_msg("%s at %g: %.15g, expected %.15g", style, n, lr, want);
    mg_conf_free(&c);
}

static void test_schedules(void **state)
{
    (void)state;
    schedule_is("cosine", 5, 0.5);
    schedule_is("cosine", 10, 1);
    schedule_is("cosine", 60, 0.55);
    schedule_is("cosine", 35, 0.1 + 0.9 * 0.5 * (1 + cos(M_PI * 0.25)));
    schedule_is("cosine", 110, 0.1);
    schedule_is("cosine", 500, 0.1);
    schedule_is("linear", 60, 0.55);
    schedule_is("constant", 500, 1);
    schedule_is("inverse_sqrt", 40, 0.5);
    schedule_is("inverse_sqrt", 1e6, 0.1);
    schedule_is("wsd", 88, 1);
    schedule_is("wsd", 99, 0.1 + 0.9 * (2 * pow(0.5, 0.5) - 1));
    schedule_is("wsd", 110, 0.1);
}

/* ---- data ------------------------------------------------------------------------------------ */

static char folder[64];

static char *in_folder(const char *name)
{
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void file_put(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

/* `documents` of `each` tokens; token i is i % 250. Returns the prefix. */
static char *corpus_put(const char *name, int documents, int each)
{
    mg_text bin = {0}, idx = {0};
    uint64_t version = 1, n = (uint64_t)documents, marks = n + 1;
    char *prefix = in_folder(name), path[160];
    for (int i = 0; i < documents * each; i++)
        mg_text_printf(&bin, "%c%c", i % 250, 0);
    mg_text_add(&idx, MG_IDX_MAGIC, 9);
    mg_text_add(&idx, &version, 8);
    mg_text_printf(&idx, "%c", 8);
    mg_text_add(&idx, &n, 8);
    mg_text_add(&idx, &marks, 8);
    for (int i = 0; i < documents; i++)
        mg_text_add(&idx, &each, 4);
    for (int64_t i = 0, at = 0; i < documents; i++, at += 2 * each)
        mg_text_add(&idx, &at, 8);
    for (int64_t i = 0; i <= documents; i++)
        mg_text_add(&idx, &i, 8);
    snprintf(path, sizeof path, "%s.bin", prefix);
    file_put(path, bin.p != NULL ? bin.p : "", bin.n);
    snprintf(path, sizeof path, "%s.idx", prefix);
    file_put(path, idx.p, idx.n);
    mg_text_free(&bin);
    mg_text_free(&idx);
    return prefix;
}

static void test_shuffle(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 5, 17, 64, 1000};
    char seen[1000];
    int moved = 0;
    for (size_t s = 0; s < 7; s++)
        for (uint64_t e = 0; e < 3; e++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t w = 0; w < sizes[s]; w++) {
                uint64_t to = mg_shuffle(7, e, sizes[s], w);
                assert_true(to < sizes[s] && !seen[to]);
                seen[to] = 1;
                moved += sizes[s] == 1000 && to != mg_shuffle(7, e + 1, sizes[s], w);
            }
        }
    assert_true(moved > 2900); /* epochs differ */
}

/* Each window of an epoch comes once; neighbours in the file are a row apart; targets are the next
 * token. */
static void test_rows(void **state)
{
    (void)state;
    enum { SEQ = 8, ROWS = (2000 - SEQ) / SEQ };
    mg_data *d;
    int32_t tokens[SEQ], targets[SEQ], starts[ROWS];
    assert_int_equal(mg_data_open(&d, corpus_put("rows", 20, 100), 3, SEQ, 250, false), MG_OK);
    assert_int_equal(mg_data_tokens(d), 2000);
    for (uint64_t e = 0; e < 2; e++) {
        int count[250] = {0};
        for (uint64_t i = 0; i < ROWS; i++) {
            assert_int_equal(mg_data_row(d, e * ROWS + i, tokens, targets, NULL), MG_OK);
            starts[i] = tokens[0];
            for (int k = 0; k < SEQ; k++) {
                assert_int_equal(tokens[k], (starts[i] + k) % 250);
                assert_int_equal(targets[k], (starts[i] + k + 1) % 250);
                count[tokens[k]]++;
            }
        }
        for (int v = 0; v < 250; v++) /* 2000 / 250 = 8 of each, but for the ends of the file */
            assert_in_range(count[v], 7, 8);
        assert_int_not_equal((starts[1] - starts[0] + 250) % 250, SEQ);
    }
    mg_data_close(d);
}

static void test_masks(void **state)
{
    (void)state;
    int32_t tokens[16], targets[16], lo[16];
    mg_data *d;
    assert_int_equal(mg_data_open(&d, corpus_put("masks", 4, 5), 1, 16, 250, true), MG_OK);
    assert_int_equal(mg_data_window(d, 0, tokens, targets, lo), MG_OK);
    for (int i = 0; i < 16; i++) { /* documents end at tokens 4, 9, 14 */
        assert_int_equal(targets[i], i % 5 == 4 ? -1 : i + 1);
        assert_int_equal(lo[i], i / 5 * 5);
    }
    assert_int_equal(mg_data_windows(d), 2);
    assert_int_equal(mg_data_window(d, 1, tokens, targets, lo), MG_OK);
    for (int i = 0; i < 16; i++) {  /* 19 targets in all: 16 and 3 */
        assert_int_equal(lo[i], 0); /* the last document began before the row */
        assert_int_equal(tokens[i], i < 4 ? 16 + i : 0);
        assert_int_equal(targets[i], i < 3 ? 17 + i : -1);
    }
    mg_data_close(d);
    assert_int_equal(mg_data_open(&d, corpus_put("low", 1, 100), 1, 16, 90, false), MG_OK);
    int rc = MG_OK;
    for (uint64_t i = 0; i < 5 && rc == MG_OK; i++)
        rc = mg_data_row(d, i, tokens, targets, NULL);
    assert_int_equal(rc, MG_INPUT);
    assert_non_null(
        strstr(mg_errmsg(), "low.bin: offset 180: token 90 is not below the vocabulary of 90"));
    mg_data_close(d);
}

static void test_blend(void **state)
{
    (void)state;
    char list[400];
    int32_t tokens[4], targets[4];
    mg_data *d;
    corpus_put("a", 1, 50);
    corpus_put("b", 1, 200);
    snprintf(list, sizeof list, "%s:3,%s:1", in_folder("a"), in_folder("b"));
    assert_int_equal(mg_data_open(&d, list, 1, 4, 250, false), MG_OK);
    int from_b = 0, seen[200] = {0};
    for (uint64_t i = 0; i < 400; i++) {
        assert_int_equal(mg_data_row(d, i, tokens, targets, NULL), MG_OK);
        from_b += tokens[0] >= 50;
        seen[tokens[0]]++;
    }
    assert_in_range(from_b, 60, 100); /* a quarter, of which a quarter lies below 50 */
    mg_data_close(d);
    snprintf(list, sizeof list, "%s:3,%s", in_folder("a"), in_folder("b"));
    assert_int_equal(mg_data_open(&d, list, 1, 4, 250, false), MG_USAGE);
    snprintf(list, sizeof list, "%s,", in_folder("a"));
    assert_int_equal(mg_data_open(&d, list, 1, 4, 250, false), MG_USAGE);
    assert_int_equal(mg_data_open(&d, corpus_put("none", 0, 1), 1, 4, 250, false), MG_INPUT);
    assert_int_equal(mg_data_open(&d, corpus_put("empty", 3, 0), 1, 4, 250, false), MG_INPUT);
    assert_int_equal(mg_data_open(&d, corpus_put("two", 1, 2), 1, 4, 250, false), MG_OK);
    assert_int_equal(mg_data_row(d, 12345, tokens, targets, NULL), MG_OK);
    assert_true(targets[0] == 1 && targets[1] == -1);
    mg_data_close(d);
}

/* Every byte of an index with one bit turned, and every length: refused or harmless, never a crash.
 */
static void test_bad_index(void **state)
{
    (void)state;
    char *prefix = corpus_put("bad", 6, 10), path[160], *text;
    size_t n;
    int refused = 0;
    mg_corpus k;
    snprintf(path, sizeof path, "%s.idx", prefix);
    assert_int_equal(mg_file_read(path, 1 << 20, &text, &n), MG_OK);
    for (size_t i = 0; i < n * 8; i++) {
        text[i / 8] ^= (char)(1 << i % 8);
        file_put(path, text, n);
        text[i / 8] ^= (char)(1 << i % 8);
        int rc = mg_corpus_open(&k, prefix);
        refused += rc == MG_INPUT;
        if (rc == MG_OK)
            for (uint64_t j = 0; j <= k.documents; j++)
                assert_true(mg_corpus_document(&k, j) <= k.tokens);
        mg_corpus_close(&k);
    }
    assert_true(refused > (int)n * 7); /* a mark may move and still be in order */
    for (size_t i = 0; i < n; i++) {
        file_put(path, text, i);
        assert_int_equal(mg_corpus_open(&k, prefix), MG_INPUT);
    }
    free(text);
}

/* ---- first values ---------------------------------------------------------------------------- */

static mg_var init_var(mg_dtype type, uint64_t off, uint8_t init)
{
    return (mg_var){.path = "layers.0.w",
                    .kind = MG_WEIGHT,
                    .dtype = (uint8_t)type,
                    .init = init,
                    .rank = 2,
                    .of = -1,
                    .dim = {500, 100},
                    .off = off,
                    .elems = 50000,
                    .elems_mem = 51200,
                    .a = 0.5,
                    .b = 2};
}

static void test_init(void **state)
{
    (void)state;
    mg_var var[] = {init_var(MG_F32, 0, MG_INIT_NORMAL),
                    init_var(MG_F64, 51200 * 4, MG_INIT_NORMAL),
                    init_var(MG_F32, 51200 * 12, MG_INIT_UNIFORM)};
    mg_model m = {.var = var, .nvar = 3};
    mg_ctx c = {.model = &m, .mem = malloc(51200 * 16), .pool = mg_pool_new(3)},
           one = {.model = &m, .mem = malloc(51200 * 16)};
    memset(c.mem, 0xff, 51200 * 16);
    memset(one.mem, 0xff, 51200 * 16);
    mg_init(&c, 42);
    mg_init(&one, 42);
    assert_memory_equal(c.mem, one.mem, 51200 * 16); /* no matter how many workers */
    double sum = 0, square = 0;
    for (uint64_t i = 0; i < 50000; i++) {
        double x = mg_elem_get(MG_F64, c.mem + var[1].off, i),
               u = mg_elem_get(MG_F32, c.mem + var[2].off, i);
        assert_true((float)x == ((float *)(void *)c.mem)[i]);
        assert_true(u >= 0.5 && u < 2);
        sum += x;
        square += (x - 0.5) * (x - 0.5);
    }
    assert_true(fabs(sum / 50000 - 0.5) < 0.03 && fabs(sqrt(square / 50000) - 2) < 0.03);
    for (uint64_t i = 50000; i < 51200; i++)
        assert_true(mg_elem_get(MG_F64, c.mem + var[1].off, i) == 0);
    mg_init(&one, 43);
    assert_memory_not_equal(c.mem, one.mem, 64);
    mg_pool_free(c.pool);
    free(c.mem);
    free(one.mem);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static void run_make(mg_run *r)
{
    static char *argv[] = {"t", "--quiet", "save.shard=40kB", NULL};
    *r = (mg_run){.m = &mini_model, .saved = -1};
    assert_int_equal(mg_conf_parse(&r->conf, &mini_model, 3, argv), MG_OK);
    mg_log_start(&r->log, true);
    assert_int_equal(mg_arena_map(mini_model.arena_bytes, &r->c.mem), MG_OK);
    r->c.model = &mini_model;
}

static void run_free(mg_run *r)
{
    mg_arena_unmap(r->c.mem, mini_model.arena_bytes);
    mg_log_close(&r->log);
    mg_conf_free(&r->conf);
}

/* Loads and says whether it worked; a good load must bring exactly the state that was saved. */
static int load_is(mg_run *r, const mg_run *saved, const char *dir)
{
    char *found = NULL;
    memset(r->c.mem, 0, mini_model.arena_bytes);
    int rc = mg_ckpt_load(r, dir, true, &found);
    free(found);
    if (rc == MG_OK) {
        assert_memory_equal(r->c.mem, saved->c.mem, mini_model.arena_bytes);
        assert_true(r->step == saved->step && r->samples == saved->samples);
    }
    return rc;
}

/* Turns every `stride`-th bit of a file, and cuts it at every `stride`-th length: never loads. */
static void file_damage(mg_run *r, const mg_run *saved, const char *dir, const char *name,
                        size_t stride)
{
    char *path = mg_path(dir, name), *text;
    size_t n;
    assert_int_equal(mg_file_read(path, 1 << 30, &text, &n), MG_OK);
    for (size_t i = 0; i < n * 8; i += stride) {
        text[i / 8] ^= (char)(1 << i % 8);
        file_put(path, text, n);
        text[i / 8] ^= (char)(1 << i % 8);
        if (load_is(r, saved, dir) != MG_INPUT)
            fail_msg("%s: bit %zu turned and not seen", name, i);
    }
    for (size_t i = 0; i < n; i += stride) {
        file_put(path, text, i);
        assert_int_equal(load_is(r, saved, dir), MG_INPUT);
    }
    file_put(path, text, n);
    free(text);
    free(path);
}

static void test_checkpoint(void **state)
{
    (void)state;
    mg_run a, b;
    run_make(&a);
    run_make(&b);
    a.log.dir = strdup(in_folder("run"));
    assert_int_equal(mg_mkdirs(a.log.dir), MG_OK);
    mg_init(&a.c, 5);
    a.step = 12;
    a.samples = 96;
    assert_int_equal(mg_ckpt_save(&a), MG_OK);
    char *dir = strdup(in_folder("run/ckpt/step-0000012"));
    assert_int_equal(load_is(&b, &a, dir), MG_OK);
    assert_int_equal(load_is(&b, &a, a.log.dir), MG_OK);
    assert_int_equal(access(in_folder("run/ckpt/step-0000012/model-00003.safetensors"), F_OK), 0);
    file_damage(&b, &a, dir, "manifest.json", 37);
    file_damage(&b, &a, dir, "model-00001.safetensors", 5003);
    assert_int_equal(load_is(&b, &a, dir), MG_OK);
    /* A damaged pointer, or a newest checkpoint that is damaged: the run folder still loads. */
    file_put(in_folder("run/ckpt/latest"), "step-00000xx\n", 13);
    assert_int_equal(load_is(&b, &a, a.log.dir), MG_OK);
    mkdir(in_folder("run/ckpt/step-0000013"), 0777);
    file_put(in_folder("run/ckpt/step-0000013/manifest.json"), "{}", 2);
    file_put(in_folder("run/ckpt/latest"), "step-0000013\n", 13);
    assert_int_equal(load_is(&b, &a, a.log.dir), MG_OK);
    free(dir);
    run_free(&a);
    run_free(&b);
}

/* A checkpoint of another shape names the tensor. */
static void test_checkpoint_other(void **state)
{
    (void)state;
    mg_run r;
    run_make(&r);
    mg_model m = mini_model;
    mg_var var[11];
    memcpy(var, mini_vars, sizeof mini_vars);
    var[1].dim[1] = 8;
    var[1].elems = V * 8;
    m.var = var;
    r.m = &m;
    char *found = NULL;
    assert_int_equal(mg_ckpt_load(&r, in_folder("run/ckpt/step-0000012"), true, &found), MG_INPUT);
    assert_non_null(
        strstr(mg_errmsg(), "tensor 'head.w' is \"dtype\": \"F32\", \"shape\": [257, 16]"));
    free(found);
    r.m = &mini_model;
    run_free(&r);
}

static void test_retention(void **state)
{
    (void)state;
    mg_run a;
    int64_t step;
    run_make(&a);
    a.log.dir = strdup(in_folder("kept"));
    assert_int_equal(mg_mkdirs(a.log.dir), MG_OK);
    for (a.step = 1; a.step <= 6; a.step++)
        assert_int_equal(mg_ckpt_save(&a), MG_OK);
    for (int i = 1; i <= 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "kept/ckpt/step-000000%d", i);
        assert_int_equal(access(in_folder(name), F_OK), i > 3 ? 0 : -1);
    }
    assert_true(mg_ckpt_has(a.log.dir, &step) && step == 6);
    run_free(&a);
}

static int folder_make(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/mg-unit.%ld", tmp != NULL ? tmp : "/tmp",
             (long)getpid());
    return mkdir(folder, 0700);
}

static int folder_drop(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),     cmocka_unit_test(test_text),
        cmocka_unit_test(test_bf16),       cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_shuffle),    cmocka_unit_test(test_rows),
        cmocka_unit_test(test_masks),      cmocka_unit_test(test_blend),
        cmocka_unit_test(test_bad_index),  cmocka_unit_test(test_init),
        cmocka_unit_test(test_checkpoint), cmocka_unit_test(test_checkpoint_other),
        cmocka_unit_test(test_retention),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_drop);
}
