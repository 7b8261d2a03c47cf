/* test_models_state.c - segments and caches of the language models: padding, masked caches, states
 * in files, impossible requests. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/lm.h>

#include "support/device.h"
#include "support/folder.h"

typedef struct rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_ls_lm lm;
} rig;

static void open_rig(rig *r, bool masked)
{
    r->D = device_open(&(tp_device_opts){ .threads = 1 });
    r->P = tp_params_new(r->D, &(tp_params_opts){ .seed = 2 });
    r->T = tp_tape_new(r->D, NULL);
    tp_ls_lm_init(
        r->P, &r->lm, "",
        (tp_ls_lm_cfg){
            .vocab = 13,
            .dim = 16,
            .hidden = 24,
            .layers = 2,
            .mem_len = 16,
            .ls = { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8, .masked = masked } },
            .pre_ln = true,
            .gelu = true });
    cr_assert(tp_params_ok(r->P), "%s", tp_params_why(r->P));
}

static void close_rig(rig *r)
{
    tp_tape_free(r->T);
    tp_params_free(r->P);
    tp_device_close(r->D);
}

/* Logits [B,n,13] of tokens from..from+n-1 of a fixed stream. */
static bool step(rig *r, tp_ls_lm_state *s, int64_t B, int from, int n, float *logits)
{
    int32_t x[256];
    for (int i = 0; i < B * n; i++) x[i] = (from + i) * (from + i) % 13;
    tp_reset(r->T);
    const tp_tensor in = tp_from(r->T, TP_I32, TP_SHAPE(B, n), x);
    const tp_tensor y = tp_ls_lm_forward(r->T, &r->lm, s, in);
    return logits ? tp_read(r->T, y, logits, (size_t)(B * n * 13) * sizeof *logits) : tp_ok(r->T);
}

Test(models, padding_is_invisible_to_real_positions)
{
    static rig r;
    float whole[16 * 13], part[10 * 13];
    tp_ls_lm_state a = { 0 }, b = { 0 };
    open_rig(&r, false);
    cr_assert(step(&r, &a, 1, 0, 16, whole) && step(&r, &b, 1, 0, 10, part), "%s", tp_why(r.T));
    for (int i = 0; i < 10 * 13; i++) cr_expect_float_eq(part[i], whole[i], 1e-5f);
    cr_expect_eq(tp_dim(b.cache[0], 1), 16);
    close_rig(&r);
}

Test(models, masked_caches_grow_from_nothing)
{
    static rig r;
    tp_ls_lm_state s = { 0 };
    const int64_t rows[] = { 8, 16, 16 };
    open_rig(&r, true);
    for (int k = 0; k < 3; k++) {
        cr_assert(step(&r, &s, 1, 8 * k, 8, NULL), "%s", tp_why(r.T));
        cr_expect_eq(tp_dim(s.cache[0], 1), rows[k]);
    }
    close_rig(&r);
}

/* A partly real cache gives the results of its real rows. */
Test(models, masked_rows_may_as_well_not_be_there)
{
    enum { L = 16, REAL = 8, M = 8, DIM = 16 };
    static rig r;
    float h[M * DIM], cache[L * DIM], y[2][M * DIM];
    double w[DIM / 2], pe[8 * DIM];
    float table_rows[8 * DIM];
    open_rig(&r, true);
    for (int i = 0; i < M * DIM; i++) h[i] = sinf((float)i);
    for (int i = 0; i < L * DIM; i++) cache[i] = cosf((float)(i * i));
    tp_frequencies(DIM / 2, w);
    tp_sinusoid(8, DIM / 2, w, 0, pe);
    for (int i = 0; i < 8 * DIM; i++) table_rows[i] = (float)pe[i];
    for (int k = 0; k < 2; k++) {
        tp_tape *T = r.T;
        const int64_t rows = k ? REAL : L;
        const tp_tensor all = tp_from(T, TP_F32, TP_SHAPE(1, L, DIM), cache);
        const tp_tensor table = tp_from(T, TP_F32, TP_SHAPE(8, DIM), table_rows);
        const tp_ls_context ctx = { table, tp_slice(T, table, 0, 0, (rows + M) / 4), REAL };
        const tp_tensor out =
            tp_ls_attn_forward(T, &r.lm.layer[0].attn, tp_from(T, TP_F32, TP_SHAPE(1, M, DIM), h),
                               tp_slice(T, all, 1, L - rows, rows), ctx);
        cr_assert(tp_read(T, out, y[k], sizeof y[k]), "%s", tp_why(T));
    }
    for (int i = 0; i < M * DIM; i++) cr_expect_float_eq(y[0][i], y[1][i], 1e-6f);
    close_rig(&r);
}

Test(models, states_in_files_continue_exactly, .init = make_folder, .fini = remove_folder)
{
    static rig r;
    float straight[2 * 8 * 13], resumed[2 * 8 * 13];
    tp_ls_lm_state s = { 0 }, t = { 0 };
    open_rig(&r, false);
    cr_assert(step(&r, &s, 2, 0, 8, NULL), "%s", tp_why(r.T));
    tp_writer *W = tp_writer_new(in_folder("state.safetensors"));
    cr_assert(tp_model_ls_lm.state_write(r.T, &r.lm, &s, W) && tp_writer_commit(W), "%s",
              tp_writer_why(W));
    tp_writer_free(W);
    cr_assert(step(&r, &s, 2, 50, 8, straight), "%s", tp_why(r.T));

    tp_file *F = tp_file_open(in_folder("state.safetensors"));
    cr_assert(tp_model_ls_lm.state_read(r.T, &r.lm, &t, F), "%s", tp_why(r.T));
    tp_file_close(F);
    cr_assert(step(&r, &t, 2, 50, 8, resumed), "%s", tp_why(r.T));
    for (int i = 0; i < 2 * 8 * 13; i++) cr_expect(straight[i] == resumed[i], "logit %d", i);

    /* of another model with a longer cache */
    F = tp_file_open(in_folder("state.safetensors"));
    r.lm.cfg.mem_len = 32;
    cr_expect(!tp_model_ls_lm.state_read(r.T, &r.lm, &t, F));
    cr_expect(strstr(tp_why(r.T), "state.cache.0 is of another shape"), "%s", tp_why(r.T));
    tp_file_close(F);
    close_rig(&r);
}

Test(models, impossible_segments)
{
    static rig r;
    tp_ls_lm_state s = { 0 };
    open_rig(&r, false);
    cr_expect(!step(&r, &s, 1, 0, 12, NULL), "longer than the window and no multiple");
    cr_expect(strstr(tp_why(r.T), "segment of 12 rows is longer than the window of 8"), "%s",
              tp_why(r.T));
    tp_clear(r.T);
    tp_model_ls_lm.state_clear(r.T, &s);
    cr_expect(step(&r, &s, 1, 0, 8, NULL), "%s", tp_why(r.T));
    cr_expect(!step(&r, &s, 2, 0, 8, NULL), "another batch");
    cr_expect(strstr(tp_why(r.T), "holds 1 streams, the tokens are 2"), "%s", tp_why(r.T));
    tp_clear(r.T);
    tp_model_ls_lm.state_clear(r.T, &s);
    cr_expect(step(&r, &s, 2, 0, 8, NULL), "cleared: %s", tp_why(r.T));
    tp_ls_lm_forward(r.T, &r.lm, &s, tp_from(r.T, TP_I32, TP_SHAPE(1), &(int32_t){ 0 }));
    cr_expect(strstr(tp_why(r.T), "tokens must be [batch,length]"), "%s", tp_why(r.T));
    close_rig(&r);
}
