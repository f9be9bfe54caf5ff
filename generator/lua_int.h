/* lua_int.h: what lua.c and lua_emit.c, the two files that speak to Lua, share.
 *
 * lua.c owns the state (g->lua), the sandbox, the schema and the registry; lua_emit.c reads kernel
 * blocks and renders templates in the same state. Both leave the stack as they found it.
 */
#ifndef LUA_INT_H
#define LUA_INT_H

#include <lua.h>
#include <lauxlib.h>
#include <lualib.h>

#include "megagen.h"

/* Call the function under `nargs` arguments; on a Lua error fail() with its text, under code. */
void lua_call_checked(Graph *g, int nargs, int nresults, u32 code);

/* Push an array of { name=, type=, value=, origin=, binds=, help= }, all strings, one for each key
 * of the schema in schema order: the mg_key table of the generated model. */
void lua_push_keys(Graph *g);

#endif
