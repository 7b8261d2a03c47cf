/* ops_control.c - fuzz_ops instructions that are not ops: host tensors, scopes, backward,
 * gradients, recomputation, carried tensors, and everything else that a tape can do. */
#define TP_NO_SITE
#include "ops_fuzzer.h"

static tp_tensor make(ops_env *e, const ops_row *r)
{
    (void)r;
    const tp_shape s = ops_shape(e);
    const tp_dtype dt = ops_dtype(e);
    const uint8_t how = ops_byte(e);
    if ((how & 0x70) != 0x70) return ops_fresh(e, dt, s, how);
    if (how & 128) return tp_full(ops_tape(e), dt, s, ops_number(e));
    return how & 8 ? tp_input(ops_tape(e), dt, s, NULL) : tp_from(ops_tape(e), dt, s, NULL);
}

static tp_tensor reset(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_reset(ops_tape(e));
    if (!e->no_tape && e->world == OPS_REAL) e->apart = false;
    return TP_NONE;
}

static tp_tensor enter(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_enter(ops_tape(e), ops_flag(e) ? "scope" : NULL);
    return TP_NONE;
}

static tp_tensor leave(ops_env *e, const ops_row *r)
{
    (void)r;
    return tp_leave(ops_tape(e), ops_input(e, TP_SHAPE(2)));
}

static tp_tensor keep(ops_env *e, const ops_row *r)
{
    (void)r;
    return tp_keep(ops_tape(e), ops_input(e, TP_SHAPE(3)));
}

static tp_tensor detach(ops_env *e, const ops_row *r)
{
    (void)r;
    return tp_detach(ops_tape(e), ops_input(e, TP_SHAPE(3)));
}

static tp_tensor modes(ops_env *e, const ops_row *r)
{
    (void)r;
    const uint8_t b = ops_byte(e);
    if (b & 1) tp_train(ops_tape(e), b & 2);
    if (b & 4) tp_record(ops_tape(e), b & 8);
    if (b & 16) tp_set_random_state(ops_tape(e), b, b & 32 ? UINT64_MAX : b);
    return TP_NONE;
}

/* ---- gradients ---- */

static tp_tensor backward(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_backward(ops_tape(e), ops_input(e, TP_SCALAR));
    return TP_NONE;
}

/* Backward of the sum of any tensor. */
static tp_tensor backward_of_sum(ops_env *e, const ops_row *r)
{
    (void)r;
    const tp_tensor x = ops_input(e, TP_SHAPE(2, 3));
    tp_backward(ops_tape(e), tp_sum(ops_tape(e), x, TP_ALL));
    return TP_NONE;
}

static bool same_shape(tp_tensor a, tp_tensor b)
{
    const tp_shape s = tp_shape_of(a), t = tp_shape_of(b);
    bool same = s.ndim == t.ndim;
    for (int i = 0; same && i < s.ndim; i++) same = s.dim[i] == t.dim[i];
    return same;
}

static tp_tensor grad(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_take(e, TP_SHAPE(2), OPS_FLOATS);
    const tp_tensor g = tp_grad(ops_tape(e), x.t);
    if (tp_ok(ops_tape(e))) fuzz_demand(same_shape(g, x.t), "a gradient has its tensor's shape");
    return g;
}

static tp_tensor params(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_params *P = e->w[e->world].P;
    const uint8_t b = ops_byte(e);
    if (b & 1) tp_grad_clear(P);
    return b & 2 ? tp_clip_grad_norm(P, ops_number(e)) : TP_NONE;
}

/* ---- recomputation ---- */

/* The recomputed function. Both runs must be the same, so it keeps its draws. */
typedef struct body {
    uint8_t what;
    double number;
    tp_tensor outside;
} body;

static tp_tensor run_body(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const body *b = self;
    const tp_tensor first = nx > 0 ? x[0] : b->outside;
    switch (b->what % 10) {
    case 0: return tp_gelu(T, first);
    case 1: return tp_dropout(T, tp_square(T, first), b->number);
    case 2: return tp_mul(T, first, b->outside);
    case 3: return first;
    case 4: return b->outside;
    case 5: return nx > 1 ? tp_add(T, x[0], x[1]) : TP_NONE;
    case 6: tp_enter(T, "body"); return tp_leave(T, tp_tanh(T, tp_scale(T, first, b->number)));
    case 7: return tp_softmax(T, tp_keep(T, tp_relu(T, first)));
    case 8: return tp_detach(T, first);
    default: return tp_linear(T, first, b->outside, TP_NONE, TP_ACT_GELU);
    }
}

static tp_tensor run_one(tp_tape *T, const void *self, tp_tensor x)
{
    return run_body(T, self, 1, &x);
}

static tp_tensor run_nested(tp_tape *T, const void *self, tp_tensor x)
{
    return tp_sigmoid(T, tp_checkpoint(T, run_one, self, x));
}

static tp_tensor checkpoint(ops_env *e, const ops_row *r)
{
    enum { BODIES = 64 };
    static body bodies[OPS_WORLDS][BODIES];
    (void)r;
    if (e->no_tape || e->checkpoints >= BODIES) return TP_NONE;
    body *b = &bodies[e->world][e->checkpoints];
    if (e->world == OPS_REAL || e->dry_only) e->checkpoints++;
    const uint8_t how = ops_byte(e);
    const ops_pick x = ops_any(e);
    *b = (body){ how >> 4, ops_number(e), ops_input(e, x.s) };
    const tp_tensor in[17] = { x.t, how & 4 ? ops_input(e, x.s) : TP_NONE };
    if (how & 1) return tp_checkpoint(ops_tape(e), how & 2 ? run_nested : run_one, b, x.t);
    return tp_checkpoint_n(ops_tape(e), run_body, b,
                           how & 4    ? 2
                           : how & 2  ? 1
                           : how == 8 ? 17
                                      : 0,
                           in);
}

/* ---- carried tensors ---- */

static tp_tensor carry(ops_env *e, const ops_row *r)
{
    (void)r;
    if (e->no_tape) return TP_NONE;
    const tp_tensor x = ops_flag(e) ? ops_any(e).t : TP_NONE;
    tp_tensor *slot = &e->w[e->world].carried;
    const tp_tensor before = *slot, now = tp_carry(ops_tape(e), slot, x);
    /* The slot keeps its tensor if x is from a failed parameter set, which only one world's can
     * be. */
    return now.node == before.node && now.gen == before.gen ? TP_NONE : now;
}

static tp_tensor write_rows(ops_env *e, const ops_row *r)
{
    (void)r;
    const tp_tensor to = e->w[e->world].carried;
    const int64_t row = ops_integer(e), n = ops_size(e);
    const tp_tensor from = ops_input(e, ops_with(tp_shape_of(e->w[OPS_DRY].carried), 0, n));
    const bool was = tp_record(ops_tape(e), ops_byte(e) > 240);
    tp_write_rows(ops_tape(e), to, row, from);
    tp_record(ops_tape(e), was);
    return TP_NONE;
}

/* ---- reading ---- */

static tp_tensor look(ops_env *e, const ops_row *r)
{
    static char host[OPS_VALUES * 8];
    (void)r;
    const ops_pick x = ops_any(e);
    const int64_t n = tp_numel(x.t);
    const size_t bytes = (size_t)n * tp_dtype_size(tp_dtype_of(x.t));
    const uint8_t b = ops_byte(e);
    fuzz_demand(n >= 0 && tp_dim(x.t, ops_int(e)) >= 0, "sizes are not negative");
    if (b & 1)
        tp_item(ops_tape(e), x.t);
    else if (n <= OPS_VALUES && bytes <= sizeof host)
        tp_read(ops_tape(e), x.t, host, b & 2 ? bytes : b);
    return TP_NONE;
}

const ops_row ops_controls[] = {
    { .name = "make", .run = make },
    { .name = "backward", .run = backward },
    { .name = "backward of a sum", .run = backward_of_sum },
    { .name = "grad", .run = grad },
    { .name = "checkpoint", .run = checkpoint },
    { .name = "reset", .run = reset },
    { .name = "enter", .run = enter },
    { .name = "leave", .run = leave },
    { .name = "keep", .run = keep },
    { .name = "detach", .run = detach },
    { .name = "modes", .run = modes },
    { .name = "params", .run = params },
    { .name = "carry", .run = carry },
    { .name = "write_rows", .run = write_rows },
    { .name = "look", .run = look },
    { .name = NULL },
};
