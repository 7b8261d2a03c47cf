/* optim_parts.c - which stretches of the parameters an optimiser has states for, and where.
 *
 * Alone, a process has the states of whole parameters, laid out like the values unless they have
 * their own shape. Where processes divide them (peers.h), each has its own stretches only, without
 * gaps but those that keep them aligned. */
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
            "optimiser after tp_exchange_new, and lamb and adafactor before other optimisers",
            what);
    return false;
}

/* The shapes of a parameter's states. */
static void shape_states(const tp_optim *O, tp_weight *w)
{
    const tp_shape like = tp__view_shape(&w->entry->node->view);
    for (int k = 0; k < TP_OPTIM_STATES && O->kind->states[k].name; k++) {
        const tp_optim_state *s = &O->kind->states[k];
        const tp_shape own = s->shape ? s->shape(like) : like;
        if (own.ndim < 0)
            w->state[k] = (tp_view){ .ndim = -1 };
        else
            w->state[k] = tp__view(O->P->dtype, &own, NULL);
    }
}

/* Adds a part and places its states. A state of the parameter's shape has the layout of the values
 * if it is not divided. False: they are too large. */
static bool add_part(tp_optim *O, tp_weight *w, int64_t first, int64_t numel)
{
    const size_t size = tp_dtype_size(O->P->dtype);
    tp_part *p = &O->parts[O->nparts++];
    *p = (tp_part){ .first = first, .numel = numel };
    w->parts++;
    for (int k = 0; k < TP_OPTIM_STATES && O->kind->states[k].name; k++) {
        const bool shaped = O->kind->states[k].shape != NULL;
        const bool like_values = !shaped && !O->cuts.at;
        size_t bytes = ((size_t)numel * size + ALIGN - 1) / ALIGN * ALIGN;
        if (shaped) bytes = w->state[k].ndim < 0 ? 0 : tp__view_bytes(&w->state[k]);
        p->at[k] = (int64_t)((like_values ? w->entry->at : O->bytes[k]) / size);
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

bool tp__optim_lay_out(tp_optim *O, tp_err *e)
{
    const int most = O->cuts.n + O->n;
    O->parts = calloc((size_t)most + 1, sizeof *O->parts);
    O->s.at = calloc((size_t)most + 1, sizeof *O->s.at);
    if (!O->parts || !O->s.at) tp__err(e, TP_E_MEMORY, "%s: out of host memory", O->kind->name);
    for (int i = 0; e->code == TP_OK && i < O->n; i++) {
        tp_weight *w = &O->weights[i];
        w->part = O->nparts;
        shape_states(O, w);
        if (!add_parts(O, w))
            tp__err(e, TP_E_MEMORY, "%s: the state of '%.200s' is too large", O->kind->name,
                    w->entry->name);
    }
    for (int k = 0; !O->cuts.at && k < TP_OPTIM_STATES; k++)
        if (!O->kind->states[k].shape) O->bytes[k] = O->P->block_bytes;
    return e->code == TP_OK;
}

void tp__optim_parts_free(tp_optim *O)
{
    tp__cuts_free(&O->cuts);
    free(O->parts);
    free(O->s.at);
}
