/* params_store.c - the memory of parameters: layout of the block of values, the bf16 copy, and
 * transfers to and from the host. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "autograd/nodes.h"
#include "autograd/ops/op_inner.h"
#include "autograd/params.h"
#include "tensor/bf16.h"

TP_KERNEL(cast_fwd);
static const tp_kernel cast[TP_NBACKENDS] = TP_KERNELS(cast_fwd);

#define ALIGN ((size_t)256) /* of parameters in the block, bytes */

/* ---- completion: layout and initial values ---- */

/* Places the tables, or all other parameters, one after another from *at. */
static bool place(tp_params *P, bool tables, size_t *at)
{
    const size_t size = tp_dtype_size(P->dtype);
    for (int i = 0; i < P->n; i++) {
        tp_entry *e = &P->entries[i];
        if (e->alias_of || e->node->buffer || e->table != tables) continue;
        e->at = *at;
        const size_t bytes = (size_t)e->node->view.numel * size;
        if (!tp__size_add(*at, (bytes + ALIGN - 1) / ALIGN * ALIGN, at)) return false;
    }
    return true;
}

static bool lay_out(tp_params *P)
{
    size_t at = 0;
    if (!place(P, false, &at)) return false;
    P->tables_at = at;
    if (!place(P, true, &at)) return false;
    P->block_bytes = at;
    return true;
}

static bool fill(tp_params *P, const tp_entry *e)
{
    tp_view host = e->node->view;
    const size_t bytes = tp__view_bytes(&host);
    if (bytes == 0 || P->dev->dry) return true;
    const bool constant = e->init.kind == TP_INIT_CONST;
    if (e->content) {
        P->dev->be->upload(P->dev, e->node->view.data, e->content, bytes);
        return true;
    }
    if (constant || e->init.kind == TP_INIT_ZERO || P->blank) {
        tp__fill(P->dev, &e->node->view, constant ? e->init.a : 0.0);
        return true;
    }
    host.data = malloc(bytes);
    if (!host.data) return false;
    const uint64_t key = P->seed ^ tp_hash_text(TP_HASH, e->name);
    const bool ok = tp__init_draw(&host, &e->init, key);
    if (ok) P->dev->be->upload(P->dev, e->node->view.data, host.data, bytes);
    free(host.data);
    return ok;
}

static bool no_device_memory(const tp_params *P, const char *what, size_t bytes, tp_err *e)
{
    char text[512] = "";
    tp__heap_text(P->dev, bytes, text, sizeof text);
    if (P->dev->err.code != TP_OK) tp__err(e, P->dev->err.code, "%s", P->dev->err.text);
    tp__err(e, TP_E_MEMORY, "params: out of memory on %s for %s: %s", P->dev->name, what, text);
    return false;
}

/* Padding between parameters must be zero: the bf16 copy covers the block. */
static tp_buf *zero_block(tp_params *P, size_t bytes)
{
    tp_buf *b = tp__buf_new(P->dev, bytes);
    if (b) P->dev->be->zero(P->dev, b->data, bytes);
    return b;
}

/* Releases what a failed completion took, so that it can be retried. */
static void give_up(tp_params *P)
{
    for (int i = 0; i < P->n; i++) {
        tp_entry *e = &P->entries[i];
        if (e->alias_of) continue;
        tp__buf_unref(e->own);
        tp__buf_unref(e->node->buf);
        e->own = e->node->buf = NULL;
        e->node->view.data = NULL;
    }
    tp__buf_unref(P->values);
    P->values = NULL;
}

static bool complete(tp_params *P)
{
    if (P->depth) {
        tp__err(&P->err, TP_E_STATE, "params: '%s' was pushed and never popped", P->path);
        return false;
    }
    if (!tp__lora_complete(P) || !tp__init_rows(P)) return false;
    if (!lay_out(P) || !(P->values = zero_block(P, P->block_bytes)))
        return no_device_memory(P, "the values", P->block_bytes, &P->err);
    for (int i = 0; i < P->n; i++) {
        tp_entry *e = &P->entries[i];
        if (e->alias_of) continue;
        if (e->node->buffer) {
            e->own = tp__buf_new(P->dev, tp__view_bytes(&e->node->view));
            if (!e->own)
                return no_device_memory(P, e->name, tp__view_bytes(&e->node->view), &P->err);
            e->node->view.data = e->own->data;
            e->node->buf = tp__buf_ref(e->own);
        } else if (P->values->data) {
            e->node->view.data = (char *)P->values->data + e->at;
            e->node->buf = tp__buf_ref(P->values);
        }
        if (!fill(P, e)) {
            tp__params_no_memory(P);
            return false;
        }
    }
    return true;
}

static bool complete_once(tp_params *P)
{
    if (tp__is_complete(P)) return true;
    if (P->err.code != TP_OK) return false;
    if (!complete(P)) {
        give_up(P);
        return false;
    }
    for (int i = 0; i < P->n; i++) {
        free(P->entries[i].content);
        P->entries[i].content = NULL;
    }
    __atomic_store_n(&P->complete, true, __ATOMIC_RELEASE);
    return true;
}

bool tp__params_complete(tp_params *P)
{
    if (!tp_params_ok(P)) return false;
    if (tp__is_complete(P)) return true;
    tp__lock(&P->lock);
    const bool ok = complete_once(P);
    tp__unlock(&P->lock);
    return ok;
}

static bool complete_or(tp_params *P, tp_err *e)
{
    if (tp__params_complete(P)) return true;
    tp__err(e, P->err.code, "%s", P->err.text);
    return false;
}

bool tp__params_hold_values(const tp_params *P, const char *what, tp_err *e)
{
    if (P->swapped)
        tp__err(e, TP_E_STATE,
                "%.1000s: the parameters hold the averages; call %s first to restore the "
                "values",
                what, P->swap);
    return P->swapped == 0;
}

void tp__params_touch(tp_params *P)
{
    P->version++;
}

/* ---- copies in bf16 ---- */

typedef struct rounding {
    const float *from;
    uint16_t *to;
} rounding;

static void round_part(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const rounding *r = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) r->to[i] = tp__to_bf16(r->from[i]);
}

/* Rounds the n values at byte `at` of the block. The CPU rounds directly: its cast kernel would use
 * f32 stand-ins (run_kernel.c). */
static bool round_values(tp_params *P, size_t at, int64_t n, const tp_buf *to, tp_err *error)
{
    void *from = P->values->data ? (char *)P->values->data + at : NULL;
    if (P->dev->be->kind == TP_CPU) {
        if (!P->dev->dry)
            tp__parallel(P->dev, n, 1 << 16, round_part, &(rounding){ from, to->data });
        return true;
    }
    char why[TP_WHY] = "";
    const tp_view x = tp__view(TP_F32, &TP_SHAPE(n), from);
    tp_view y = tp__view(TP_BF16, &TP_SHAPE(n), to->data);
    const tp_call c = {
        .dev = P->dev, .nx = 1, .ny = 1, .real = TP_F32, .x = &x, .y = &y, .why = why
    };
    tp__op_begins(P->dev);
    tp_code code = P->dev->dry ? TP_OK : tp__call(cast[P->dev->be->kind], &c);
    if (code == TP_OK) code = tp__op_ends(P->dev, "bf16 copy", false);
    if (code != TP_OK) tp__err(error, code, "params: the bf16 copy: %s", why);
    return code == TP_OK;
}

static bool round_all(tp_params *P, tp_err *error)
{
    const int64_t n = (int64_t)(P->tables_at / sizeof(float));
    if (P->shadow && !round_values(P, 0, n, P->shadow, error)) return false;
    for (int i = 0; i < P->n; i++) {
        const tp_entry *e = &P->entries[i];
        if (e->copy && !round_values(P, e->at, e->node->view.numel, e->copy, error)) return false;
    }
    P->shadow_version = P->version;
    return true;
}

static const void *shadow_of(tp_params *P, const tp_node *n, tp_err *error)
{
    tp_entry *e = &P->entries[n->index];
    if (n->buffer) {
        tp__err(error, TP_E_DTYPE, "params: buffer '%s' cannot be read in bf16", e->name);
        return NULL;
    }
    tp_buf **copy = e->table ? &e->copy : &P->shadow;
    if (!*copy) {
        const size_t bytes = e->table ? tp__view_bytes(&n->view) / 2 : P->tables_at / 2;
        *copy = tp__buf_new(P->dev, bytes);
        if (!*copy) {
            no_device_memory(P, "the bf16 copy", bytes, error);
            return NULL;
        }
        P->copies++;
        P->shadow_version = P->version - 1;
    }
    if (P->shadow_version != P->version && !round_all(P, error)) return NULL;
    const size_t at = e->table ? 0 : e->at / 2;
    return (*copy)->data ? (const char *)(*copy)->data + at : NULL;
}

const void *tp__params_shadow(tp_params *P, const tp_node *n, tp_err *error)
{
    if (!complete_or(P, error)) return NULL;
    tp__lock(&P->lock);
    const void *shadow = shadow_of(P, n, error);
    tp__unlock(&P->lock);
    return shadow;
}

/* ---- values and gradients on the host ---- */

static bool convert(const tp_view *to, const tp_view *from)
{
    if (to->dtype != from->dtype && !(tp_is_float(to->dtype) && tp_is_float(from->dtype)))
        return false;
    if (to->dtype == from->dtype)
        memcpy(to->data, from->data, tp__view_bytes(from));
    else
        for (int64_t i = 0; i < from->numel; i++) tp_st(to, i, tp_ld(from, i));
    return true;
}

/* A transfer between host and device. */
typedef struct transfer {
    const char *name;
    const tp_view *v; /* on the device */
    tp_dtype dt;      /* on the host */
    void *host;
    size_t bytes;
    bool get;
} transfer;

/* Copies to (get) or from the host. On failure P's refusal says why, and nothing has changed. */
static bool moved(tp_params *P, transfer t)
{
    tp_view h = *t.v, raw = *t.v;
    tp_err *e = &P->refusal;
    h.dtype = t.dt;
    h.data = t.host;
    const size_t size = tp__view_bytes(t.v);
    if (t.bytes != tp__view_bytes(&h)) {
        tp__err(e, TP_E_SHAPE, "parameter '%s': %zu bytes given, it has %zu as %s", t.name, t.bytes,
                tp__view_bytes(&h), tp_dtype_name(t.dt));
        return false;
    }
    if (t.bytes == 0) return true;
    if (!t.host) {
        tp__err(e, TP_E_VALUE, "parameter '%s': NULL was given in place of a buffer", t.name);
        return false;
    }
    raw.data = malloc(size);
    if (!raw.data) {
        tp__err(e, TP_E_MEMORY, "parameter '%s': out of host memory", t.name);
        return false;
    }
    bool ok = !t.get || tp__device_read(P->dev, raw.data, t.v->data, size);
    ok = ok && (t.get ? convert(&h, &raw) : convert(&raw, &h));
    if (ok && !t.get) P->dev->be->upload(P->dev, t.v->data, raw.data, size);
    free(raw.data);
    if (P->dev->err.code != TP_OK)
        tp__err(e, P->dev->err.code, "parameter '%s': %s", t.name, P->dev->err.text);
    else if (!ok)
        tp__err(e, TP_E_DTYPE, "parameter '%s': %s does not convert to %s", t.name,
                tp_dtype_name(t.get ? t.v->dtype : t.dt), tp_dtype_name(t.get ? t.dt : t.v->dtype));
    return e->code == TP_OK;
}

/* Begins a transfer: the entry, or NULL with the refusal or P's error set. */
static tp_entry *entry_for(tp_params *P, tp_tensor p, const char *what)
{
    tp_entry *e = tp__params_begin(P) ? tp__entry(P, p, what, &P->refusal) : NULL;
    return e && tp__params_complete(P) ? e : NULL;
}

bool tp_param_get(tp_params *P, tp_tensor p, tp_dtype dt, void *host, size_t bytes)
{
    const tp_entry *e = entry_for(P, p, "tp_param_get");
    return e && moved(P, (transfer){ e->name, &e->node->view, dt, host, bytes, true });
}

bool tp_param_set(tp_params *P, tp_tensor p, tp_dtype dt, const void *host, size_t bytes)
{
    const tp_entry *e = entry_for(P, p, "tp_param_set");
    if (!e) return false;
    tp_node *n = e->node;
    void *from = (void *)(uintptr_t)host;
    if (!n->buffer && !tp__params_hold_values(P, "tp_param_set", &P->refusal)) return false;
    if (!moved(P, (transfer){ e->name, &n->view, dt, from, bytes, false })) return false;
    if (n->buffer)
        n->changes++;
    else
        tp__params_touch(P);
    return true;
}

bool tp_param_get_grad(tp_params *P, tp_tensor p, tp_dtype dt, void *host, size_t bytes)
{
    const tp_entry *e = entry_for(P, p, "tp_param_get_grad");
    if (!e) return false;
    if (!e->node->grad_buf) {
        tp__err(&P->refusal, TP_E_STATE, "parameter '%s' has no gradient: no backward reached it",
                e->name);
        return false;
    }
    return moved(P, (transfer){ e->name, &e->node->grad, dt, host, bytes, true });
}

bool tp_param_set_grad(tp_params *P, tp_tensor p, tp_dtype dt, const void *host, size_t bytes)
{
    const tp_entry *e = entry_for(P, p, "tp_param_set_grad");
    if (!e) return false;
    if (!e->node->wants_grad) {
        tp__err(&P->refusal, TP_E_NOGRAD, "tp_param_set_grad: '%s' is %s and has no gradient",
                e->name, e->node->buffer ? "a buffer" : "frozen");
        return false;
    }
    const size_t size = tp__view_bytes(&e->node->view);
    tp_view to = e->node->view;
    tp_buf *g = e->node->grad_buf ? tp__buf_ref(e->node->grad_buf) : tp__buf_new(P->dev, size);
    if (!g) {
        char what[300] = "";
        tp__append(what, sizeof what, "the gradient of '%.200s'", e->name);
        return no_device_memory(P, what, size, &P->refusal);
    }
    to.data = g->data;
    void *from = (void *)(uintptr_t)host;
    const bool ok = moved(P, (transfer){ e->name, &to, dt, from, bytes, false });
    if (ok)
        tp__set_grad(e->node, g);
    else
        tp__buf_unref(g);
    P->given = P->given || ok;
    return ok;
}
