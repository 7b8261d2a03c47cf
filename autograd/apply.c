/* apply.c - applies an op: check, infer shapes, allocate, run, record. */
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>
#include <tapegrad/op.h>

#include "autograd/nodes.h"
#include "autograd/ops/op_inner.h"
#include "autograd/params.h"
#include "autograd/tape.h"
#include "tensor/geometry/elementwise.h"
#include "tensor/shape.h"

extern const tp_op tp_op_cast;

/* One application in progress. Lists have nx and ny items, on the stack or, if long, in the arena;
 * then the record takes over x and xv. */
typedef struct frame {
    const tp_op *op;
    int nx, ny, visible;
    tp_tensor *in; /* the inputs, in the compute dtype */
    tp_node **x;   /* NULL: absent */
    tp_view *xv, *yv;
    tp_buf **ybuf;
    tp_tensor *y; /* the visible outputs */
    tp_buf *work;
    bool view;
} frame;

/* The lists of an op with few inputs and outputs. */
typedef struct op_lists {
    tp_tensor in[TP_MAX_INPUTS], y[TP_MAX_OUTPUTS];
    tp_node *x[TP_MAX_INPUTS];
    tp_view xv[TP_MAX_INPUTS], yv[TP_MAX_OUTPUTS];
    tp_buf *ybuf[TP_MAX_OUTPUTS];
} op_lists;

/* y: the caller's list of visible outputs, or NULL. False: out of memory. */
static bool take_lists(tp_tape *T, frame *f, op_lists *l, tp_tensor *y)
{
    f->in = tp__room(T, l->in, f->nx, sizeof *f->in);
    f->x = tp__room(T, l->x, f->nx, sizeof *f->x);
    f->xv = tp__room(T, l->xv, f->nx, sizeof *f->xv);
    f->yv = tp__room(T, l->yv, f->ny, sizeof *f->yv);
    f->ybuf = tp__room(T, l->ybuf, f->ny, sizeof *f->ybuf);
    f->y = y ? y : tp__room(T, l->y, f->visible, sizeof *f->y);
    if (!f->in || !f->x || !f->xv || !f->yv || !f->ybuf || !f->y) return false;
    for (int i = 0; i < f->ny; i++) {
        f->yv[i] = (tp_view){ .ndim = 0 };
        f->ybuf[i] = NULL;
    }
    return true;
}

/* ---- errors that name the op ---- */

tp_code tp_fail(tp_infer *q, tp_code code, const char *fmt, ...)
{
    va_list ap;
    if (!q) return code;
    va_start(ap, fmt);
    tp__verr(&q->T->rule, code, fmt, ap);
    va_end(ap);
    return code;
}

/* Fails the tape with the op's name, the shape rule's message and the inputs. */
static void fail_rule(tp_tape *T, const tp_infer *q, const char *name)
{
    char text[TP_TEXT] = "";
    tp__append(text, sizeof text, "%s: %s", name, T->rule.text);
    for (int i = 0; i < q->nx && i < TP_MAX_INPUTS; i++) {
        tp__append(text, sizeof text, i == 0 ? "\n  inputs " : ", ");
        tp__print_view(text, sizeof text, &q->x[i]);
    }
    if (q->nx > TP_MAX_INPUTS) tp__append(text, sizeof text, " and %d more", q->nx - TP_MAX_INPUTS);
    tp__fail(T, T->rule.code, "%s", text);
}

/* ---- inputs ---- */

static void set_absent(tp_view *v)
{
    *v = (tp_view){ .ndim = -1 };
}

/* Notes the parameters that a checkpointed function reads. Fails for other outside tensors that
 * want a gradient, because they would silently lose it. */
static bool watch_input(tp_tape *T, const tp_op *op, int i, tp_node *n)
{
    if (!T->watch) return true;
    if (n->params) {
        for (tp_watch *w = T->watch; w; w = w->outer) {
            bool known = n->buffer;
            for (size_t k = 0; k < w->params.n && !known; k++) known = w->params.at[k] == n;
            if (!known && !tp__nodes_push(&w->params, n)) {
                tp__fail(T, TP_E_MEMORY, "tp_checkpoint: out of host memory");
                return false;
            }
        }
        return true;
    }
    if (!n->wants_grad || n->gen >= T->watch->born || (op->constant & tp__bit(i))) return true;
    tp__fail(T, TP_E_NOGRAD,
             "%s: input %d wants a gradient and reaches a checkpointed function from outside; pass "
             "it as an argument of tp_checkpoint_n, or tp_detach it",
             op->name, i);
    return false;
}

static bool take_inputs(tp_tape *T, frame *f)
{
    const tp_tensor *x = f->in;
    for (int i = 0; i < f->nx; i++) {
        if (!x[i].node && x[i].gen == 0 && (f->op->optional & tp__bit(i))) {
            f->x[i] = NULL;
            set_absent(&f->xv[i]);
            continue;
        }
        char what[64] = "";
        tp__append(what, sizeof what, "%.40s: input %d", f->op->name, i);
        tp_node *n = tp__node_with_values(T, x[i], what);
        if (!n || !watch_input(T, f->op, i, n)) return false;
        if (n->params && !tp__note_read(T, n->params)) return false;
        f->x[i] = n;
        f->xv[i] = n->view;
    }
    return true;
}

/* Replaces input i by its cast, which is recorded; tp_cast is above this file. */
static bool cast_input(tp_tape *T, frame *f, int i, tp_dtype to)
{
    const tp_cast_attr k = { to, f->xv[i].dtype };
    f->in[i] = tp_apply_n(T, &tp_op_cast, &k, 1, &f->in[i], 1, NULL);
    f->x[i] = tp__node(T, f->in[i], f->op->name);
    if (f->x[i]) f->xv[i] = f->x[i]->view;
    return f->x[i] != NULL;
}

static bool may_be_f32(const tp_op *op, int i)
{
    return op->exact & tp__bit(i);
}

/* TP_COMPUTES ops read the tape's compute dtype: parameters through P's bf16 shadow, tensors by a
 * recorded cast. */
static bool bring_to_compute(tp_tape *T, frame *f)
{
    for (int i = 0; i < f->nx; i++) {
        tp_node *n = f->x[i];
        if (!n || !tp_is_float(n->view.dtype) || n->view.dtype == T->compute) continue;
        if (may_be_f32(f->op, i) && n->view.dtype == TP_F32 && T->compute == TP_BF16) continue;
        if (n->params) {
            if (T->compute != TP_BF16 || n->view.dtype != TP_F32) continue; /* refused later */
            tp_err e = { 0 };
            f->xv[i].data = (void *)(uintptr_t)tp__params_shadow(n->params, n, &e);
            f->xv[i].dtype = TP_BF16;
            if (e.code != TP_OK) {
                tp__fail(T, e.code, "%s", e.text);
                return false;
            }
            continue;
        }
        if (T->compute == TP_F64 || n->view.dtype == TP_F64) continue;
        if (!cast_input(T, f, i, T->compute)) return false;
    }
    return true;
}

/* Other ops on a bf16 tape compute in the widest dtype of their tensors, to which the others are
 * cast. Parameters follow the tensors: TP_MIXES kernels read them in f32 beside bf16 data that come
 * first; others get a cast. */
static bool bring_together(tp_tape *T, frame *f)
{
    int first = -1;
    bool bf16 = false, f32 = false;
    for (int i = 0; i < f->nx; i++) {
        if (!f->x[i] || !tp_is_float(f->xv[i].dtype)) continue;
        if (first < 0) first = i;
        if (f->xv[i].dtype == TP_BF16) bf16 = true;
        if (f->xv[i].dtype == TP_F32 && !f->x[i]->params && !may_be_f32(f->op, i)) f32 = true;
    }
    for (int i = 0; i < f->nx && bf16; i++) {
        if (!f->x[i]) continue;
        const tp_dtype dt = f->xv[i].dtype;
        const bool mixes = i != first && tp__mixes(f->op, i);
        const bool follows = dt == TP_F32 && f->x[i]->params && !mixes && !may_be_f32(f->op, i);
        const tp_dtype to = f32 && dt == TP_BF16 ? TP_F32 : !f32 && follows ? TP_BF16 : dt;
        if (to != dt && !cast_input(T, f, i, to)) return false;
    }
    return true;
}

static bool bring_inputs(tp_tape *T, frame *f)
{
    if (f->op->flags & TP_COMPUTES) return bring_to_compute(T, f);
    return T->compute != TP_BF16 || bring_together(T, f);
}

/* ---- outputs ---- */

static void check_output(tp_infer *q, tp_view *y)
{
    const tp_shape s = tp__view_shape(y);
    if (y->ndim < 0 || !tp__numel(&s, &y->numel))
        tp_fail(q, TP_E_SHAPE, "the result is too large or has too many axes");
}

static bool make_outputs(tp_tape *T, frame *f, int64_t view_at)
{
    if (view_at >= 0) {
        f->view = true;
        f->yv[0].data =
            f->xv[0].numel || f->yv[0].numel
                ? (char *)f->xv[0].data + (size_t)view_at * tp_dtype_size(f->xv[0].dtype)
                : NULL;
        f->ybuf[0] = tp__buf_ref(f->x[0]->buf);
        return true;
    }
    for (int i = 0; i < f->ny; i++) {
        f->ybuf[i] = tp__alloc(T, tp__view_bytes(&f->yv[i]), f->op->name);
        if (!f->ybuf[i]) return false;
        f->yv[i].data = f->ybuf[i]->data;
    }
    return true;
}

static void drop_outputs(frame *f)
{
    for (int i = 0; i < f->ny; i++) tp__buf_unref(f->ybuf[i]);
    tp__buf_unref(f->work);
}

/* ---- recording ---- */

bool tp__push_rec(tp_tape *T, tp_rec *r)
{
    if (!tp_reserve(&T->recs, &T->recs_cap, (size_t)T->nrecs, 1, sizeof(tp_rec *))) {
        tp__fail(T, TP_E_MEMORY, "tape: out of host memory for its bookkeeping");
        return false;
    }
    r->path = tp__scope_path(T);
    r->file = T->file;
    r->line = T->line;
    T->recs[T->nrecs++] = r;
    return true;
}

static bool any_wants_grad(const frame *f)
{
    for (int i = 0; i < f->nx; i++)
        if (f->x[i] && f->x[i]->wants_grad && !(f->op->constant & tp__bit(i))) return true;
    return false;
}

/* Takes a list from the memory at *at, as a copy of `from` unless NULL. */
static void *cut(char **at, const void *from, size_t bytes)
{
    void *p = *at;
    if (from && bytes) memcpy(p, from, bytes);
    *at += tp__arena_bytes(bytes);
    return p;
}

/* Returns a new record and its lists, in one arena piece. */
static tp_rec *new_record(tp_tape *T, const frame *f, const tp_call *c)
{
    const bool many = f->nx > TP_MAX_INPUTS; /* x and xv are in the arena already */
    const size_t nx = (size_t)f->nx, ny = (size_t)f->ny, nodes = nx * sizeof(tp_node *);
    const size_t attr = c->attr ? f->op->attr_size : 0, views = nx * sizeof *f->xv;
    const size_t bytes =
        tp__arena_bytes(sizeof(tp_rec)) + tp__arena_bytes(attr) +
        (many ? 0 : tp__arena_bytes(nodes) + tp__arena_bytes(views)) +
        tp__arena_bytes(nx * sizeof(tp_buf *)) + tp__arena_bytes(nx * sizeof(uint64_t)) +
        tp__arena_bytes(ny * sizeof *f->yv) + 2 * tp__arena_bytes(ny * sizeof(void *));
    char *at = tp__arena(T, bytes);
    if (!at) return NULL;
    tp_rec *r = cut(&at, NULL, sizeof *r);
    r->attr = attr ? cut(&at, c->attr, attr) : NULL;
    r->x = many ? f->x : cut(&at, f->x, nodes);
    r->y = cut(&at, NULL, ny * sizeof *r->y);
    r->xv = many ? f->xv : cut(&at, f->xv, views);
    r->yv = cut(&at, f->yv, ny * sizeof *r->yv);
    r->xbuf = cut(&at, NULL, nx * sizeof *r->xbuf);
    r->ybuf = cut(&at, NULL, ny * sizeof *r->ybuf);
    r->version = cut(&at, NULL, nx * sizeof *r->version);
    return r;
}

/* Appends the record that backward reads. It references the saved buffers only. */
static bool record(tp_tape *T, frame *f, const tp_call *c, uint32_t passes)
{
    tp_rec *r = new_record(T, f, c);
    if (!r) return false;
    r->op = f->op;
    r->rng = c->rng;
    r->real = c->real;
    r->train = c->train;
    r->passes = f->view && f->xv[0].numel == f->yv[0].numel ? 1 : passes;
    r->nx = f->nx;
    r->ny = f->ny;
    r->visible = f->visible;
    r->view = f->view;
    const uint32_t saves = T->saves_all ? UINT32_MAX : f->op->saves;
    if (!tp__push_rec(T, r)) return false;
    for (int i = 0; i < f->nx; i++) {
        if (f->x[i]) r->version[i] = tp__version(f->x[i]);
        if (f->x[i] && f->x[i]->wants_grad) r->wants |= tp__bit(i);
        const bool saved = f->x[i] && (saves & tp__bit(i));
        const bool recompute = saved && f->x[i]->transient && i < TP_MAX_INPUTS - 1;
        if (recompute) r->recompute |= tp__bit(i);
        if (saved && !recompute)
            r->xbuf[i] = tp__buf_ref(f->x[i]->buf);
        else
            r->xv[i].data = NULL;
    }
    for (int i = 0; i < f->ny; i++) {
        if (saves & tp__bit(i) << TP_MAX_INPUTS)
            r->ybuf[i] = tp__buf_ref(f->ybuf[i]);
        else
            r->yv[i].data = NULL;
    }
    return true;
}

/* Returns an input derived from tp_grad, unless this op's results are meant to be constants. */
static const tp_node *gradient_input(const tp_tape *T, const frame *f)
{
    for (int i = 0; (T->recording || T->watch) && i < f->nx; i++)
        if (f->x[i] && f->x[i]->grad_file) return f->x[i];
    return NULL;
}

/* Creates the visible nodes, which take over their buffers; drops the hidden outputs. */
static bool publish(tp_tape *T, frame *f, bool recorded)
{
    tp_rec *r = recorded ? T->recs[T->nrecs - 1] : NULL;
    const tp_node *g = gradient_input(T, f);
    bool ok = true;
    for (int i = 0; i < f->visible; i++) {
        f->y[i] = tp__wrap(T, f->ybuf[i], &f->yv[i]);
        f->ybuf[i] = NULL;
        tp_node *n = f->y[i].node;
        if (n && g && tp_is_float(n->view.dtype)) tp__mark_gradient(n, g->grad_file, g->grad_line);
        if (!n) {
            ok = false;
        } else if (r) {
            n->wants_grad = tp_is_float(n->view.dtype);
            n->rec = T->nrecs - 1;
            r->y[i] = n;
        }
    }
    return ok;
}

/* ---- one application ---- */

static tp_tensor all_failed(int ny, tp_tensor *y)
{
    for (int i = 0; y && i < ny; i++) y[i] = TP_FAILED;
    return TP_FAILED;
}

/* Fails if a gradient is wanted but the op has no backward; full views need none. */
static bool check_gradient(tp_tape *T, const frame *f, int64_t view_at, bool wants)
{
    if (!wants || (f->op->flags & TP_NOT_DIFFERENTIABLE)) return true;
    if (view_at >= 0 && f->xv[0].numel == f->yv[0].numel) return true;
    if (f->op->backward[T->dev->be->kind]) return true;
    tp__fail(T, TP_E_NOGRAD, "%s: an input wants a gradient, but the op has no backward on %s",
             f->op->name, T->dev->name);
    return false;
}

static bool infer(tp_tape *T, frame *f, tp_infer *q, tp_dtype *real)
{
    tp_err *e = &T->rule;
    e->code = TP_OK;
    const tp_code code = tp__check_dtypes(q, f->op, f->x, real) ? f->op->shape(q) : e->code;
    for (int i = 0; i < f->ny && code == TP_OK && e->code == TP_OK; i++) check_output(q, &f->yv[i]);
    if (code != TP_OK) tp__err(e, code, "%s", tp_code_text(code));
    if (e->code != TP_OK) fail_rule(T, q, f->op->name);
    if (*real == TP_NDTYPES) *real = f->yv[0].dtype == TP_F64 ? TP_F64 : TP_F32;
    return T->err.code == TP_OK;
}

static bool execute(tp_tape *T, frame *f, const tp_infer *q, tp_call *c)
{
    if (!make_outputs(T, f, q->view_at)) return false;
    if (f->view) return true;
    if (!f->op->forward[T->dev->be->kind]) {
        tp__fail(T, TP_E_NOKERNEL, "%s: no kernel for %s", f->op->name, T->dev->name);
        return false;
    }
    if (q->draws) T->offset++;
    if (tp__all_empty(f->yv, f->visible)) return true;
    const tp_work work = f->op->work[T->dev->be->kind];
    if (work) {
        f->work = tp__alloc(T, work(c), f->op->name);
        if (!f->work) return false;
        c->work = f->work->data;
    }
    return tp__run_op(T, c, f->op, false) == TP_OK &&
           (!T->check_finite || tp__check_results(T, f->op->name, f->nx, f->xv, f->visible, f->yv));
}

static void call_observer(tp_tape *T, const frame *f, const void *attr)
{
    const tp_observer observer = T->observer;
    const char *path = tp__scope_path(T);
    const tp_seen s = { f->op, attr, path ? path : "", f->nx, f->visible, f->in, f->y };
    T->observer = NULL;
    observer(T->observer_env, T, &s);
    T->observer = observer;
}

/* Full views of a transient tensor and its casts are transient, too. */
static bool stays_transient(const tp_tape *T, const frame *f)
{
    return f->nx == 1 && f->x[0]->transient && !T->saves_all &&
           (f->op == &tp_op_cast || (f->view && f->xv[0].numel == f->yv[0].numel));
}

/* Checks, infers, runs and records; the lists are taken. */
static bool apply(tp_tape *T, frame *f, const void *attr)
{
    if (!take_inputs(T, f)) return false;
    tp_infer q = { .T = T,
                   .attr = attr,
                   .nx = f->nx,
                   .ny = f->ny,
                   .x = f->xv,
                   .y = f->yv,
                   .train = T->train,
                   .view_at = -1,
                   .draws = f->op->flags & TP_RANDOM };
    tp_call c = { .dev = T->dev,
                  .attr = attr,
                  .rng = { T->seed, T->offset },
                  .train = T->train,
                  .nx = f->nx,
                  .ny = f->ny,
                  .x = f->xv,
                  .y = f->yv,
                  .replay = T->replaying };
    T->rule.code = TP_OK;
    if (!tp__check_taken(&q, f->op)) return fail_rule(T, &q, f->op->name), false;
    if (!bring_inputs(T, f)) return false;
    const bool wants = T->recording && any_wants_grad(f);
    const bool keep = wants && !(f->op->flags & TP_NOT_DIFFERENTIABLE);
    const bool ok = infer(T, f, &q, &c.real) && check_gradient(T, f, q.view_at, wants) &&
                    execute(T, f, &q, &c) && (!keep || record(T, f, &c, q.passes)) &&
                    publish(T, f, keep);
    if (ok && keep && stays_transient(T, f)) tp__mark_transient(T, f->y[0].node);
    drop_outputs(f);
    if (ok && T->observer && !T->replaying) call_observer(T, f, attr);
    return ok;
}

static const char *op_error(const tp_op *op)
{
    return !op         ? "NULL was given in place of an op"
           : !op->name ? "the op has no name"
                       : "the op has no shape rule (.shape)";
}

tp_tensor tp_apply_n(tp_tape *T, const tp_op *op, const void *attr, int nx, const tp_tensor *x,
                     int ny, tp_tensor *y)
{
    op_lists l;
    if (!tp_ok(T)) return all_failed(ny, y);
    T->ops++;
    if (!op || !op->name || !op->shape) {
        tp__fail(T, TP_E_VALUE, "tp_apply: %s", op_error(op));
        return all_failed(ny, y);
    }
    frame f = { .op = op, .nx = nx, .ny = op->ny < 0 ? ny : op->ny, .visible = ny };
    if (nx < 0 || ny < 1 || ny > f.ny || (op->nx >= 0 && nx != op->nx)) {
        tp__fail(T, TP_E_VALUE, "%s: called with %d inputs and %d outputs", op->name, nx, ny);
        return all_failed(ny, y);
    }
    if (nx > 0 && !x) {
        tp__fail(T, TP_E_VALUE, "%s: NULL was given in place of %d inputs", op->name, nx);
        return all_failed(ny, y);
    }
    if (ny > 1 && !y)
        return tp__fail(T, TP_E_VALUE, "%s: NULL was given in place of room for %d results",
                        op->name, ny);
    const tp_arena_mark mark = tp__arena_at(T);
    const int64_t records = T->nrecs;
    bool ok = take_lists(T, &f, &l, y);
    if (ok && nx > 0) memcpy(f.in, x, (size_t)nx * sizeof *x);
    ok = ok && apply(T, &f, attr);
    const tp_tensor first = ok ? f.y[0] : TP_FAILED;
    if (T->nrecs == records && (nx > TP_MAX_INPUTS || f.ny > TP_MAX_OUTPUTS))
        tp__arena_back(T, mark);
    return ok ? first : all_failed(ny, y);
}
