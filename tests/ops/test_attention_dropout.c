/* test_attention_dropout.c - dropout of probabilities in all attention ops: in evaluation and at
 * rate 0 it changes nothing, tp_checkpoint repeats its masks, threads do not change them, and
 * otherwise deterministic ops draw from the random stream only with it. Each op's own test checks
 * its masks against a reference. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "support/device.h"
#include "support/trial.h"

/* Options of a run beyond the op's. */
typedef struct run {
    int op;
    double dropout;
    bool checkpoint;
} run;

enum { B = 2, N = 24, H = 2, C = 16, W = 8 };

static tp_tensor full(tp_tape *T, const tp_tensor *x, double p)
{
    return tp_attention(T, x[0], x[1], x[2], TP_NONE, TP_NONE,
                        (tp_attn_cfg){ .heads = H, .dropout = p });
}

static tp_tensor relative(tp_tape *T, const tp_tensor *x, double p)
{
    return tp_rel_attention(T, x[0], x[1], x[2], x[3], x[4], x[5],
                            (tp_attn_cfg){ .heads = H, .dropout = p });
}

static tp_tensor long_short(tp_tape *T, const tp_tensor *x, double p)
{
    const tp_ls_in in = {
        .q = x[0], .k_win = x[1], .v_win = x[2], .pos_win = x[3], .r_w = x[4], .r_r = x[5]
    };
    return tp_ls_attention(
        T, in,
        (tp_ls_attn_cfg){ .heads = H, .chunk = 4, .window = W, .masked = true, .dropout = p });
}

static tp_tensor window(tp_tape *T, const tp_tensor *x, double p)
{
    const tp_window_in in = { .q = x[0], .k = x[1], .v = x[2] };
    return tp_window_attention_2d(T, in,
                                  (tp_window_attn_cfg){ .heads = H,
                                                        .height = 4,
                                                        .width = 6,
                                                        .window = { 2, 3 },
                                                        .halo = { 1, 1 },
                                                        .dropout = p });
}

static tp_tensor lsla(tp_tape *T, const tp_tensor *x, double p)
{
    return tp_lsla_attention(
        T, x[0], x[1], x[2], TP_NONE, x[3], x[4],
        (tp_lsla_attn_cfg){
            .heads = H, .height = 4, .width = 6, .window = 2, .shift = 1, .dropout = p });
}

static tp_tensor lsh(tp_tape *T, const tp_tensor *x, double p)
{
    return tp_lsh_attention(T, x[0], x[1], TP_NONE, TP_NONE,
                            (tp_lsh_attn_cfg){ .heads = H, .chunk = 6, .dropout = p });
}

static const struct {
    const char *name;
    tp_tensor (*f)(tp_tape *T, const tp_tensor *x, double p);
    int64_t table[2]; /* rows and columns of input 3 */
    int64_t rest[2];  /* of later inputs */
    int nx;
    bool random; /* always takes an offset */
} ops[] = {
    { "attention", full, { 0 }, { 0 }, 3, true },
    { "rel_attention", relative, { N, C }, { H, C / H }, 6, true },
    { "ls_attention", long_short, { W, C }, { H, C / H }, 6, false },
    { "window_attention_2d", window, { 0 }, { 0 }, 3, true },
    { "lsla_attention", lsla, { 9, H }, { 9, H }, 5, false },
    { "lsh_attention", lsh, { 0 }, { 0 }, 2, true },
};
enum { OPS = sizeof ops / sizeof *ops };

static tp_tensor inner(tp_tape *T, const void *env, int nx, const tp_tensor *x)
{
    const run *r = env;
    (void)nx;
    return ops[r->op].f(T, x, r->dropout);
}

/* Fails the trial if the op takes a wrong number of offsets. */
static tp_tensor apply(tp_tape *T, const tp_tensor *x, const void *env)
{
    const run *r = env;
    const int nx = ops[r->op].nx;
    uint64_t seed, before, after;
    tp_random_state(T, &seed, &before);
    const tp_tensor y = r->checkpoint ? tp_checkpoint_n(T, inner, r, nx, x) : inner(T, r, nx, x);
    tp_random_state(T, &seed, &after);
    const uint64_t want = ops[r->op].random || r->dropout > 0;
    if (after - before != want) return tp_raise(T, TP_E_STATE, "draws %d", (int)(after - before));
    return y;
}

static trial trial_of(const run *r)
{
    trial t = { .f = apply, .env = r, .dtype = TP_F32, .compute = TP_F32 };
    for (int i = 0; i < ops[r->op].nx; i++)
        t.in[i] = i < 3    ? TP_SHAPE(B, N, C)
                  : i == 3 ? TP_SHAPE(ops[r->op].table[0], ops[r->op].table[1])
                           : TP_SHAPE(ops[r->op].rest[0], ops[r->op].rest[1]);
    return t;
}

/* True if two runs agree bitwise. */
static bool same(const trial *s, const trial *t)
{
    trial_result a = trial_run(s), b = trial_run(t);
    cr_expect_str_empty(a.why, "%s", a.why);
    cr_expect_str_empty(b.why, "%s", b.why);
    bool equal =
        a.why[0] == 0 && b.why[0] == 0 && memcmp(a.y, b.y, (size_t)a.ny * sizeof *a.y) == 0;
    for (int i = 0; equal && i < TRIAL_INPUTS; i++)
        if (a.dx[i])
            equal = memcmp(a.dx[i], b.dx[i], (size_t)trial_count(&s->in[i]) * sizeof(double)) == 0;
    trial_free(&a);
    trial_free(&b);
    return equal;
}

Test(attention_dropout, evaluation_and_rate_0_change_nothing)
{
    for (int i = 0; i < OPS; i++) {
        const run none = { i, 0, false }, half = { i, 0.5, false };
        trial a = trial_of(&none), b = trial_of(&half);
        cr_expect(!same(&a, &b), "%s: dropout changes nothing in training", ops[i].name);
        b.eval = true;
        cr_expect(same(&a, &b), "%s in evaluation", ops[i].name);
    }
}

Test(attention_dropout, checkpoints_repeat_masks)
{
    for (int i = 0; i < OPS; i++) {
        const run plain = { i, 0.3, false }, again = { i, 0.3, true };
        const trial a = trial_of(&plain), b = trial_of(&again);
        cr_expect(same(&a, &b), "%s", ops[i].name);
    }
}

Test(attention_dropout, threads_do_not_change_bits)
{
    for (int i = 0; i < OPS; i++) {
        const run r = { i, 0.3, false };
        const trial t = trial_of(&r);
        cr_expect(trial_same_on_threads(&t), "%s", ops[i].name);
    }
}
