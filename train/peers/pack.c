/* pack.c - moves gradients into and out of buckets, and sums their pieces.
 *
 * With bf16, a sender rounds g + e and keeps the rest in e; sums stay f32. The own piece is not
 * rounded. A parameter that this process did not reach sends zeros, and its e waits. */
#include <math.h>
#include <string.h>

#include "autograd/nodes.h"
#include "tensor/bf16.h"
#include "train/peers/wire.h"

/* ---- gradients ---- */

/* Zeros in place of the gradient of a parameter that was not reached. */
static void give_zeros(tp_wire *w, tp_node *n)
{
    const size_t bytes = tp__view_bytes(&n->view);
    tp_buf *b = tp__buf_new(w->P->dev, bytes);
    if (b) {
        w->P->dev->be->zero(w->P->dev, b->data, bytes);
        tp__set_grad(n, b);
    } else {
        w->failed = true;
    }
}

tp_buf *tp__gradient(tp_wire *w, int entry)
{
    tp_node *n = w->P->entries[entry].node;
    if (!w->touched[entry]) {
        w->touched[entry] = true;
        w->reached[entry] = n->grad_buf != NULL;
        if (!n->grad_buf) give_zeros(w, n);
    }
    return n->grad_buf ? tp__buf_ref(n->grad_buf) : NULL;
}

/* The cuts of a piece and their gradients. */
typedef struct part {
    const tp_cut *cut;
    tp_buf *const *held;
    int n;
    bool direct; /* one stretch of host memory */
} part;

static part part_of(const tp_flight *f, const tp_wire *w, int rank)
{
    const tp_piece *p = tp__piece(w, f->bucket, rank);
    part y = { .cut = &w->cuts.at[p->first],
               .held = &f->held[p->first - tp__piece(w, f->bucket, 0)->first],
               .n = p->n };
    y.direct = p->n == 1 && w->P->dev->be->kind == TP_CPU && y.held[0];
    return y;
}

/* ---- out of gradients ---- */

static void gather(const part *p, tp_wire *w, char *to)
{
    const size_t size = tp_dtype_size(w->P->dtype);
    for (int i = 0; i < p->n; i++) {
        const size_t bytes = (size_t)p->cut[i].numel * size, at = (size_t)p->cut[i].first * size;
        if (!p->held[i])
            memset(to, 0, bytes);
        else if (!tp__device_read(w->P->dev, to, (char *)p->held[i]->data + at, bytes))
            w->failed = true;
        to += bytes;
    }
}

static void round_cut(const float *g, float *e, uint16_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i] + e[i];
        to[i] = tp__to_bf16(x);
        const float rest = x - tp__from_bf16(to[i]);
        e[i] = isfinite(rest) ? rest : 0; /* a NaN must not stay for ever */
    }
}

static void round_piece(const part *p, const tp_wire *w, const char *from, uint16_t *to)
{
    const float *g = (const float *)from;
    for (int i = 0; i < p->n; i++) {
        const tp_cut *c = &p->cut[i];
        float *e = w->error + w->P->entries[c->entry].at / sizeof(float) + c->first;
        if (w->reached[c->entry])
            round_cut(g, e, to, c->numel);
        else
            memset(to, 0, (size_t)c->numel * sizeof *to);
        g += c->numel;
        to += c->numel;
    }
}

void tp__pack(tp_flight *f, tp_wire *w)
{
    const size_t size = tp_dtype_size(w->P->dtype);
    const tp_piece *first = tp__piece(w, f->bucket, 0), *last = first + w->ranks - 1;
    for (int i = first->first; i < last->first + last->n; i++)
        f->held[i - first->first] = tp__gradient(w, w->cuts.at[i].entry);
    for (int k = 0; k < w->ranks; k++) {
        const tp_piece *p = tp__piece(w, f->bucket, k);
        const part y = part_of(f, w, k);
        f->at[k] = y.direct ? (char *)y.held[0]->data + (size_t)y.cut[0].first * size
                            : f->staged + (size_t)p->from * size;
        if (!y.direct) gather(&y, w, f->at[k]);
        if (w->bf16 && k != w->rank) round_piece(&y, w, f->at[k], f->half + p->from);
    }
}

/* ---- sums ---- */

enum { CHUNK = 1024 };

typedef struct pieces {
    const tp_flight *f;
    const tp_wire *w;
    int64_t numel;
} pieces;

/* The own piece as rank k sent it. */
static const char *piece_from(const pieces *s, int k)
{
    const int before = k < s->w->rank ? k : k - 1;
    return s->f->got + (size_t)before * (size_t)s->numel * tp__wire_size(s->w);
}

static void sum_f32(const pieces *s, int64_t i, int64_t n)
{
    float sum[CHUNK] = { 0 }, *own = (float *)s->f->at[s->w->rank] + i;
    for (int k = 0; k < s->w->ranks; k++) {
        if (s->w->bf16 && k != s->w->rank) {
            const uint16_t *h = (const uint16_t *)piece_from(s, k) + i;
            for (int64_t j = 0; j < n; j++) sum[j] += tp__from_bf16(h[j]);
        } else {
            const float *x = k == s->w->rank ? own : (const float *)piece_from(s, k) + i;
            for (int64_t j = 0; j < n; j++) sum[j] += x[j];
        }
    }
    memcpy(own, sum, (size_t)n * sizeof *own);
}

static void sum_f64(const pieces *s, int64_t i, int64_t n)
{
    double sum[CHUNK] = { 0 }, *own = (double *)s->f->at[s->w->rank] + i;
    for (int k = 0; k < s->w->ranks; k++) {
        const double *x = k == s->w->rank ? own : (const double *)piece_from(s, k) + i;
        for (int64_t j = 0; j < n; j++) sum[j] += x[j];
    }
    memcpy(own, sum, (size_t)n * sizeof *own);
}

static void sum_chunks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const pieces *s = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i += CHUNK) {
        const int64_t n = end - i < CHUNK ? end - i : CHUNK;
        if (s->w->P->dtype == TP_F64)
            sum_f64(s, i, n);
        else
            sum_f32(s, i, n);
    }
}

void tp__sum(const tp_flight *f, const tp_wire *w)
{
    const pieces s = { f, w, tp__piece(w, f->bucket, w->rank)->numel };
    tp__parallel(w->P->dev, s.numel, 16 * CHUNK, sum_chunks, &s);
}

/* ---- into gradients ---- */

static void scatter(const part *p, const tp_wire *w, const char *from)
{
    const size_t size = tp_dtype_size(w->P->dtype);
    for (int i = 0; i < p->n; i++) {
        const size_t bytes = (size_t)p->cut[i].numel * size, at = (size_t)p->cut[i].first * size;
        if (p->held[i])
            w->P->dev->be->upload(w->P->dev, (char *)p->held[i]->data + at, from, bytes);
        from += bytes;
    }
}

void tp__unpack(tp_flight *f, tp_wire *w)
{
    const tp_piece *first = tp__piece(w, f->bucket, 0), *last = first + w->ranks - 1;
    for (int k = 0; k < w->ranks; k++) {
        const part y = part_of(f, w, k);
        if (!y.direct && (!w->shard || k == w->rank)) scatter(&y, w, f->at[k]);
    }
    for (int i = 0; i < last->first + last->n - first->first; i++) {
        tp__buf_unref(f->held[i]);
        f->held[i] = NULL;
    }
}
