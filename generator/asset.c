/* asset.c: our own files, embedded or from disk.
 *
 * The build links a table of all rules, templates, kernels and runtime sources into megagen, so
 * that one file is the whole tool. A binary without the table (tests, a half-done tree) reads the
 * same paths below the folder it stands in. MEGAGEN_HOME, if set, names that folder and wins over
 * the table: for work on templates and kernels without a rebuild.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "megagen.h"

const Asset *asset_table(void) __attribute__((weak)); /* from the build; ends with path = NULL */

static const char *home_dir(Arena *a)
{
    const char *home = getenv("MEGAGEN_HOME");
    if (home && *home)
        return home;
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return ".";
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = 0;
    return arena_fmt(a, "%s", self);
}

static bool embedded(void)
{
    const char *home = getenv("MEGAGEN_HOME");
    return asset_table != NULL && !(home && *home);
}

const char *asset_read(Arena *a, const char *path, u64 *n)
{
    if (embedded()) {
        for (const Asset *t = asset_table(); t->path; t++) {
            if (!strcmp(t->path, path)) {
                *n = t->n;
                return t->data;
            }
        }
        return NULL;
    }
    char *data = NULL;
    if (file_read(a, arena_fmt(a, "%s/%s", home_dir(a), path), &data, n))
        return NULL;
    char *text = arena_alloc(a, *n + 1);
    memcpy(text, data, *n);
    return text;
}

static int by_bytes(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static bool ends_in(const char *s, const char *suffix)
{
    u64 n = strlen(s), m = strlen(suffix);
    return n >= m && !strcmp(s + n - m, suffix);
}

typedef VEC(const char *) Names;

static void list_table(Arena *a, const char *dir, const char *suffix, Names *out)
{
    u64 n = strlen(dir);
    for (const Asset *t = asset_table(); t->path; t++) {
        if (!strncmp(t->path, dir, n) && t->path[n] == '/' && !strchr(t->path + n + 1, '/') &&
            ends_in(t->path, suffix))
            vec_push(a, out, t->path);
    }
}

static void list_disk(Arena *a, const char *dir, const char *suffix, Names *out)
{
    DIR *d = opendir(arena_fmt(a, "%s/%s", home_dir(a), dir));
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] != '.' && ends_in(e->d_name, suffix))
            vec_push(a, out, arena_fmt(a, "%s/%s", dir, e->d_name));
    }
    closedir(d);
}

u32 asset_list(Arena *a, const char *dir, const char *suffix, const char ***path)
{
    Names names = {0};
    if (embedded())
        list_table(a, dir, suffix, &names);
    else
        list_disk(a, dir, suffix, &names);
    if (names.n)
        qsort(names.at, names.n, sizeof *names.at, by_bytes);
    *path = names.at;
    return names.n;
}

const char *kernel_read(Graph *g, const char *path, u64 *n)
{
    for (u32 i = 0; i < g->kernel_file.n; i++) {
        const Asset *t = &g->kernel_file.at[i];
        if (!strcmp(t->path, path)) {
            *n = t->n;
            return t->data;
        }
    }
    return asset_read(g->arena, path, n);
}
