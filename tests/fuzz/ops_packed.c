/* ops_packed.c - draws packed documents, mostly ones whose offsets fit their rows. */
#define TP_NO_SITE
#include "ops_fuzzer.h"

enum { MOST_DOCUMENTS = 5 };

/* `n` documents, `rows` rows in total. */
typedef struct documents {
    int64_t n, rows;
    tp_packed of;
} documents;

static documents draw_documents(ops_env *e)
{
    int32_t at[MOST_DOCUMENTS + 1] = { 0 };
    int64_t longest = 0;
    documents d = { .n = ops_byte(e) % (MOST_DOCUMENTS + 1) };
    for (int64_t b = 0; b < d.n; b++) {
        const int64_t rows = ops_byte(e) % 9;
        longest = rows > longest ? rows : longest;
        d.rows += rows;
        at[b + 1] = (int32_t)d.rows;
    }
    const bool others = ops_byte(e) > 200;
    d.of.offset = others ? ops_ids(e, TP_SHAPE(d.n + 1))
                         : tp_from(ops_tape(e), TP_I32, TP_SHAPE(d.n + 1), at);
    d.of.longest = ops_near(e, longest);
    d.rows = ops_near(e, d.rows);
    return d;
}

static tp_tensor packed_attention(ops_env *e, const ops_row *r)
{
    (void)r;
    const documents a = draw_documents(e);
    const documents b = ops_flag(e) ? draw_documents(e) : a;
    const uint8_t how = ops_byte(e);
    const int heads = 1 + how % 3, kv_heads = how & 8 ? 1 : 0;
    const int64_t D = ops_size(e), C = ops_times(heads, D);
    const tp_attn_cfg cfg = { .heads = heads,
                              .kv_heads = kv_heads,
                              .causal = how & 16,
                              .alibi = how & 32,
                              .dropout = how & 64 ? ops_number(e) : 0.0,
                              .keys = how & 128 ? ops_integer(e) : 0 };
    const tp_tensor q = ops_input(e, TP_SHAPE(a.rows, C));
    const tp_tensor k = ops_input(e, TP_SHAPE(b.rows, kv_heads ? D : C));
    const tp_tensor v = ops_input(e, TP_SHAPE(b.rows, kv_heads ? D : C));
    return tp_packed_attention(ops_tape(e), q, k, v, a.of, b.of, cfg);
}

tp_tensor ops_packed_window(ops_env *e, tp_window_attn_cfg cfg)
{
    const documents d = draw_documents(e);
    const int64_t C = ops_times(cfg.heads, ops_size(e)), rank = ops_size(e);
    const tp_shape s = TP_SHAPE(d.rows, C), low = TP_SHAPE(d.n, rank, C);
    cfg.height = ops_near(e, 1);
    cfg.width = d.of.longest;
    cfg.global = ops_near(e, 0);
    cfg.window[0] = cfg.window[1] > 0;
    cfg.halo[0] = 0;
    tp_window_in in = {
        .q = ops_input(e, s), .k = ops_input(e, s), .v = ops_input(e, s), .offset = d.of.offset
    };
    if (ops_flag(e)) {
        in.low_k = ops_input(e, low);
        in.low_v = ops_input(e, low);
    }
    if (ops_flag(e)) in.mask = ops_take(e, TP_SHAPE(d.rows), OPS_MASK).t;
    if (ops_flag(e)) in.low_mask = ops_take(e, TP_SHAPE(d.n, rank), OPS_MASK).t;
    return tp_window_attention_2d(ops_tape(e), in, cfg);
}

static tp_tensor packed_project_kv(ops_env *e, const ops_row *r)
{
    (void)r;
    const documents d = draw_documents(e);
    const int heads = 1 + ops_byte(e) % 3, rank = ops_int(e);
    const int64_t C = ops_times(heads, ops_size(e));
    const tp_tensor k = ops_input(e, TP_SHAPE(d.rows, C));
    const tp_tensor v = ops_input(e, TP_SHAPE(d.rows, C));
    const tp_tensor scores = ops_input(e, TP_SHAPE(d.rows, ops_times(heads, rank)));
    const bool first = ops_flag(e);
    const tp_kv y = tp_packed_project_kv(ops_tape(e), k, v, scores, d.of, heads, rank);
    return first ? y.k : y.v;
}

static tp_tensor packed_sum(ops_env *e, const ops_row *r)
{
    (void)r;
    const documents d = draw_documents(e);
    const tp_shape s = ops_flag(e) ? TP_SHAPE(d.rows, ops_size(e)) : TP_SHAPE(d.rows);
    return tp_packed_sum(ops_tape(e), ops_input(e, s), d.of);
}

static tp_tensor packed_prepend(ops_env *e, const ops_row *r)
{
    (void)r;
    const documents d = draw_documents(e);
    const int64_t width = ops_size(e);
    const tp_tensor first = ops_input(e, TP_SHAPE(d.n, width));
    const tp_tensor x = ops_input(e, TP_SHAPE(d.rows, width));
    tp_packed longer;
    return tp_packed_prepend(ops_tape(e), first, x, d.of, ops_flag(e) ? &longer : NULL);
}

const ops_row ops_packed[] = {
    { .name = "packed_attention", .run = packed_attention },
    { .name = "packed_project_kv", .run = packed_project_kv },
    { .name = "packed_sum", .run = packed_sum },
    { .name = "packed_prepend", .run = packed_prepend },
    { .name = NULL },
};
