/* backward.c - the reverse pass: walks the records back from the loss and releases what they saved.
 *
 * A gradient's buffer is allocated for its first contribution, which the kernel writes. Later ones
 * are added, by the kernel if the op can (TP_ACCUMULATES), else through a temporary. If an input's
 * gradient equals the result's (tp_infer.passes), the nodes share one buffer; a node that
 * accumulates into a shared gradient copies it first. Parameters do not share gradients, since
 * clipping works in place: they take the result's buffer if nothing else needs it, else a copy. */
#include <string.h>

#include "autograd/nodes.h"
#include "autograd/ops/op_inner.h"
#include "autograd/params.h"
#include "autograd/tape.h"

TP_KERNEL(accumulate);
static const tp_kernel accumulate[TP_NBACKENDS] = TP_KERNELS(accumulate);

/* ---- gradients of nodes ---- */

/* to += from, elementwise. */
static bool add_views(tp_tape *T, const tp_view *to, const tp_view *from)
{
    tp_view dx = *to;
    const tp_call c = { .dev = T->dev,
                        .nx = 1,
                        .real = to->dtype == TP_F64 ? TP_F64 : TP_F32,
                        .x = from,
                        .dx = &dx,
                        .add = 1 };
    return tp__run(T, &c, accumulate[T->dev->be->kind], true, "accumulate") == TP_OK;
}

/* True if the gradient of n can be accumulated in place. Nodes never share a parameter's; handles
 * and recordings may, and see the sum. */
static bool owns_grad(const tp_node *n)
{
    return n->params || tp__buf_alone(n->grad_buf);
}

/* Sets n's gradient to a copy of g. */
static bool take_copy(tp_tape *T, tp_node *n, const tp_buf *g)
{
    const size_t bytes = tp__view_bytes(&n->view);
    tp_buf *own = tp__alloc(T, bytes, "backward");
    if (!own) return false;
    T->dev->be->copy(T->dev, own->data, g->data, bytes);
    tp__set_grad(n, own);
    return true;
}

bool tp__add_grad(tp_tape *T, tp_node *n, tp_buf *g)
{
    bool ok = true;
    tp_view from = n->view;
    from.data = g->data;
    if (!n->grad_buf && n->params && !tp__buf_alone(g)) {
        ok = take_copy(T, n, g);
    } else if (!n->grad_buf) {
        tp__set_grad(n, tp__buf_ref(g));
    } else if (!owns_grad(n) && tp__buf_alone(g)) { /* g has no other user */
        ok = add_views(T, &from, &n->grad);
        tp__set_grad(n, tp__buf_ref(g));
    } else {
        ok = (owns_grad(n) || take_copy(T, n, n->grad_buf)) && add_views(T, &n->grad, &from);
    }
    n->fresh = ok;
    tp__buf_unref(g);
    return ok;
}

/* ---- one record ---- */

/* Destinations of the gradients of a record's inputs; lists of nx. */
typedef struct sinks {
    tp_view *dx;
    tp_buf **temp; /* added to the gradient afterwards */
    uint32_t add;
} sinks;

/* The lists of a record with few inputs and outputs. */
typedef struct record_lists {
    tp_view dx[TP_MAX_INPUTS], dy[TP_MAX_OUTPUTS];
    tp_buf *temp[TP_MAX_INPUTS], *zeros[TP_MAX_OUTPUTS];
} record_lists;

/* True if an earlier input is the same node: this call already writes its gradient. */
static bool claimed(const tp_rec *r, int i)
{
    for (int k = 0; k < i; k++)
        if (r->x[k] == r->x[i]) return true;
    return false;
}

/* Does input i get a gradient from this record? */
static bool wants_grad(const tp_rec *r, int i)
{
    const tp_node *n = r->x[i];
    return n && n->wants_grad && (r->wants & tp__bit(i)) && tp_is_float(n->view.dtype) &&
           !(r->op->constant & tp__bit(i));
}

static bool open_sink(tp_tape *T, const tp_rec *r, int i, sinks *s)
{
    tp_node *n = r->x[i];
    s->dx[i] = (tp_view){ .ndim = -1 };
    if (!n) return true;
    s->dx[i] = n->view;
    s->dx[i].data = NULL;
    if (!wants_grad(r, i) || (r->passes & tp__bit(i))) return true;
    const bool flagged = i < TP_MAX_INPUTS - (r->nx > TP_MAX_INPUTS); /* bit not shared */
    const bool adds = (r->op->flags & TP_ACCUMULATES) && n->grad_buf && flagged && owns_grad(n);
    if (adds && !claimed(r, i)) {
        s->add |= 1u << i;
        s->dx[i].data = n->grad.data;
        return true;
    }
    tp_buf *b = tp__alloc(T, tp__view_bytes(&n->view), r->op->name);
    if (!b) return false;
    s->dx[i].data = b->data;
    s->temp[i] = b;
    return true;
}

/* Returns the result's gradient for input i: the result's own reference, if nothing needs it
 * afterwards. */
static tp_buf *pass_on(const tp_rec *r, int i)
{
    tp_node *y = r->y[0];
    tp_buf *g = tp__buf_ref(y->grad_buf);
    const bool last = r->nx <= TP_MAX_INPUTS && r->passes >> i == 1;
    if (last && !y->kept) tp__set_grad(y, NULL);
    return g;
}

/* Gives the nodes their gradients, written by the kernel or passed on unchanged. */
static bool close_sinks(tp_tape *T, const tp_rec *r, sinks *s, bool ok)
{
    for (int i = 0; i < r->nx; i++) {
        tp_node *n = r->x[i];
        if (s->temp[i]) {
            if (ok)
                ok = tp__add_grad(T, n, s->temp[i]);
            else
                tp__buf_unref(s->temp[i]);
        } else if (ok && (r->passes & tp__bit(i)) && wants_grad(r, i)) {
            ok = tp__add_grad(T, n, pass_on(r, i));
        } else if (ok && n && s->dx[i].data) {
            n->fresh = true;
        }
    }
    return ok;
}

/* Gathers the visible outputs' gradients; zeros for unused outputs. */
static bool gather_dy(tp_tape *T, const tp_rec *r, tp_view *dy, tp_buf **zeros)
{
    for (int k = 0; k < r->ny; k++) {
        dy[k] = r->yv[k];
        dy[k].data = NULL;
        if (k >= r->visible) continue;
        tp_node *n = r->y[k];
        if (n && n->grad_buf) {
            dy[k] = n->grad;
            continue;
        }
        const size_t bytes = tp__view_bytes(&r->yv[k]);
        zeros[k] = tp__alloc(T, bytes, r->op->name);
        if (!zeros[k]) return false;
        T->dev->be->zero(T->dev, zeros[k]->data, bytes);
        dy[k].data = zeros[k]->data;
    }
    return true;
}

/* Does the kernel have any gradient elements to write? */
static bool any_sink(const tp_rec *r, const sinks *s)
{
    for (int i = 0; i < r->nx; i++)
        if (s->dx[i].data && s->dx[i].numel > 0) return true;
    return false;
}

/* Zeroes the gradients of empty results, except those being accumulated. */
static void zero_sinks(tp_tape *T, const tp_rec *r, const sinks *s)
{
    for (int i = 0; i < r->nx; i++)
        if (s->temp[i]) T->dev->be->zero(T->dev, s->dx[i].data, tp__view_bytes(&s->dx[i]));
}

static bool run_record(tp_tape *T, tp_rec *r, const tp_view *dy, record_lists *l)
{
    sinks s = { .dx = tp__room(T, l->dx, r->nx, sizeof *s.dx),
                .temp = tp__room(T, l->temp, r->nx, sizeof *s.temp) };
    if (!s.dx || !s.temp) return false;
    for (int i = 0; i < r->nx; i++) {
        s.dx[i].data = NULL;
        s.temp[i] = NULL;
    }
    bool ok = tp__versions_match(T, r) && tp__restore(T, r, r->op->saves);
    for (int i = 0; ok && i < r->nx; i++) ok = open_sink(T, r, i, &s);
    tp_call c = { .dev = T->dev,
                  .attr = r->attr,
                  .rng = r->rng,
                  .train = r->train,
                  .nx = r->nx,
                  .ny = r->ny,
                  .real = r->real,
                  .x = r->xv,
                  .y = r->yv,
                  .dy = dy,
                  .dx = s.dx,
                  .add = s.add,
                  .replay = T->replaying };
    const tp_work work = r->op->work[T->dev->be->kind];
    const bool empty = tp__all_empty(r->yv, r->visible);
    const bool runs = ok && !empty && any_sink(r, &s);
    if (ok && empty) zero_sinks(T, r, &s);
    tp_buf *scratch = NULL;
    if (runs && work) {
        scratch = tp__alloc(T, work(&c), r->op->name);
        ok = scratch != NULL;
        if (ok) c.work = scratch->data;
    }
    if (ok && runs)
        ok = tp__run_op(T, &c, r->op, true) == TP_OK &&
             (!T->check_finite || tp__check_gradients(T, r, dy, s.dx));
    tp__buf_unref(scratch);
    return close_sinks(T, r, &s, ok);
}

/* Gathers the outputs' gradients and computes the inputs'. */
static bool run_backward(tp_tape *T, tp_rec *r)
{
    record_lists l;
    const tp_arena_mark mark = tp__arena_at(T);
    tp_view *dy = tp__room(T, l.dy, r->ny, sizeof *dy);
    tp_buf **zeros = tp__room(T, l.zeros, r->ny, sizeof *zeros);
    bool ok = dy && zeros;
    T->path = r->path ? r->path : "";
    for (int k = 0; ok && k < r->ny; k++) zeros[k] = NULL;
    ok = ok && gather_dy(T, r, dy, zeros) && run_record(T, r, dy, &l);
    for (int k = 0; zeros && k < r->ny; k++) tp__buf_unref(zeros[k]);
    T->path = NULL;
    tp__arena_back(T, mark);
    return ok;
}

static bool reached(const tp_rec *r)
{
    for (int k = 0; k < r->visible; k++)
        if (r->y[k] && r->y[k]->fresh) return true;
    return false;
}

static void release_output_grads(tp_rec *r)
{
    for (int k = 0; k < r->visible; k++) {
        tp_node *n = r->y[k];
        if (!n) continue;
        n->fresh = false;
        if (!n->kept) tp__set_grad(n, NULL);
    }
}

static bool backward_record(tp_tape *T, tp_rec *r)
{
    if (r->done) {
        tp__fail(T, TP_E_STATE,
                 "tp_backward: %s was differentiated before; a second backward over the same "
                 "results is not possible",
                 r->op ? r->op->name : "tp_checkpoint");
        return false;
    }
    r->done = true;
    bool ok;
    if (r->replay) {
        ok = r->replay->backward(T, r);
    } else {
        ok = run_backward(T, r);
    }
    release_output_grads(r);
    tp__rec_release(r);
    return ok;
}

/* ---- hooks: called when a parameter's gradient is final, after its last use ---- */

/* A recording calls none: its kernels run later. */
static bool has_hook(const tp_tape *T, const tp_params *P)
{
    return P && (P->hook || (P->follower && !T->dev->capturing));
}

typedef void (*use_fn)(tp_node *param);

static void each_use(const tp_rec *r, use_fn f)
{
    for (int i = 0; i < r->nx; i++)
        if (r->x[i] && r->x[i]->params) f(r->x[i]);
    for (int i = 0; r->replay && i < r->replay->nparams; i++) f(r->replay->params[i]);
}

static void no_uses(tp_node *p)
{
    p->pending = 0;
}
static void one_use(tp_node *p)
{
    p->pending++;
}

static void passed_use(tp_node *p)
{
    tp_params *P = p->params;
    if (--p->pending > 0) return;
    if (p->fresh && P->hook) {
        p->fresh = false;
        P->hook(P->hook_env, P, tp__handle(p), P->entries[p->index].name, P->backwards + 1);
    }
    if (P->follower && !P->dev->capturing) P->follower->passed(P->exchange, p);
}

static bool any_hook(const tp_tape *T)
{
    for (int i = 0; i < T->nreads; i++)
        if (has_hook(T, tp__set_read(T, i))) return true;
    return false;
}

static void begin_following(tp_tape *T)
{
    for (int i = 0; i < T->nreads; i++) {
        const tp_params *P = tp__set_read(T, i);
        if (P && P->follower && !T->dev->capturing) P->follower->begins(P->exchange);
    }
}

/* ---- the walk ---- */

bool tp__walk(tp_tape *T, int64_t from, int64_t to)
{
    const bool hooks = !T->replaying && any_hook(T);
    for (int64_t i = to; hooks && i < from; i++) each_use(T->recs[i], no_uses);
    for (int64_t i = to; hooks && i < from; i++) each_use(T->recs[i], one_use);
    if (hooks) begin_following(T);
    for (int64_t i = from - 1; i >= to; i--) {
        tp_rec *r = T->recs[i]; /* a replay may move T->recs, not the record */
        if (reached(r) && !backward_record(T, r)) return false;
        if (hooks) each_use(r, passed_use);
    }
    return true;
}

/* Drops the partial gradients of a walk that stopped midway. */
static void drop_unfinished(tp_tape *T)
{
    for (size_t i = 0; i < T->used.n; i++) {
        tp__set_grad(T->used.at[i], NULL);
        T->used.at[i]->fresh = false;
    }
}

/* Marks the gradients of all sets read incomplete, so that tp_step refuses them. */
static void poison(tp_tape *T)
{
    for (int i = 0; i < T->nreads; i++) {
        tp_params *P = tp__set_read(T, i);
        if (P) tp__err(&P->grad_err, T->err.code, "%s", T->err.text);
    }
}

static bool seed_loss(tp_tape *T, tp_tensor loss)
{
    tp_node *n = tp__node(T, loss, "tp_backward: loss");
    if (!n) return false;
    if (n->grad_file) {
        tp__fail(
            T, TP_E_NOGRAD,
            "tp_backward: the loss is made of the gradient that tp_grad returned at %s:%d; that is "
            "a constant, as there are no second derivatives, and backward would leave out what "
            "depends on it: compute it with ops instead (docs/guide/second-derivatives.md shows "
            "how), or pass it through tp_detach if a constant is meant",
            n->grad_file, n->grad_line);
        return false;
    }
    if (n->view.numel != 1 || !tp_is_float(n->view.dtype)) {
        tp__fail(T, TP_E_SHAPE,
                 "tp_backward: the loss must be one floating number; it has %lld "
                 "elements of %s (reduce it first)",
                 (long long)n->view.numel, tp_dtype_name(n->view.dtype));
        return false;
    }
    if (!n->wants_grad || n->params) {
        tp__fail(T, TP_E_NOGRAD,
                 "tp_backward: the loss depends on no parameter or input that "
                 "wants a gradient (is recording off, "
                 "or everything frozen or detached?)");
        return false;
    }
    tp_buf *g = tp__alloc(T, tp_dtype_size(n->view.dtype), "tp_backward");
    if (!g) return false;
    tp__fill(T->dev, &(tp_view){ .data = g->data, .dtype = n->view.dtype, .numel = 1 }, 1.0);
    if (n->rec != TP_NO_REC && T->recs[n->rec]->done) {
        tp__buf_unref(g);
        tp__fail(T, TP_E_STATE, "tp_backward: this loss was differentiated before");
        return false;
    }
    return tp__add_grad(T, n, g);
}

void tp_backward(tp_tape *T, tp_tensor loss)
{
    T = tp__some(T);
    bool ok = T->err.code == TP_OK && seed_loss(T, loss);
    if (ok && !tp__walk(T, T->nrecs, 0)) {
        drop_unfinished(T);
        ok = false;
    }
    if (!ok) {
        poison(T);
        return;
    }
    for (int i = 0; i < T->nreads; i++) {
        tp_params *P = tp__set_read(T, i);
        if (P) P->backwards++;
    }
}

tp_tensor tp_grad(tp_tape *T, tp_tensor x)
{
    tp_node *n = tp__node(T, x, "tp_grad");
    if (!n) return TP_FAILED;
    if (!n->grad_buf)
        return tp__fail(T, TP_E_STATE,
                        "tp_grad: no gradient here; it exists after tp_backward for parameters, "
                        "for inputs and for tensors that were kept with tp_keep before");
    const tp_tensor g = tp__wrap(T, tp__buf_ref(n->grad_buf), &n->grad);
    if (g.node) tp__mark_gradient(g.node, T->file, T->line);
    return g;
}
