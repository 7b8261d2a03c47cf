/* optim_swap.c - exchanges the values of training for those that an optimiser evaluates with.
 *
 * The averages are computed in place, from a copy that brings the values back with the same bits:
 * computing them back would round, and training would depend on how often it is validated. */
#include <string.h>

#include "autograd/recorded.h"
#include "train/optim.h"
#include "train/peers/exchange.h"

bool tp_optim_has_averages(const tp_optim *O)
{
    return O && O->kind->average[TP_CPU];
}

static bool may_swap(tp_optim *O)
{
    tp_err *e = &O->step_err;
    *e = (tp_err){ .dev = O->dev };
    if (!tp__optim_usable(O, "tp_optim_swap", e)) return false;
    if (tp__in_step(O->dev))
        tp__err(e, TP_E_STATE,
                "tp_optim_swap: must not be called between tp_capture_begin and tp_capture_end");
    else if (!tp_optim_has_averages(O))
        tp__err(
            e, TP_E_VALUE,
            "tp_optim_swap: %s keeps no averages; those of tp_ema_new work with every optimiser",
            O->kind->name);
    else if (!O->kept)
        tp__params_hold_values(O->P, "tp_optim_swap", e);
    return e->code == TP_OK;
}

static void all_segments(tp_optim *O)
{
    O->s.n = O->s.blocks = 0;
    for (int i = 0; i < O->n; i++) {
        const tp_weight *w = &O->weights[i];
        for (int k = 0; k < w->parts; k++) {
            const tp_part *p = &O->parts[w->part + k];
            tp_segment *g = tp__segments_add(&O->s, O->P, w->entry, p->first, p->numel);
            if (g) memcpy(g->own, p->at, sizeof g->own);
        }
    }
}

static void give_back(tp_optim *O)
{
    tp_params *P = O->P;
    P->dev->be->copy(P->dev, P->values->data, O->kept->data, P->block_bytes);
    tp__buf_unref(O->kept);
    O->kept = NULL;
    tp__params_touch(P);
}

/* Averages what this process has the states of. */
static bool average_own(tp_optim *O)
{
    tp_params *P = O->P;
    tp_block_kernel kernel = { .name = O->kind->name };
    memcpy(kernel.kernel, O->kind->average, sizeof kernel.kernel);
    O->kept = tp__block_new(P, P->block_bytes, O->kind->name, &O->step_err);
    if (!O->kept) return false;
    P->dev->be->copy(P->dev, O->kept->data, P->values->data, P->block_bytes);
    all_segments(O);
    tp_optim_attr a = tp__optim_attr(O);
    return tp__optim_run(O, &kernel, &a);
}

/* Is `fine` true in all processes that divide the states? Values are exchanged only if it is: what
 * a process without a copy received, it could not bring back. */
static bool everywhere(tp_optim *O, bool fine)
{
    if (!O->cuts.at || O->cuts.ranks == 1 || O->P->dev->dry) return fine;
    tp_peers *G = tp__exchange_peers(O->P);
    if (!tp_peers_any(G, !fine)) return true;
    if (tp_peers_ok(G))
        tp__err(&O->step_err, TP_E_STATE,
                "tp_optim_swap: another process could not average its part of the values");
    else
        tp__err(&O->step_err, TP_E_IO, "%s", tp_peers_why(G));
    return false;
}

static bool average(tp_optim *O)
{
    const bool done = everywhere(O, average_own(O)) && tp__optim_tell(O, true);
    if (!done && O->kept) give_back(O);
    tp__params_touch(O->P);
    return done;
}

bool tp_optim_swap(tp_optim *O)
{
    if (!O || O->err.code != TP_OK || !may_swap(O)) return false;
    if (O->kept) {
        give_back(O);
        O->P->swapped--;
        return true;
    }
    if (!average(O)) return false;
    O->P->swapped++;
    O->P->swap = "tp_optim_swap";
    return true;
}

void tp__optim_swap_free(tp_optim *O)
{
    if (!O->kept) return;
    if (O->P->id == O->id) O->P->swapped--;
    tp__buf_unref(O->kept);
}
