/* verify_step.c: the commands of all stages. Sends meet their receives; collectives have one order;
 * nobody waits for ever.
 *
 * Sends are rendezvous without any buffering: a send ends when the peer stands at the matching
 * receive. The checks know nothing of how pipe came to its result.
 */
#include "megagen.h"
#include "verify.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- commands: pairs, deadlock --------------------------------------------------------------- */

/* One lane of one stage: its commands run in order. */
typedef struct {
    u32 step; /* id of g->step */
    u8 lane;
    u32 pc; /* index into Step.cmd */
    bool sent, got;
} Thread;

typedef struct {
    Check *c;
    VEC(Thread) thread;
    bool **event; /* per step: signalled */
} Sim;

enum { EVENT_MAX = 1 << 17 };

static const Step *step_of(const Sim *s, const Thread *t)
{
    return &s->c->g->step.at[t->step];
}

static const Cmd *cmd_of(const Sim *s, const Thread *t)
{
    const Step *st = step_of(s, t);
    return t->pc < st->cmd.n ? &st->cmd.at[t->pc] : NULL;
}

static void skip_lanes(const Sim *s, Thread *t)
{
    const Step *st = step_of(s, t);
    while (t->pc < st->cmd.n && st->cmd.at[t->pc].lane != t->lane) {
        t->pc++;
    }
}

typedef struct {
    u32 reg;
    i32 from, to, micro, chunk;
    bool any;
} Message;

static Message sent_by(const Sim *s, const Thread *t, const Cmd *k)
{
    bool any = k->kind == CMD_SEND || k->kind == CMD_SENDRECV;
    return (Message){k->reg, step_of(s, t)->stage, k->peer, k->micro, k->chunk, any};
}

static Message got_by(const Sim *s, const Thread *t, const Cmd *k)
{
    bool both = k->kind == CMD_SENDRECV, any = both || k->kind == CMD_RECV;
    return (Message){both ? k->reg2 : k->reg,
                     both ? k->peer2 : k->peer,
                     step_of(s, t)->stage,
                     both ? k->micro2 : k->micro,
                     k->chunk,
                     any};
}

static bool same_message(Message a, Message b)
{
    return a.any && b.any && a.reg == b.reg && a.from == b.from && a.to == b.to &&
           a.micro == b.micro;
}

static void finish_transfer(const Sim *s, Thread *t)
{
    const Cmd *k = cmd_of(s, t);
    bool need_sent = k->kind != CMD_RECV, need_got = k->kind != CMD_SEND;
    if ((!need_sent || t->sent) && (!need_got || t->got)) {
        t->pc++;
        t->sent = t->got = false;
        skip_lanes(s, t);
    }
}

/* The send that t stands at meets a peer that stands at the receive. */
static bool meet(Sim *s, u32 i)
{
    Thread *t = &s->thread.at[i];
    const Cmd *k = cmd_of(s, t);
    Message m = sent_by(s, t, k);
    for (u32 p = 0; m.any && !t->sent && p < s->thread.n; p++) {
        Thread *u = &s->thread.at[p];
        const Cmd *r = cmd_of(s, u);
        if (p != i && r && !u->got && same_message(m, got_by(s, u, r))) {
            t->sent = u->got = true;
            finish_transfer(s, t);
            finish_transfer(s, u);
            return true;
        }
    }
    return false;
}

static bool advance(Sim *s, u32 i)
{
    Thread *t = &s->thread.at[i];
    const Cmd *k = cmd_of(s, t);
    if (!k) {
        return false;
    }
    if (k->kind == CMD_SEND || k->kind == CMD_RECV || k->kind == CMD_SENDRECV) {
        return meet(s, i);
    }
    if (k->kind == CMD_WAIT && !s->event[t->step][k->event]) {
        return false;
    }
    if (k->kind == CMD_SIGNAL) {
        s->event[t->step][k->event] = true;
    }
    t->pc++;
    skip_lanes(s, t);
    return true;
}

static const char *cmd_str(const Sim *s, u32 i)
{
    const Graph *g = s->c->g;
    const Thread *t = &s->thread.at[i];
    const Cmd *k = cmd_of(s, t);
    int stage = (int)step_of(s, t)->stage;
    if (k->kind == CMD_WAIT) {
        return arena_fmt(g->arena, "stage %d waits for event %u (command %u)", stage, k->event,
                         t->pc);
    }
    bool send = sent_by(s, t, k).any && !t->sent;
    Message m = send ? sent_by(s, t, k) : got_by(s, t, k);
    return arena_fmt(g->arena, "stage %d %s %s, micro batch %d, %s stage %d (command %u)", stage,
                     send ? "sends" : "receives", verify_reg(s->c, m.reg), (int)m.micro,
                     send ? "to" : "from", (int)(send ? m.to : m.from), t->pc);
}

/* The thread that must act before t can go on: it still has the other half in front of it. */
static i32 waits_for(const Sim *s, u32 i)
{
    const Thread *t = &s->thread.at[i];
    const Cmd *k = cmd_of(s, t);
    bool wait = k->kind == CMD_WAIT, send = sent_by(s, t, k).any && !t->sent;
    Message m = send ? sent_by(s, t, k) : got_by(s, t, k);
    for (u32 p = 0; p < s->thread.n; p++) {
        const Thread *u = &s->thread.at[p];
        const Step *st = step_of(s, u);
        for (u32 x = u->pc; x < st->cmd.n; x++) {
            const Cmd *o = &st->cmd.at[x];
            if (o->lane != u->lane || p == i) {
                continue;
            }
            bool signal =
                wait && u->step == t->step && o->kind == CMD_SIGNAL && o->event == k->event;
            bool half = !wait && same_message(m, send ? got_by(s, u, o) : sent_by(s, u, o));
            if (signal || half) {
                return (i32)p;
            }
        }
    }
    return -1;
}

/* Nothing moves. Follow who waits for whom until somebody is met again. */
static void name_cycle(const Sim *s)
{
    Graph *g = s->c->g;
    u32 at = 0;
    while (!cmd_of(s, &s->thread.at[at])) {
        at++;
    }
    u32 *order = arena_alloc(g->arena, (s->thread.n + 1) * sizeof *order), n = 0;
    bool *seen = arena_alloc(g->arena, s->thread.n);
    while (!seen[at]) {
        seen[at] = true;
        order[n++] = at;
        i32 next = waits_for(s, at);
        if (next < 0) {
            verify_fail(s->c, E_PAIR, "%s: nobody has the other half", cmd_str(s, at));
        }
        at = (u32)next;
    }
    Text t = {0};
    bool on = false;
    for (u32 i = 0; i < n; i++) {
        on = on || order[i] == at;
        if (on) {
            text_fmt(g->arena, &t, "\nnote: %s", cmd_str(s, order[i]));
        }
    }
    verify_fail(s->c, E_DEADLOCK, "deadlock: the stages wait for each other%s",
                text_str(g->arena, &t));
}

static void simulate(Check *c)
{
    const Graph *g = c->g;
    Sim s = {.c = c};
    s.event = arena_alloc(g->arena, g->step.n * sizeof *s.event);
    for (u32 i = 1; i < g->step.n; i++) {
        const Step *st = &g->step.at[i];
        bool lane[256] = {0};
        u32 events = 0;
        for (u32 k = 0; k < st->cmd.n; k++) {
            const Cmd *x = &st->cmd.at[k];
            assert(x->event <= EVENT_MAX);
            events = x->event > events ? x->event : events;
            if (!lane[x->lane]) {
                lane[x->lane] = true;
                vec_push(g->arena, &s.thread, (Thread){.step = i, .lane = x->lane});
            }
        }
        s.event[i] = arena_alloc(g->arena, events + 1);
    }
    for (u32 i = 0; i < s.thread.n; i++) {
        skip_lanes(&s, &s.thread.at[i]);
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (u32 i = 0; i < s.thread.n; i++) {
            while (advance(&s, i)) {
                moved = true;
            }
        }
    }
    for (u32 i = 0; i < s.thread.n; i++) {
        if (cmd_of(&s, &s.thread.at[i])) {
            name_cycle(&s);
        }
    }
}

/* ---- commands: what is there when it is needed ----------------------------------------------- */

typedef struct {
    u32 reg;
    i32 micro;
} Here;

typedef struct {
    Check *c;
    const Step *step;
    VEC(Here) here;
} Arrivals;

static bool is_here(const Arrivals *a, u32 reg, i32 micro)
{
    for (u32 i = 0; i < a->here.n; i++) {
        if (a->here.at[i].reg == reg && a->here.at[i].micro == micro) {
            return true;
        }
    }
    return a->c->g->reg.at[reg].io;
}

static void arrive(Arrivals *a, u32 reg, i32 micro)
{
    if (reg && !is_here(a, reg, micro)) {
        vec_push(a->c->g->arena, &a->here, (Here){reg, micro});
    }
}

static void run_slice(Arrivals *a, const Cmd *k, u8 role, u32 pos)
{
    const Graph *g = a->c->g;
    u32 ran = 0;
    for (u32 i = 1; i < g->chain.n; i++) {
        const Chain *ch = &g->chain.at[i];
        for (u32 x = 0; ch->role == role && x < ch->call.n; x++) {
            const Call *call = &ch->call.at[x];
            if (call->stage != a->step->stage || call->chunk != k->chunk) {
                continue;
            }
            ran++;
            for (u32 r = 0; r < call->in.n; r++) {
                u32 reg = call->in.at[r];
                if (reg && !is_here(a, reg, k->micro)) {
                    verify_fail(
                        a->c, E_PAIR,
                        "stage %d, command %u: reg %s of micro batch %d is neither made nor "
                        "received before",
                        (int)a->step->stage, pos, verify_reg(a->c, reg), (int)k->micro);
                }
            }
            for (u32 r = 0; r < call->out.n; r++) {
                arrive(a, call->out.at[r], k->micro);
            }
        }
    }
    if (!ran) {
        verify_fail(a->c, E_PAIR, "stage %d, command %u: nothing runs in chunk %d",
                    (int)a->step->stage, pos, (int)k->chunk);
    }
}

static void check_arrivals(Check *c, const Step *st)
{
    static const u8 roles[] = {[CMD_FWD] = ROLE_FWD,
                               [CMD_BWD] = ROLE_BWD,
                               [CMD_BWDW] = ROLE_BWDW,
                               [CMD_LOSS] = ROLE_LOSS,
                               [CMD_UPD] = ROLE_UPD};
    Arrivals a = {.c = c, .step = st};
    for (u32 i = 0; i < st->cmd.n; i++) {
        const Cmd *k = &st->cmd.at[i];
        bool send = k->kind == CMD_SEND || k->kind == CMD_SENDRECV;
        if (k->kind <= CMD_UPD) {
            run_slice(&a, k, roles[k->kind], i);
        }
        if (send && !is_here(&a, k->reg, k->micro)) {
            verify_fail(c, E_PAIR,
                        "stage %d, command %u: reg %s of micro batch %d is sent before it "
                        "is there",
                        (int)st->stage, i, verify_reg(c, k->reg), (int)k->micro);
        }
        if (k->kind == CMD_RECV) {
            arrive(&a, k->reg, k->micro);
        } else if (k->kind == CMD_SENDRECV) {
            arrive(&a, k->reg2, k->micro2);
        }
    }
}

static void check_cmds(const Check *c, const Step *st)
{
    const Graph *g = c->g;
    for (u32 i = 0; i < st->cmd.n; i++) {
        const Cmd *k = &st->cmd.at[i];
        bool both = k->kind == CMD_SENDRECV,
             moves = both || k->kind == CMD_SEND || k->kind == CMD_RECV;
        if (moves && (!k->reg || (both && !k->reg2) || k->peer == st->stage ||
                      (both && k->peer2 == st->stage))) {
            verify_fail(c, E_PAIR, "stage %d, command %u: no reg, or a message to itself",
                        (int)st->stage, i);
        }
        for (u32 e = 0; e < i && k->kind <= CMD_BWDW; e++) {
            const Cmd *o = &st->cmd.at[e];
            if (o->kind == k->kind && o->chunk == k->chunk && o->micro == k->micro) {
                verify_fail(c, E_PAIR, "stage %d: command %u runs micro batch %d a second time",
                            (int)st->stage, i, (int)k->micro);
            }
        }
    }
    for (u32 i = 1; i < g->step.n; i++) {
        if (&g->step.at[i] != st && g->step.at[i].stage == st->stage) {
            verify_fail(c, E_PAIR, "stage %d has two steps", (int)st->stage);
        }
    }
}

static i32 command_at(const Step *st, u8 kind, i32 chunk, i32 micro)
{
    for (u32 i = 0; i < st->cmd.n; i++) {
        const Cmd *k = &st->cmd.at[i];
        if (k->kind == kind && k->chunk == chunk && k->micro == micro) {
            return (i32)i;
        }
    }
    return -1;
}

static bool has_slice(const Graph *g, u8 role, i32 stage, i32 chunk)
{
    for (u32 i = 1; i < g->chain.n; i++) {
        const Chain *ch = &g->chain.at[i];
        for (u32 k = 0; ch->role == role && k < ch->call.n; k++) {
            if (ch->call.at[k].stage == stage && ch->call.at[k].chunk == chunk) {
                return true;
            }
        }
    }
    return false;
}

/* Every micro batch that goes forward comes back: first its gradient, then that of the weights. */
static void check_round(const Check *c, const Step *st)
{
    static const u8 kinds[] = {CMD_BWD, CMD_BWDW}, roles[] = {ROLE_BWD, ROLE_BWDW};
    for (u32 i = 0; i < st->cmd.n; i++) {
        const Cmd *k = &st->cmd.at[i];
        i32 before = (i32)i;
        for (u32 j = 0; k->kind == CMD_FWD && j < 2; j++) {
            if (!has_slice(c->g, roles[j], st->stage, k->chunk)) {
                continue;
            }
            i32 at = command_at(st, kinds[j], k->chunk, k->micro);
            if (at < before) {
                verify_fail(c, E_PAIR, "stage %d: %s of micro batch %d %s", (int)st->stage,
                            j ? "bwdw" : "bwd", (int)k->micro,
                            at < 0 ? "never runs" : "runs before what it needs");
            }
            before = at;
        }
    }
}

/* ---- collectives over stages ----------------------------------------------------------------- */

typedef struct {
    u32 node;
    u64 stages; /* that take part */
} Collective;
typedef VEC(Collective) Sequence;

/* Stages that a node talks to: attribute `stages`, else all of them; 0 if its axis has no stages in
 * it. */
static u64 stages_of(Graph *g, u32 node)
{
    const Attr *axis = node_attr(g, node, "axis"), *some = node_attr(g, node, "stages");
    u8 atom[ATOM_MAX], pp[ATOM_MAX];
    i32 n = axis && axis->kind == AT_SYM ? axis_atoms(g, axis->sym, atom) : 0;
    i32 npp = axis_atoms(g, sym(g, "pp"), pp);
    bool over = false;
    for (i32 i = 0; i < n; i++) {
        for (i32 k = 0; k < npp; k++) {
            over = over || atom[i] == pp[k];
        }
    }
    u64 set = 0;
    for (u32 i = 0; over && some && some->kind == AT_NUMS && i < some->n; i++) {
        f64 s = some->nums[i];
        set |= s >= 0 && s < 64 ? (u64)1 << (u32)s : 0;
    }
    return over && !set ? ~(u64)0 : set;
}

static void collect_func(Graph *g, u32 func, Sequence *out)
{
    const Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        if (strcmp(sym_str(g, g->op.at[n->op].name), "loop") == 0) {
            collect_func(g, n->body, out);
        } else if (g->op.at[n->op].flags & OF_COMM && stages_of(g, f->node.at[i])) {
            vec_push(g->arena, out, (Collective){f->node.at[i], stages_of(g, f->node.at[i])});
        }
    }
}

static void collect(const Check *c, const Step *st, Sequence *out)
{
    static const u8 roles[] = {[CMD_FWD] = ROLE_FWD,
                               [CMD_BWD] = ROLE_BWD,
                               [CMD_BWDW] = ROLE_BWDW,
                               [CMD_LOSS] = ROLE_LOSS,
                               [CMD_UPD] = ROLE_UPD};
    Graph *g = c->g;
    for (u32 i = 0; i < st->cmd.n; i++) {
        const Cmd *k = &st->cmd.at[i];
        for (u32 x = 1; k->kind <= CMD_UPD && x < g->chain.n; x++) {
            const Chain *ch = &g->chain.at[x];
            for (u32 y = 0; ch->role == roles[k->kind] && y < ch->call.n; y++) {
                if (ch->call.at[y].stage == st->stage && ch->call.at[y].chunk == k->chunk) {
                    collect_func(g, ch->call.at[y].func, out);
                }
            }
        }
    }
}

static const char *collective_str(const Check *c, const Collective *x)
{
    Graph *g = c->g;
    if (!x) {
        return "nothing more";
    }
    const Node *n = &g->node.at[x->node];
    u32 v = n->nin ? g->arg.at[n->in] : n->out;
    return arena_fmt(g->arena, "%s of %s in Func %s", sym_str(g, g->op.at[n->op].name),
                     type_str(g, &g->value.at[v].type), sym_str(g, g->func.at[n->func].name));
}

static const Collective *next_with(const Sequence *s, u32 *at, i32 a, i32 b)
{
    while (*at < s->n && !(s->at[*at].stages >> a & 1 && s->at[*at].stages >> b & 1)) {
        ++*at;
    }
    return *at < s->n ? &s->at[(*at)++] : NULL;
}

static bool same_collective(const Graph *g, const Collective *x, const Collective *y)
{
    if (!x || !y) {
        return x == y;
    }
    const Node *a = &g->node.at[x->node], *b = &g->node.at[y->node];
    bool same = a->op == b->op && x->stages == y->stages && a->nin == b->nin;
    return same && (!a->nin || type_equal(&g->value.at[g->arg.at[a->in]].type,
                                          &g->value.at[g->arg.at[b->in]].type));
}

/* Two stages meet in the same collectives in the same order. */
static void check_sequences(const Check *c, const Step *a, const Step *b)
{
    const Graph *g = c->g;
    Sequence x = {0}, y = {0};
    collect(c, a, &x);
    collect(c, b, &y);
    u32 i = 0, k = 0;
    for (u32 n = 1;; n++) {
        const Collective *p = next_with(&x, &i, a->stage, b->stage);
        const Collective *q = next_with(&y, &k, a->stage, b->stage);
        if (!same_collective(g, p, q)) {
            verify_fail(c, E_ORDER, "collective %u of stages %d and %d: %s against %s", n,
                        (int)a->stage, (int)b->stage, collective_str(c, p), collective_str(c, q));
        }
        if (!p) {
            return;
        }
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

void verify_steps(Check *c)
{
    const Graph *g = c->g;
    for (u32 i = 1; i < g->step.n; i++) {
        check_cmds(c, &g->step.at[i]);
    }
    if (g->step.n > 1) {
        simulate(c);
    }
    for (u32 i = 1; i < g->step.n; i++) {
        check_arrivals(c, &g->step.at[i]);
        check_round(c, &g->step.at[i]);
        for (u32 k = 1; k < i; k++) {
            check_sequences(c, &g->step.at[k], &g->step.at[i]);
        }
    }
}
