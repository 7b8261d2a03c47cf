/* optim_parts.c - which stretches of the parameters an optimiser has states for, and where.
 *
 * Alone, a process has the states of whole parameters. Where processes divide them (peers.h), each
 * has its own stretches only. What is frozen when the optimiser is created has no states: they are
 * appended later (optim.h). */
#include <stdlib.h>
#include <string.h>

#include "train/optim.h"
#include "train/peers/exchange.h"

#define ALIGN ((size_t)256) /* of a stretch, bytes, as of parameters in the block of values */

/* How the gradients are divided; NULL: not, or this process has all. */
static const tp_cuts *division(const tp_params *P)
{
    const tp_cuts *c = tp__exchange_shards(P);
    return c && c->ranks > 1 ? c : NULL;
}

bool tp__optim_divide(tp_optim *O, tp_err *e)
{
    tp_params *P = O->P;
    if (!division(P)) return true;
    if (!O->kind->elementwise && !tp__exchange_whole(P->exchange)) {
        tp__err(e, TP_E_STATE, "%s: %s", O->kind->name, tp_exchange_why(P->exchange));
        return false;
    }
    O->cuts = *tp__exchange_shards(P);
    const size_t bytes = (size_t)O->cuts.n * sizeof *O->cuts.at;
    tp_cut *copy = malloc(bytes + 1);
    if (!copy) tp__err(e, TP_E_MEMORY, "%s: out of host memory", O->kind->name);
    if (copy) memcpy(copy, O->cuts.at, bytes);
    O->cuts.at = copy;
    return copy;
}

static bool same_cuts(const tp_cuts *a, const tp_cuts *b)
{
    bool same = a->n == b->n && a->ranks == b->ranks;
    for (int i = 0; same && i < a->n; i++)
        same = a->at[i].entry == b->at[i].entry && a->at[i].first == b->at[i].first &&
               a->at[i].owner == b->at[i].owner;
    return same;
}

bool tp__optim_fits(const tp_optim *O, const char *what, tp_err *e)
{
    const tp_cuts *now = division(O->P);
    if (now ? O->cuts.at && same_cuts(&O->cuts, now) : !O->cuts.at) return true;
    tp__err(e, TP_E_STATE,
            "%s: the moments are not divided among the processes as the gradients are; create the "
            "optimiser after tp_exchange_new, and lamb, adafactor and muon before other optimisers",
            what);
    return false;
}

/* The shapes of a parameter's states. */
static void shape_states(const tp_optim *O, tp_weight *w)
{
    const tp_shape like = tp__view_shape(&w->entry->node->view);
    for (int k = 0; k < TP_OPTIM_STATES && O->kind->states[k].name; k++) {
        const tp_optim_state *s = &O->kind->states[k];
        const tp_shape own = s->shape ? s->shape(like, w->taken) : like;
        if (own.ndim < 0)
            w->state[k] = (tp_view){ .ndim = -1 };
        else
            w->state[k] = tp__view(O->P->dtype, &own, NULL);
    }
}

/* Adds a part and places its states behind all others. False: they are too large. */
static bool add_part(tp_optim *O, tp_weight *w, int64_t first, int64_t numel)
{
    const size_t size = tp_dtype_size(O->P->dtype);
    tp_part *p = &O->parts[O->nparts++];
    *p = (tp_part){ .first = first, .numel = numel };
    w->parts++;
    for (int k = 0; k < TP_OPTIM_STATES && O->kind->states[k].name; k++) {
        const bool shaped = O->kind->states[k].shape != NULL;
        size_t bytes = ((size_t)numel * size + ALIGN - 1) / ALIGN * ALIGN;
        if (shaped) bytes = w->state[k].ndim < 0 ? 0 : tp__view_bytes(&w->state[k]);
        p->at[k] = (int64_t)(O->bytes[k] / size);
        if (!tp__size_add(O->bytes[k], bytes, &O->bytes[k])) return false;
    }
    return true;
}

/* Adds the parts of a weight that this process owns. A parameter without elements, which may have
 * states, has no owner: each process has its states. */
static bool add_parts(tp_optim *O, tp_weight *w)
{
    const int entry = (int)(w->entry - O->P->entries);
    bool fits = true;
    const int64_t numel = w->entry->node->view.numel;
    if (!O->cuts.at || numel == 0) return add_part(O, w, 0, numel);
    for (int i = 0; fits && i < O->cuts.n; i++) {
        const tp_cut *t = &O->cuts.at[i];
        if (t->entry == entry && t->owner == tp_peers_rank(tp__exchange_peers(O->P)))
            fits = add_part(O, w, t->first, t->numel);
    }
    return fits;
}

static bool add_wanted(tp_optim *O, tp_weight_test wants, const void *env, tp_err *e)
{
    bool fits = true;
    for (int i = 0; fits && i < O->n; i++) {
        tp_weight *w = &O->weights[i];
        w->planned = !w->placed && wants(O, w, env);
        if (!w->planned) continue;
        w->placed = true;
        w->part = O->nparts;
        fits = add_parts(O, w);
        if (!fits)
            tp__err(e, TP_E_MEMORY, "%s: the state of '%.200s' is too large", O->kind->name,
                    w->entry->name);
    }
    return fits;
}

/* Replaces the states by larger ones, which begin with what they had. */
static bool extend(tp_optim *O, const size_t *before, tp_err *e)
{
    const tp_params *P = O->P;
    tp_buf *b[TP_OPTIM_STATES] = { NULL };
    bool done = true;
    for (int k = 0; done && k < TP_OPTIM_STATES; k++) {
        if (!O->state[k] || O->bytes[k] == before[k]) continue;
        b[k] = tp__optim_block(O, k, e);
        done = b[k] != NULL;
    }
    for (int k = 0; k < TP_OPTIM_STATES; k++) {
        tp_buf *old = b[k];
        if (b[k] && done) {
            old = O->state[k];
            P->dev->be->copy(P->dev, b[k]->data, old->data, before[k]);
            O->state[k] = b[k];
        }
        tp__buf_unref(old);
    }
    return done;
}

tp_places tp__optim_places(const tp_optim *O)
{
    tp_places p = { .parts = O->nparts };
    memcpy(p.bytes, O->bytes, sizeof p.bytes);
    return p;
}

void tp__optim_unplace(tp_optim *O, const tp_places *before)
{
    memcpy(O->bytes, before->bytes, sizeof O->bytes);
    O->nparts = before->parts;
    for (int i = 0; i < O->n; i++) {
        tp_weight *w = &O->weights[i];
        if (!w->planned) continue;
        w->placed = false;
        w->parts = 0;
    }
}

bool tp__optim_place(tp_optim *O, tp_weight_test wants, const void *env, tp_err *e)
{
    const tp_places before = tp__optim_places(O);
    for (int i = 0; i < O->n; i++) O->weights[i].planned = false;
    if (add_wanted(O, wants, env, e) && extend(O, before.bytes, e)) return true;
    tp__optim_unplace(O, &before);
    return false;
}

bool tp__optim_trains(const tp_optim *O, const tp_weight *w, const void *env)
{
    (void)O, (void)env;
    return !w->entry->node->frozen;
}

/* How many parts this process has once all weights are placed. */
static int count_parts(const tp_optim *O)
{
    if (!O->cuts.at) return O->n;
    const int rank = tp_peers_rank(tp__exchange_peers(O->P));
    int n = 0;
    for (int i = 0; i < O->cuts.n; i++) n += O->cuts.at[i].owner == rank;
    for (int i = 0; i < O->n; i++) n += O->weights[i].entry->node->view.numel == 0;
    return n;
}

bool tp__optim_lay_out(tp_optim *O, tp_err *e)
{
    O->most = count_parts(O);
    O->parts = calloc((size_t)O->most + 1, sizeof *O->parts);
    O->table = calloc(1, tp__step_bytes(O->most + 1));
    if (!O->parts || !O->table) tp__err(e, TP_E_MEMORY, "%s: out of host memory", O->kind->name);
    if (O->table) O->s.at = O->table->at;
    for (int i = 0; i < O->n; i++) shape_states(O, &O->weights[i]);
    return e->code == TP_OK && tp__optim_place(O, tp__optim_trains, NULL, e);
}

void tp__optim_parts_free(tp_optim *O)
{
    tp__cuts_free(&O->cuts);
    free(O->parts);
    free(O->table);
}
