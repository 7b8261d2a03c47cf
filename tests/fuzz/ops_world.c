/* ops_world.c - the two devices of fuzz_ops with their tapes and parameters, and their
 * invariants. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops_fuzzer.h"

static void see_gradient(void *env, tp_params *P, tp_tensor p, const char *name, int64_t backwards)
{
    (void)env, (void)P;
    fuzz_demand(*name && tp_ndim(p) > 0 && backwards > 0, "a hook is told of a parameter");
}

/* Counts multiply-adds. Large inputs exceed the limit anyway, and counting them would take time
 * proportional to the queries. */
static void count(void *env, tp_tape *T, const tp_seen *s)
{
    (void)T;
    for (int i = 0; i < s->nx; i++)
        if (tp_numel(s->x[i]) > OPS_VALUES * 8) {
            *(double *)env = HUGE_VAL;
            return;
        }
    *(double *)env += tp_seen_macs(s);
}

static void open_params(ops_world *w)
{
    const tp_init init = { TP_INIT_UNIFORM, 1.0, 0.0 };
    tp_on_grad(w->P, see_gradient, NULL);
    w->param[0] = tp_param(w->P, "w", TP_SHAPE(4, 3), init, 0);
    w->param[1] = tp_param(w->P, "b", TP_SHAPE(4), init, 0);
    w->param[2] = tp_param(w->P, "frozen", TP_SHAPE(2, 4), init, TP_FROZEN);
    w->param[3] = tp_buffer(w->P, "mean", TP_F32, TP_SHAPE(4), NULL);
    w->param[4] = tp_buffer(w->P, "var", TP_F32, TP_SHAPE(4), NULL);
    w->param[5] = tp_buffer(w->P, "batches", TP_I64, TP_SHAPE(1), NULL);
}

/* The four bytes give the compute dtype and modes, the instruction set, the failing allocation, and
 * for how long. */
static void open_world(ops_world *w, bool dry, const uint8_t head[4])
{
    static const tp_dtype compute[] = { TP_F32, TP_BF16, TP_F64, TP_F32 };
    const tp_tape_opts o = { .seed = 7,
                             .compute = compute[head[0] & 3],
                             .check_finite = head[0] & 8 };
    const tp_isa isa = (tp_isa)(head[1] & 3);
    const tp_device_opts d = { .threads = 1,
                               .isa = tp_isa_runs(isa) ? isa : TP_ISA_AUTO,
                               .exact = true,
                               .dry = dry,
                               .fail_at = dry ? 0 : head[2],
                               .fail_count = head[3] & 1 ? SIZE_MAX / 2 : 1 };
    const tp_dtype natural = o.compute == TP_F64 ? TP_F64 : TP_F32;
    w->D = tp_device_open("cpu", &d);
    w->P = tp_params_new(w->D, &(tp_params_opts){ .seed = 3, .dtype = natural });
    w->T = tp_tape_new(w->D, &o);
    w->other = tp_tape_new(w->D, &o);
    w->foreign = tp_full(w->other, TP_F32, TP_SHAPE(2), 1.0);
    w->carried = TP_NONE;
    open_params(w);
}

static void close_world(ops_world *w)
{
    tp_tape_free(w->T);
    tp_tape_free(w->other);
    tp_params_free(w->P);
    fuzz_demand(tp_device_stats(w->D).live_bytes == 0, "device memory does not leak");
    tp_device_close(w->D);
}

/* Creating devices and tapes takes longer than most programs. They are reused, unless allocations
 * fail or a byte says otherwise. */
static ops_world *kept(const uint8_t head[4])
{
    static ops_world worlds[4][4][2][OPS_WORLDS];
    if (head[2] || head[3] & 2) return NULL;
    return worlds[head[0] & 3][head[1] & 3][head[0] >> 3 & 1];
}

void ops_open(ops_env *e, const uint8_t head[4])
{
    ops_world *k = kept(head);
    for (int i = 0; i < OPS_WORLDS; i++) {
        ops_world *w = k ? &k[i] : &e->w[i];
        if (!w->D) open_world(w, i == OPS_DRY, head);
        e->w[i] = *w;
        tp_train(w->T, head[0] & 4);
    }
    e->kept = k != NULL;
    e->natural = tp_compute_dtype(e->w[0].T) == TP_F64 ? TP_F64 : TP_F32;
    e->finite = head[0] & 8;
    e->no_memory = head[2];
    tp_observe(e->w[OPS_DRY].T, count, &e->macs);
}

/* Restores the initial state, so that the next program runs like the first. */
static void restore(ops_world *w)
{
    const double zeros[4] = { 0 };
    tp_clear(w->T);
    tp_reset(w->T);
    tp_carry(w->T, &w->carried, TP_NONE);
    tp_reset(w->T);
    tp_record(w->T, true);
    tp_set_random_state(w->T, 7, 0);
    tp_observe(w->T, NULL, NULL);
    tp_grad_clear(w->P);
    bool set = tp_param_set(w->P, w->param[5], TP_I64, zeros, sizeof *zeros);
    for (int i = 3; i < 5; i++)
        set = tp_param_set(w->P, w->param[i], TP_F64, zeros, sizeof zeros) && set;
    fuzz_demand(set && tp_ok(w->T) && tp_params_ok(w->P), "a program leaves nothing behind");
}

void ops_close(ops_env *e)
{
    for (int i = 0; i < OPS_WORLDS; i++)
        if (e->kept)
            restore(&e->w[i]);
        else
            close_world(&e->w[i]);
}

void ops_store(ops_env *e, const tp_tensor t[OPS_WORLDS], bool dry_only)
{
    memcpy(e->slot[e->next_slot].t, t, sizeof e->slot[e->next_slot].t);
    e->slot[e->next_slot].dry_only = dry_only;
    e->next_slot = (e->next_slot + 1) % OPS_SLOTS;
}

/* ---- demands ---- */

void ops_demand_text(tp_tape *T)
{
    const char *why = tp_why(T);
    const size_t n = strlen(why);
    fuzz_demand(n > 0 && *why != '\n', "a failed tape says why");
    fuzz_demand(why[n - 1] != '\n' && !strstr(why, "\n\n"), "its text has no empty line");
    for (size_t i = 0; i < n; i++)
        fuzz_demand((unsigned char)why[i] >= ' ' || why[i] == '\n', "its text can be printed");
    fuzz_demand(tp_code_of(T) > TP_OK && tp_code_of(T) < TP_E_BUG, "the library broke no rule");
    const tp_tensor y = tp_full(T, TP_F32, TP_SHAPE(2), 1.0);
    fuzz_demand(!y.node && tp_numel(y) == 1, "a failed tape makes failed tensors");
    fuzz_demand(strlen(tp_why(T)) == n, "the first error stays");
}

/* The loss and a gradient of a small computation. */
typedef struct figures {
    double loss, dx[6];
} figures;

static bool compute(ops_env *e, figures *f)
{
    static const double values[12] = {
        0.5, -1.0, 2.0, 0.25, 1.5, -0.5, 1.0, 0.75, -2.0, 3.0, 0, 1
    };
    const int32_t labels[2] = { 3, 1 };
    float narrow[12];
    tp_tape *T = e->w[OPS_REAL].T;
    tp_clear(T);
    tp_reset(T);
    tp_train(T, true);
    tp_record(T, true);
    tp_set_random_state(T, 1, 2);
    for (int i = 0; i < 12; i++) narrow[i] = (float)values[i];
    const void *host = e->natural == TP_F64 ? (const void *)values : narrow;
    const tp_tensor x = tp_input(T, e->natural, TP_SHAPE(2, 3), host);
    const tp_tensor w = tp_from(T, e->natural, TP_SHAPE(4, 3), host);
    const tp_tensor y = tp_linear(T, tp_dropout(T, x, 0.25), w, TP_NONE, TP_ACT_GELU);
    const tp_tensor target = tp_from(T, TP_I32, TP_SHAPE(2), labels);
    const tp_tensor loss = tp_cross_entropy(T, y, target, TP_MEAN);
    tp_backward(T, loss);
    *f = (figures){ .loss = tp_item(T, loss) };
    tp_read(T, tp_grad(T, x), f->dx, 6 * tp_dtype_size(e->natural));
    return tp_ok(T);
}

void ops_demand_life(ops_env *e)
{
    static struct {
        bool known;
        figures f;
    } first[4][3];
    figures f;
    tp_tape *T = e->w[OPS_REAL].T;
    const char *name = tp_device_stats(e->w[OPS_REAL].D).isa;
    const int isa = strcmp(name, "amx") == 0      ? 3
                    : strcmp(name, "avx512") == 0 ? 2
                    : strcmp(name, "avx2") == 0   ? 1
                                                  : 0;
    const int dtype = (int)tp_compute_dtype(T);
    bool ok = compute(e, &f);
    if (!ok && e->no_memory) {
        fuzz_demand(tp_code_of(T) == TP_E_MEMORY, "only memory is missing");
        ok = compute(e, &f);
        if (!ok) return; /* the failure lasts */
    }
    fuzz_demand(ok, "a tape works after tp_clear");
    if (!first[isa][dtype].known) {
        first[isa][dtype].known = true;
        first[isa][dtype].f = f;
    }
    fuzz_demand(memcmp(&first[isa][dtype].f, &f, sizeof f) == 0, "to the last bit");
}
