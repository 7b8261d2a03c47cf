/* run_kernel.c - runs one kernel. On the CPU, widens bf16 inputs to f32 and rounds bf16 results, so
 * that only kernels of TP_TAKES_BF16 ops see bf16. */
#include <string.h>

#include "autograd/tape.h"
#include "tensor/bf16.h"

/* The f32 copy that replaces a bf16 view while a CPU kernel runs. */
typedef struct stand_in {
    tp_view *view;  /* the call's view, now f32 */
    void *original; /* its bf16 data            */
    tp_buf *buf;
    bool in, out;
} stand_in;

tp_code tp_cpu_bf16_widen(const tp_call *c); /* cpu/bf16.c */
tp_code tp_cpu_bf16_round(const tp_call *c);

/* Converts n elements by kernel k. */
static void convert(tp_device *D, tp_kernel k, void *from, void *to, int64_t n)
{
    const tp_view x = { .data = from, .numel = n };
    tp_view y = { .data = to, .numel = n };
    (void)tp__call(k, &(tp_call){ .dev = D, .nx = 1, .ny = 1, .real = TP_F32, .x = &x, .y = &y });
}

static bool widen(tp_tape *T, tp_view *views, int n, bool in, bool out, stand_in *s, int *ns,
                  const char *name)
{
    for (int i = 0; i < n; i++) {
        tp_view *v = &views[i];
        if (tp_absent(v) || v->dtype != TP_BF16) continue;
        v->dtype = TP_F32;
        if (!v->data) continue;
        tp_buf *b = tp__alloc(T, (size_t)v->numel * sizeof(float), name);
        if (!b) return false;
        s[(*ns)++] = (stand_in){ v, v->data, b, in, out };
        if (in && !T->dev->dry) convert(T->dev, tp_cpu_bf16_widen, v->data, b->data, v->numel);
        v->data = b->data;
    }
    return true;
}

/* Calls may have no inputs or no results (memcpy must not get NULL). */
static void copy_views(tp_view *to, const tp_view *from, int n)
{
    if (n > 0) memcpy(to, from, (size_t)n * sizeof *to);
}

/* The lists of a call, and a stand-in for each view. */
typedef struct copies {
    tp_view *x, *y, *dy, *dx;
    stand_in *s;
} copies;

static tp_code run_in(tp_tape *T, const tp_call *c, tp_kernel k, bool backward, const char *name,
                      const copies *l)
{
    tp_view *x = l->x, *y = l->y, *dy = l->dy, *dx = l->dx;
    stand_in *s = l->s;
    int n = 0;
    tp_call w = *c;
    copy_views(x, c->x, c->nx);
    copy_views(y, c->y, c->ny);
    w.x = x;
    w.y = y;
    bool ok = widen(T, x, c->nx, true, false, s, &n, name) &&
              widen(T, y, c->ny, backward, !backward, s, &n, name);
    if (ok && backward) {
        copy_views(dy, c->dy, c->ny);
        copy_views(dx, c->dx, c->nx);
        w.dy = dy;
        w.dx = dx;
        ok = widen(T, dy, c->ny, true, false, s, &n, name) &&
             widen(T, dx, c->nx, c->add != 0, true, s, &n, name);
    }
    const tp_code code = ok ? tp__call(k, &w) : T->err.code;
    for (int i = 0; i < n; i++) {
        if (code == TP_OK && s[i].out && !T->dev->dry)
            convert(T->dev, tp_cpu_bf16_round, s[i].view->data, s[i].original, s[i].view->numel);
        tp__buf_unref(s[i].buf);
    }
    return code;
}

/* Runs a CPU kernel in f32 on a call with bf16 views; results are rounded to nearest even. */
static tp_code run_widened(tp_tape *T, const tp_call *c, tp_kernel k, bool backward,
                           const char *name)
{
    tp_view x[TP_MAX_INPUTS], y[TP_MAX_OUTPUTS], dy[TP_MAX_OUTPUTS], dx[TP_MAX_INPUTS];
    stand_in s[2 * (TP_MAX_INPUTS + TP_MAX_OUTPUTS)];
    const tp_arena_mark mark = tp__arena_at(T);
    const int most = c->nx > c->ny ? c->nx : c->ny;
    if (most <= TP_MAX_INPUTS) return run_in(T, c, k, backward, name, &(copies){ x, y, dy, dx, s });
    const size_t n = (size_t)most, bytes = n * sizeof *x;
    const copies l = { tp__arena(T, bytes), tp__arena(T, bytes), tp__arena(T, bytes),
                       tp__arena(T, bytes), tp__arena(T, 4 * n * sizeof *s) };
    const bool ok = l.x && l.y && l.dy && l.dx && l.s;
    const tp_code code = ok ? run_in(T, c, k, backward, name, &l) : T->err.code;
    tp__arena_back(T, mark);
    return code;
}

/* ---- elementwise ops: stand-ins of a few thousand elements ---- */

enum { PIECE = 4096 }; /* elements of a part: stand-ins stay in cache */

typedef struct parts {
    const tp_call *c;
    tp_kernel k;
    bool backward;
    int64_t n; /* elements of every view */
    char *room;
    size_t thread; /* bytes of a thread's stand-ins */
} parts;

/* All views have n elements? */
static bool all_have(const tp_view *v, int nv, int64_t n)
{
    for (int i = 0; i < nv; i++)
        if (!tp_absent(&v[i]) && v[i].numel != n) return false;
    return true;
}

/* True if the call can be cut. Sums onto repeated operands need scratch: their sizes differ. */
static bool can_be_cut(const tp_call *c, const tp_op *op, bool backward)
{
    if (!op || !(op->flags & TP_ELEMENTWISE) || (backward && op->work[TP_CPU])) return false;
    const int64_t n = c->y[0].numel;
    return c->nx <= TP_MAX_INPUTS && c->ny == 1 && all_have(c->x, c->nx, n) &&
           (!backward || all_have(c->dx, c->nx, n));
}

/* Elements at .. at + n of a view; in bf16, of their stand-in at *room. */
static tp_view part_of(const parts *p, const tp_view *v, int64_t at, int64_t n, bool in,
                       float **room)
{
    tp_view w = *v;
    if (tp_absent(v)) return w;
    w.ndim = 1;
    w.dim[0] = w.numel = n;
    if (v->dtype == TP_BF16) w.dtype = TP_F32;
    if (!v->data) return w;
    w.data = (char *)v->data + (size_t)at * tp_dtype_size(v->dtype);
    if (v->dtype != TP_BF16) return w;
    if (in) tp__widen_rows(p->c->dev, w.data, 0, *room, 0, 1, n);
    w.data = *room;
    *room += PIECE;
    return w;
}

static void round_part(const parts *p, const tp_view *v, const tp_view *part, int64_t at)
{
    if (tp_absent(v) || !v->data || v->dtype != TP_BF16) return;
    tp__round_rows(p->c->dev, part->data, 0, (uint16_t *)v->data + at, 0, 1, part->numel);
}

static void run_parts(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const parts *p = ctx;
    const tp_call *c = p->c;
    tp_view x[TP_MAX_INPUTS], dx[TP_MAX_INPUTS], y, dy;
    tp_call w = *c;
    w.x = x;
    w.y = &y;
    if (p->backward) {
        w.dy = &dy;
        w.dx = dx;
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i * PIECE, n = p->n - at < PIECE ? p->n - at : PIECE;
        float *room = (float *)(void *)(p->room + (size_t)thread * p->thread);
        for (int k = 0; k < c->nx; k++) x[k] = part_of(p, &c->x[k], at, n, true, &room);
        y = part_of(p, &c->y[0], at, n, p->backward, &room);
        if (p->backward) dy = part_of(p, &c->dy[0], at, n, true, &room);
        for (int k = 0; p->backward && k < c->nx; k++)
            dx[k] = part_of(p, &c->dx[k], at, n, c->add != 0, &room);
        (void)p->k(&w); /* kernels of elementwise ops do not fail */
        if (!p->backward) round_part(p, &c->y[0], &y, at);
        for (int k = 0; p->backward && k < c->nx; k++) round_part(p, &c->dx[k], &dx[k], at);
    }
}

/* run_widened for a call that can be cut. */
static tp_code run_cut(tp_tape *T, const tp_call *c, tp_kernel k, bool backward, const char *name)
{
    const size_t views = (size_t)(2 * (c->nx + c->ny)), threads = (size_t)T->dev->threads;
    parts p = { c, k, backward, c->y[0].numel, NULL, views * PIECE * sizeof(float) };
    tp_buf *room = tp__alloc(T, threads * p.thread, name);
    if (!room) return T->err.code;
    p.room = room->data;
    if (!T->dev->dry) tp__parallel(T->dev, (p.n + PIECE - 1) / PIECE, 4, run_parts, &p);
    tp__buf_unref(room);
    return TP_OK;
}

static bool has_bf16(const tp_view *v, int n)
{
    for (int i = 0; i < n; i++)
        if (!tp_absent(&v[i]) && v[i].dtype == TP_BF16) return true;
    return false;
}

/* The kernel of every op on a dry device. */
static tp_code skip(const tp_call *c)
{
    (void)c;
    return TP_OK;
}

bool tp__download(tp_tape *T, void *host, const void *from, size_t bytes)
{
    if (T->dev->capturing) {
        tp__fail(T, TP_E_STATE,
                 "nothing can be read between tp_capture_begin and tp_capture_end: "
                 "the step has not run yet");
        return false;
    }
    if (tp__device_read(T->dev, host, from, bytes)) return true;
    tp__device_failed(T);
    return false;
}

/* op: kernel k's, or NULL. */
static tp_code run_kernel(tp_tape *T, const tp_call *c, tp_kernel k, const tp_op *op, bool backward,
                          const char *name)
{
    char why[TP_WHY] = "";
    tp_call run = *c;
    run.why = why;
    if (T->dev->err.code != TP_OK) return tp__device_failed(T);
    const bool bf16 = has_bf16(c->x, c->nx) || has_bf16(c->y, c->ny) ||
                      (backward && (has_bf16(c->dy, c->ny) || has_bf16(c->dx, c->nx)));
    if (T->dev->dry) k = skip;
    tp__op_begins(T->dev);
    const bool on_cpu = bf16 && T->dev->be->kind == TP_CPU;
    if (on_cpu) run.real = TP_BF16;
    const bool widens = on_cpu && !(op && op->flags & TP_TAKES_BF16);
    const tp_code code = !widens                          ? tp__call(k, &run)
                         : can_be_cut(&run, op, backward) ? run_cut(T, &run, k, backward, name)
                                                          : run_widened(T, &run, k, backward, name);
    if (T->dev->err.code != TP_OK) return tp__device_failed_at(T, name, backward);
    if (code != TP_OK)
        tp__fail(T, code, "%s%s: %s", name, backward ? " (backward)" : "",
                 *why ? why : tp_code_text(code));
    else if (tp__op_ends(T->dev, name, backward) != TP_OK)
        return tp__device_failed(T);
    else if (T->dev->trace)
        tp__trace_call(T->dev, T->path ? T->path : tp__scope_path(T), &run);
    return code;
}

tp_code tp__run(tp_tape *T, const tp_call *c, tp_kernel k, bool backward, const char *name)
{
    return run_kernel(T, c, k, NULL, backward, name);
}

tp_code tp__run_op(tp_tape *T, const tp_call *c, const tp_op *op, bool backward)
{
    const tp_kernel k = (backward ? op->backward : op->forward)[T->dev->be->kind];
    return run_kernel(T, c, k, op, backward, op->name);
}
