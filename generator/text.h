/* text.h: what text.c (print) and parse.c (parse) share: the names of enums and the shape of words.
 */
#ifndef TEXT_H
#define TEXT_H

#include "megagen.h"

/* By enum value, ended by NULL; flags by bit. */
extern const char *const text_roles[],
    *const text_var_kinds[],
        *const text_lives[], *const text_inits[],
                                 *const text_whens[],
                                     *const text_in_kinds[],
                                         *const text_out_kinds[],
                                             *const text_saves[],
                                                 *const text_regions[],
                                                     *const text_cmds[], *const text_flags[],
                                                                             *const text_op_flags[];

bool text_word_char(char c);
bool text_reg_number(const char *s);
u32 text_default_bind(Graph *g, Sym prefix, Sym formal); /* var of that name, 0 = none */

#endif
