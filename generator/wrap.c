/* wrap.c: generated C in lines of at most 100 columns. */
#include <string.h>

#include "megagen.h"

/* Where a line of C may be broken to leave `room`: behind a comma or an operator. 0: nowhere. */
static u32 break_at(const char *line, u32 room, u32 indent)
{
    for (u32 i = room; i-- > indent + 20;) {
        if (line[i] == ' ' && strchr(",+-*/=?:<>&|", line[i - 1])) {
            return i;
        }
    }
    return 0;
}

/* The text with its long lines broken; comments stay as they are. */
void c_wrap(Graph *g, const char *s, Text *out)
{
    while (*s) {
        u32 n = (u32)strcspn(s, "\n"), indent = (u32)strspn(s, " "), room = 100, cut;
        bool code = s[indent] != '*' && s[indent] != '/';
        for (u32 at = indent; code && n > room && (cut = break_at(s, room, at)) != 0; at = 0) {
            text_fmt(g->arena, out, "%.*s\n%*s", (int)cut, s, (int)indent + 4, "");
            s += cut + 1;
            n -= cut + 1;
            room = 100 - indent - 4;
        }
        text_fmt(g->arena, out, "%.*s%s", (int)n, s, s[n] ? "\n" : "");
        s += n + (s[n] != 0);
    }
}

/* A long line, broken at its commas. */
void c_wrap_commas(Graph *g, Text *out, const char *line, u32 indent)
{
    u32 col = 0;
    while (*line) {
        const char *comma = strstr(line, ", ");
        u32 n = comma ? (u32)(comma - line) + 1 : (u32)strlen(line);
        if (col && col + n > 98) {
            text_fmt(g->arena, out, "\n%*s", (int)indent, "");
            col = indent;
            u32 blank = *line == ' ';
            line += blank;
            n -= blank;
        }
        text_fmt(g->arena, out, "%.*s", (int)n, line);
        col += n;
        line += n;
    }
}
