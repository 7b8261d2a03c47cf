/* transient.c - results that backward recomputes: a record that would save one notes its node
 * instead of its buffer (tp_rec.recompute); unless it is still live, backward reruns the op that
 * made it.
 *
 * The op's record holds its inputs, so marking is free where they are parameters or saved anyway.
 * Inputs may be transient themselves. For one record, each result is computed once, however many
 * inputs need it. */
#include "autograd/nodes.h"
#include "autograd/tape.h"
#include "tensor/shape.h"

/* True if the record can rerun. TP_COMPUTES ops may have read bf16 copies of parameters. */
static bool can_rerun(const tp_rec *r)
{
    return r->op && r->ny == 1 && !(r->op->flags & TP_COMPUTES) && r->nx < TP_MAX_INPUTS;
}

/* True if the result is part of a larger tensor. Sizes decide whether a slice is, or a copy. */
static bool is_piece(const tp_rec *r)
{
    return r->view && r->xv[0].numel != r->yv[0].numel;
}

/* Hides unsaved inputs from backward: kernels may infer from them what is saved. */
void tp__mark_transient(tp_tape *T, tp_node *n)
{
    tp_rec *r = T->recs[n->rec];
    r->rerun = tp__arena(T, (size_t)r->nx * sizeof *r->rerun);
    if (!r->rerun) return;
    for (int i = 0; i < r->nx; i++) {
        tp_node *x = r->x[i];
        if (!x || r->xbuf[i]) continue;
        if (x->transient) {
            r->recompute |= tp__bit(i);
        } else {
            r->xbuf[i] = tp__buf_ref(x->buf);
            r->rerun[i] = x->view.data;
        }
    }
    n->transient = true;
}

tp_tensor tp_transient(tp_tape *T, tp_tensor x)
{
    T = tp__some(T);
    tp_node *n = tp__node(T, x, "tp_transient");
    if (!n) return TP_FAILED;
    if (n->rec == TP_NO_REC || n->transient || T->saves_all || T->recs[n->rec]->done) return x;
    const tp_rec *r = T->recs[n->rec];
    if (is_piece(r)) return x;
    if (!can_rerun(r))
        return tp__fail(T, TP_E_VALUE, "tp_transient: the result of %s cannot be computed again",
                        r->op ? r->op->name : "tp_checkpoint");
    for (int i = 0; i < r->nx; i++)
        if (r->x[i] && !r->xbuf[i] && !r->x[i]->transient && !r->x[i]->live)
            return tp__fail(T, TP_E_STATE,
                            "tp_transient: input %d of %s is gone; call tp_transient in the scope "
                            "that it belongs to",
                            i, r->op->name);
    tp__mark_transient(T, n);
    return x;
}

/* Gives input i of a record its data and a reference to their buffer. */
static void put_input(tp_rec *r, int i, tp_buf *buf, void *data)
{
    r->xbuf[i] = buf;
    r->xv[i].data = data;
}

static void *data_of(const tp_rec *r, int i)
{
    return r->xv[i].data ? r->xv[i].data : r->rerun[i];
}

/* Reruns a record; its inputs must be present. NULL: the tape failed. */
static tp_buf *rerun(tp_tape *T, const tp_rec *r)
{
    tp_view y = r->yv[0], x[TP_MAX_INPUTS];
    for (int i = 0; i < r->nx; i++) {
        x[i] = r->xv[i];
        x[i].data = data_of(r, i);
    }
    tp_call c = { .dev = T->dev,
                  .attr = r->attr,
                  .rng = r->rng,
                  .train = r->train,
                  .nx = r->nx,
                  .ny = 1,
                  .real = r->real,
                  .x = x,
                  .y = &y,
                  .replay = true };
    const tp_work work = r->op->work[T->dev->be->kind];
    tp_buf *made = tp__alloc(T, tp__view_bytes(&y), r->op->name), *scratch = NULL;
    bool ok = made != NULL;
    if (ok) y.data = made->data;
    if (ok && tp__all_empty(&y, 1)) return made;
    if (ok && work) {
        scratch = tp__alloc(T, work(&c), r->op->name);
        ok = scratch != NULL;
        if (ok) c.work = scratch->data;
    }
    const char *path = T->path;
    T->path = r->path ? r->path : "";
    ok = ok && tp__run_op(T, &c, r->op, false) == TP_OK;
    T->path = path;
    tp__buf_unref(scratch);
    if (ok) return made;
    tp__buf_unref(made);
    return NULL;
}

static bool fail_done(tp_tape *T, const tp_rec *r)
{
    tp__fail(T, TP_E_STATE,
             "tp_backward: the transient result of %s cannot be computed again, since %s was "
             "differentiated before; tp_keep the result",
             r->op->name, r->op->name);
    return false;
}

static bool restore(tp_tape *T, tp_rec *r, uint32_t inputs);

/* Recomputes r's transient result, then releases r's inputs. */
static bool recompute_result(tp_tape *T, tp_rec *r)
{
    if (r->done) return fail_done(T, r);
    uint32_t missing = 0;
    for (int k = 0; k < r->nx; k++)
        if ((r->recompute & tp__bit(k)) && !r->xbuf[k]) missing |= tp__bit(k);
    if (tp__versions_match(T, r) && restore(T, r, missing)) {
        r->made = r->view ? tp__buf_ref(r->xbuf[0]) : rerun(T, r);
        if (r->made) r->made_data = r->view ? data_of(r, 0) : r->made->data;
    }
    for (int k = 0; k < r->nx; k++)
        if (missing & tp__bit(k)) {
            tp__buf_unref(r->xbuf[k]);
            put_input(r, k, NULL, NULL);
        }
    return r->made != NULL;
}

static bool restore(tp_tape *T, tp_rec *r, uint32_t inputs)
{
    for (int i = 0; r->recompute && i < r->nx; i++) {
        if (!(r->recompute & inputs & tp__bit(i)) || r->xbuf[i]) continue;
        const tp_node *n = r->x[i];
        if (n->live) {
            put_input(r, i, tp__buf_ref(n->buf), n->view.data);
            continue;
        }
        tp_rec *from = T->recs[n->rec];
        if (!from->made && !recompute_result(T, from)) return false;
        put_input(r, i, tp__buf_ref(from->made), from->made_data);
        if (--from->uses > 0) continue;
        tp__buf_unref(from->made);
        from->made = NULL;
    }
    return true;
}

/* ---- each result once ---- */

/* Counts the inputs that need each result, so that it is computed once and released after the
 * last. */
static void count_uses(tp_tape *T, const tp_rec *r, uint32_t inputs)
{
    for (int i = 0; r->recompute && i < r->nx; i++) {
        if (!(r->recompute & inputs & tp__bit(i)) || r->xbuf[i] || r->x[i]->live) continue;
        tp_rec *from = T->recs[r->x[i]->rec];
        if (from->uses++ == 0) count_uses(T, from, from->recompute);
    }
}

/* After a failure: releases results for inputs not yet reached. */
static void forget_uses(tp_tape *T, const tp_rec *r, uint32_t inputs)
{
    for (int i = 0; r->recompute && i < r->nx; i++) {
        if (!(r->recompute & inputs & tp__bit(i)) || r->x[i]->live) continue;
        tp_rec *from = T->recs[r->x[i]->rec];
        if (from->uses == 0) continue;
        from->uses = 0;
        tp__buf_unref(from->made);
        from->made = NULL;
        forget_uses(T, from, from->recompute);
    }
}

bool tp__restore(tp_tape *T, tp_rec *r, uint32_t inputs)
{
    if (!(r->recompute & inputs)) return true;
    count_uses(T, r, inputs);
    const bool done = restore(T, r, inputs);
    if (!done) forget_uses(T, r, inputs);
    return done;
}
