/* mgcheck.c: parse, verify, print and read back .mg files, with the core of the generator alone. A text
 * that declares its ops itself needs no Lua. Exit code: 0 all accepted, 1 one refused.
 *
 * usage: mgcheck FILE.mg ...        mgcheck -p FILE.mg prints what was read
 */
#include "megagen.h"

#include <stdio.h>
#include <string.h>

/* The core asks these of other files only for ops that have rules in Lua or a body. */
f64 lua_flops(Graph *g, u32 node)
{
    (void)g;
    (void)node;
    return 0;
}

u32 body_derived(Graph *g, const char *name)
{
    (void)g;
    (void)name;
    return 0;
}

const char *body_fn_name(u8 fn)
{
    (void)fn;
    return "fn";
}

i32 body_fn_find(const char *name)
{
    (void)name;
    return -1;
}

static int print(const char *file)
{
    Graph *g = graph_new();
    char *src = NULL;
    u64 n = 0;
    if (file_read(g->arena, file, &src, &n)) {
        perror(file);
        return 1;
    }
    text_parse(g, file, src, n);
    verify(g, "parse");
    Text t = {0};
    text_print(g, &t);
    fputs(text_str(g->arena, &t), stdout);
    arena_free(g->arena);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        return print(argv[2]);
    }
    int code = 0;
    for (int i = 1; i < argc; i++) {
        int c = text_check(argv[i]);
        code = c > code ? c : code;
    }
    return code;
}
