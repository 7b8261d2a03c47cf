/* checkpoint.c - recomputation: runs a function unrecorded and reruns it in backward.
 *
 * The second run appends to the same record list and arena, which are truncated afterwards. It uses
 * the first run's mode, dtype and random offset and has no side effects (batch statistics, carried
 * slots). */
#include <stdlib.h>
#include <string.h>

#include "autograd/nodes.h"
#include "autograd/params.h"
#include "autograd/tape.h"

static tp_tensor call(tp_tape *T, const tp_replay *p, int nx, const tp_tensor *x)
{
    if (p->fn) return p->fn(T, p->self, nx, x);
    return p->f && nx == 1 ? p->f(T, p->self, x[0]) : TP_FAILED;
}

/* ---- backward ---- */

/* Tape state that a replay changes and then restores. */
typedef struct saved {
    uint64_t seed, offset;
    int64_t nrecs;
    tp_arena_chunk *arena;
    size_t used;
    bool train, recording, replaying;
    tp_dtype compute;
} saved;

static saved enter_replay(tp_tape *T, const tp_rec *r)
{
    const tp_replay *p = r->replay;
    const saved s = { T->seed,  T->offset,    T->nrecs,     T->arena,  T->arena->used,
                      T->train, T->recording, T->replaying, T->compute };
    T->seed = p->seed;
    T->offset = p->offset;
    T->train = p->train;
    T->compute = p->compute;
    T->recording = T->replaying = true;
    tp_enter(T, r->path);
    return s;
}

static void leave_replay(tp_tape *T, const saved *s)
{
    tp__recs_drop(T, s->nrecs);
    tp_leave_n(T, 0, NULL);
    T->seed = s->seed;
    T->offset = s->offset;
    T->arena = s->arena;
    T->arena->used = s->used;
    T->train = s->train;
    T->recording = s->recording;
    T->replaying = s->replaying;
    T->compute = s->compute;
}

static bool versions_match(tp_tape *T, const tp_rec *r)
{
    for (int i = 0; i < r->replay->nparams; i++)
        if (r->version[i] != tp__version(r->replay->params[i])) {
            tp__fail(T, TP_E_STATE,
                     "tp_checkpoint (backward): "
                     "the parameters have changed since the forward pass");
            return false;
        }
    return true;
}

/* Parameters frozen in the first run or now get no gradient. Writes only differences: other threads
 * may use the parameters. */
static void freeze_as_then(const tp_replay *p)
{
    for (int i = 0; i < p->nparams; i++)
        if (!p->wanted[i]) p->params[i]->wants_grad = false;
}

static void freeze_as_now(const tp_replay *p)
{
    for (int i = 0; i < p->nparams; i++)
        if (!p->wanted[i])
            p->params[i]->wants_grad = !p->params[i]->buffer && !p->params[i]->frozen;
}

/* Reruns the function on new leaves that hold the saved data, then walks its records. */
static bool replay(tp_tape *T, tp_rec *r, tp_node **leaf, const saved *s)
{
    tp_tensor local[TP_MAX_INPUTS], *x = tp__room(T, local, r->nx, sizeof *x);
    if (!x) return false;
    for (int i = 0; i < r->nx; i++) {
        x[i] = TP_NONE;
        leaf[i] = NULL;
        if (!r->x[i]) continue;
        x[i] = tp__wrap(T, tp__buf_ref(r->xbuf[i]), &r->xv[i]);
        leaf[i] = x[i].node;
        if (!leaf[i]) return false;
        leaf[i]->wants_grad = r->x[i]->wants_grad && (r->wants & tp__bit(i));
    }
    tp_node *y = tp__node(T, call(T, r->replay, r->nx, x), "tp_checkpoint: replay");
    if (!y) return false;
    tp_buf *dy = tp__buf_ref(r->y[0]->grad_buf);
    if (!r->y[0]->kept) { /* the replay may reuse its buffer */
        tp__buf_unref(dy);
        r->y[0]->grad_buf = NULL;
    }
    return tp__add_grad(T, y, dy) && tp__walk(T, T->nrecs, s->nrecs);
}

static bool replay_backward(tp_tape *T, tp_rec *r)
{
    if (!versions_match(T, r)) return false;
    tp_node *local[TP_MAX_INPUTS], **leaf = tp__room(T, local, r->nx, sizeof *leaf);
    if (!leaf) return false;
    for (int i = 0; i < r->nx; i++) leaf[i] = NULL;
    const saved s = enter_replay(T, r);
    freeze_as_then(r->replay);
    bool ok = T->err.code == TP_OK && replay(T, r, leaf, &s);
    freeze_as_now(r->replay);
    for (int i = 0; i < r->nx; i++) {
        if (!leaf[i] || !leaf[i]->grad_buf) continue;
        tp_buf *g = leaf[i]->grad_buf;
        leaf[i]->grad_buf = NULL;
        /* unwanted: the function returned the input as it is */
        if (ok && r->x[i]->wants_grad && (r->wants & tp__bit(i)))
            ok = tp__add_grad(T, r->x[i], g);
        else
            tp__buf_unref(g);
    }
    leave_replay(T, &s);
    return ok;
}

/* ---- forward ---- */

/* Runs the function unrecorded, noting the parameters it reads. */
static tp_tensor first_run(tp_tape *T, tp_replay *p, int nx, const tp_tensor *x)
{
    tp_watch w = { .outer = T->watch, .born = T->next_gen };
    tp_tensor local[TP_MAX_INPUTS], *own = tp__room(T, local, nx, sizeof *own);
    if (!own) return TP_FAILED;
    tp_enter(T, NULL);
    for (int i = 0; i < nx; i++) own[i] = tp_given(x[i]) ? tp_detach(T, x[i]) : TP_NONE;
    T->watch = &w;
    const bool was = tp_record(T, false);
    const tp_tensor y = tp_leave(T, call(T, p, nx, own));
    tp_record(T, was);
    T->watch = w.outer;
    p->nparams = (int)w.params.n;
    p->params = tp__arena(T, (w.params.n + 1) * sizeof *p->params);
    p->wanted = tp__arena(T, w.params.n + 1);
    if (p->params && w.params.n) memcpy(p->params, w.params.at, w.params.n * sizeof *p->params);
    for (size_t i = 0; p->wanted && i < w.params.n; i++) p->wanted[i] = w.params.at[i]->wants_grad;
    free(w.params.at);
    return y;
}

static tp_rec *new_record(tp_tape *T, const tp_replay *p, int nx)
{
    const size_t n = (size_t)nx;
    tp_rec *r = tp__arena(T, sizeof *r);
    if (!r) return NULL;
    *r = (tp_rec){
        .nx = nx,
        .ny = 1,
        .visible = 1,
        .train = p->train,
        .x = tp__arena(T, n * sizeof *r->x),
        .y = tp__arena(T, sizeof *r->y),
        .xv = tp__arena(T, n * sizeof *r->xv),
        .yv = tp__arena(T, sizeof *r->yv),
        .xbuf = tp__arena(T, n * sizeof *r->xbuf),
        .ybuf = tp__arena(T, sizeof *r->ybuf),
        .version = tp__arena(T, (size_t)(p->nparams + 1) * sizeof *r->version),
        .replay = tp__arena(T, sizeof *r->replay),
    };
    if (T->err.code != TP_OK) return NULL;
    *r->replay = *p;
    r->replay->backward = replay_backward;
    return r;
}

static bool wants(const tp_replay *p, int nx, tp_node *const *x)
{
    for (int i = 0; i < nx; i++)
        if (x[i] && x[i]->wants_grad) return true;
    for (int i = 0; i < p->nparams; i++)
        if (p->params[i]->wants_grad) return true;
    return false;
}

/* Handles a result that the function neither received nor computed. Only constants are allowed,
 * since the record belongs to another op. */
static tp_tensor from_outside(tp_tape *T, const tp_node *result)
{
    if (!result->wants_grad) return tp__handle(result);
    return tp__fail(T, TP_E_NOGRAD,
                    "tp_checkpoint: the result wants a gradient and is a tensor from outside; pass "
                    "it as an argument of tp_checkpoint_n, or tp_detach it");
}

static tp_tensor run(tp_tape *T, tp_replay p, int nx, const tp_tensor *x)
{
    if (T->err.code != TP_OK) return TP_FAILED;
    if (nx < 0) return tp__fail(T, TP_E_VALUE, "tp_checkpoint: %d inputs", nx);
    if (!p.f && !p.fn)
        return tp__fail(T, TP_E_VALUE, "tp_checkpoint: NULL was given in place of a function");
    if (nx > 0 && !x)
        return tp__fail(T, TP_E_VALUE, "tp_checkpoint: NULL was given in place of %d inputs", nx);
    tp_node *local[TP_MAX_INPUTS], **in = tp__room(T, local, nx, sizeof *in);
    if (!in) return TP_FAILED;
    for (int i = 0; i < nx; i++) {
        in[i] = tp_given(x[i]) || x[i].gen ? tp__node(T, x[i], "tp_checkpoint: input") : NULL;
        if (T->err.code != TP_OK) return TP_FAILED;
    }
    if (!T->recording) return call(T, &p, nx, x);
    const uint64_t born = T->next_gen;
    const tp_tensor y = first_run(T, &p, nx, x);
    tp_node *result = tp__node(T, y, "tp_checkpoint: result");
    if (!result) return TP_FAILED;
    if (result->params || result->gen < born) return from_outside(T, result);
    for (int i = 0; i < nx; i++)
        if (in[i] && in[i]->grad_file)
            tp__mark_gradient(result, in[i]->grad_file, in[i]->grad_line);
    if (!wants(&p, nx, in)) return y;
    tp_rec *r = new_record(T, &p, nx);
    if (!r || !tp__push_rec(T, r)) return TP_FAILED;
    for (int i = 0; i < nx; i++) {
        if (!in[i]) continue;
        r->x[i] = in[i];
        if (in[i]->wants_grad) r->wants |= tp__bit(i);
        r->xv[i] = in[i]->view;
        r->xbuf[i] = tp__buf_ref(in[i]->buf);
    }
    for (int i = 0; i < p.nparams; i++) r->version[i] = tp__version(p.params[i]);
    r->y[0] = result;
    result->wants_grad = true;
    result->rec = T->nrecs - 1;
    return y;
}

tp_tensor tp_checkpoint(tp_tape *T, tp_fn f, const void *self, tp_tensor x)
{
    T = tp__some(T);
    const tp_replay p = { .f = f,
                          .self = self,
                          .seed = T->seed,
                          .offset = T->offset,
                          .train = T->train,
                          .compute = T->compute };
    return run(T, p, 1, &x);
}

tp_tensor tp_checkpoint_n(tp_tape *T, tp_fn_n f, const void *self, int nx, const tp_tensor *x)
{
    T = tp__some(T);
    const tp_replay p = { .fn = f,
                          .self = self,
                          .seed = T->seed,
                          .offset = T->offset,
                          .train = T->train,
                          .compute = T->compute };
    return run(T, p, nx, x);
}
