/* ops_transformer.c - fuzzed calls of gated linear units and rotary positions. */
#define TP_NO_SITE
#include "ops_fuzzer.h"

static tp_tensor glu_linear(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int64_t n = ops_size(e), k = ops_dim(x.s, -1);
    const bool both = ops_flag(e);
    const int64_t rows = both ? ops_times(2, n) : n;
    const tp_tensor w = ops_input(e, TP_SHAPE(rows, k)), b = ops_maybe(e, TP_SHAPE(rows));
    const tp_tensor up = both ? TP_NONE : ops_input(e, TP_SHAPE(n, k));
    const tp_tensor b_up = both ? TP_NONE : ops_maybe(e, TP_SHAPE(n));
    const uint8_t kind = ops_byte(e);
    return tp_glu_linear(ops_tape(e), x.t, w, b, up, b_up,
                         (tp_glu_kind)(kind < 250 ? kind % 4 : kind));
}

static tp_tensor rotary(ops_env *e, const ops_row *r)
{
    (void)r;
    const int64_t B = ops_size(e), N = ops_size(e), H = ops_size(e), D = ops_times(2, ops_size(e));
    const int64_t heads = ops_near(e, H);
    const tp_tensor x = ops_input(e, TP_SHAPE(B, N, ops_times(H, D)));
    const uint8_t how = ops_byte(e);
    const tp_tensor positions = how % 3 == 0   ? TP_NONE
                                : how % 3 == 1 ? ops_ids(e, TP_SHAPE(N))
                                               : ops_ids(e, TP_SHAPE(B, N));
    const tp_rotary_cfg cfg = { .heads = heads < INT32_MIN || heads > INT32_MAX ? -1 : (int)heads,
                                .size = ops_flag(e) ? ops_integer(e) : 0,
                                .base = ops_flag(e) ? ops_number(e) : 0.0,
                                .offset = ops_flag(e) ? ops_integer(e) : 0,
                                .interleaved = ops_flag(e) };
    return tp_rotary(ops_tape(e), x, positions, cfg);
}

const ops_row ops_transformer[] = {
    { .name = "glu_linear", .run = glu_linear },
    { .name = "rotary", .run = rotary },
    { .name = NULL },
};
