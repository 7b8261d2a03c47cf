/* test_plan.c - a dry device predicts a run's memory to the byte, and `enwik8 train` uses the
 * memory that it forecasts. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tapegrad/lm.h>

#include "support/device.h"
#include "support/enwik8.h"

enum { VOCAB = 19, UPDATES = 3, MAX_CELLS = 4096 };

/* ---- the library: a dry device against a real one ---- */

typedef struct recipe {
    const char *name;
    bool xl;
    tp_recompute recompute;
    int64_t batch, tokens, mem_len;
    tp_dtype dtype;
    double dropout, momentum; /* momentum: SGD instead of AdamW */
    bool ema, masked, gelu, eval;
    int accumulation, threads;
} recipe;

static const recipe recipes[] = {
    { .name = "plain", .batch = 1, .tokens = 64, .mem_len = 64 },
    { .name = "batch, dropout", .batch = 3, .tokens = 64, .mem_len = 128, .dropout = 0.2 },
    { .name = "long cache", .batch = 2, .tokens = 32, .mem_len = 96, .masked = true },
    { .name = "padded tokens", .batch = 2, .tokens = 52, .mem_len = 64 },
    { .name = "attention again", .batch = 2, .tokens = 32, .mem_len = 32, .recompute = 1 },
    { .name = "block again",
      .batch = 2,
      .tokens = 32,
      .mem_len = 32,
      .recompute = 2,
      .gelu = true },
    { .name = "bf16", .batch = 2, .tokens = 32, .mem_len = 32, .dtype = TP_BF16 },
    { .name = "f64", .batch = 2, .tokens = 64, .mem_len = 64, .dtype = TP_F64, .recompute = 1 },
    { .name = "accumulation", .batch = 2, .tokens = 64, .mem_len = 64, .accumulation = 3 },
    { .name = "everything",
      .batch = 2,
      .tokens = 256,
      .mem_len = 256,
      .dropout = 0.1,
      .accumulation = 2,
      .ema = true,
      .eval = true,
      .threads = 2 },
    { .name = "sgd", .batch = 2, .tokens = 64, .mem_len = 64, .momentum = 0.9, .threads = 3 },
    { .name = "xl", .xl = true, .batch = 2, .tokens = 48, .mem_len = 64, .dropout = 0.1 },
    { .name = "xl, block again",
      .xl = true,
      .batch = 2,
      .tokens = 48,
      .mem_len = 64,
      .recompute = 2 },
    { .name = "xl, bf16, average",
      .xl = true,
      .batch = 3,
      .tokens = 48,
      .mem_len = 48,
      .dtype = TP_BF16,
      .ema = true,
      .eval = true },
};

typedef struct model {
    tp_ls_lm ls;
    tp_txl txl;
    tp_ls_lm_state ls_state, ls_eval;
    tp_txl_state txl_state, txl_eval;
} model;

static void declare(tp_params *P, model *m, const recipe *r)
{
    if (r->xl) {
        tp_model_txl.init(P, &m->txl, "",
                          &(tp_txl_cfg){ .vocab = VOCAB,
                                         .dim = 24,
                                         .hidden = 40,
                                         .d_head = 8,
                                         .layers = 3,
                                         .heads = 3,
                                         .mem_len = r->mem_len,
                                         .dropout = r->dropout,
                                         .att_dropout = r->dropout,
                                         .recompute = r->recompute });
        return;
    }
    tp_ls_lm_cfg c = tp_ls_lm_tiny(VOCAB);
    c.dim = 24;
    c.hidden = 40;
    c.mem_len = r->mem_len;
    c.ls = (tp_ls_cfg){
        .attn = { .heads = 3, .chunk = 8, .rank = 2, .window = 16, .masked = r->masked }
    };
    c.gelu = r->gelu;
    c.dropout = c.emb_dropout = r->dropout;
    c.recompute = r->recompute;
    tp_ls_lm_init(P, &m->ls, "", c);
}

static tp_tensor loss_of(tp_tape *T, model *m, const recipe *r, bool eval)
{
    static int32_t ids[MAX_CELLS];
    const tp_shape s = TP_SHAPE(r->batch, r->tokens);
    for (int i = 0; i < MAX_CELLS; i++) ids[i] = i * i % VOCAB;
    tp_reset(T);
    const tp_tensor x = tp_from(T, TP_I32, s, ids), y = tp_from(T, TP_I32, s, ids + 1);
    const tp_tensor logits =
        r->xl ? tp_model_txl.forward(T, &m->txl, eval ? &m->txl_eval : &m->txl_state, x)
              : tp_ls_lm_forward(T, &m->ls, eval ? &m->ls_eval : &m->ls_state, x);
    return tp_cross_entropy(T, logits, y, TP_MEAN);
}

/* Runs a short training and returns the device's statistics. */
static tp_stats train(const recipe *r, const char *device, bool dry)
{
    tp_device *D = tp_device_open(device, &(tp_device_opts){ .threads = r->threads, .dry = dry });
    const tp_dtype weights = r->dtype == TP_F64 ? TP_F64 : TP_F32;
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3, .dtype = weights });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 5, .train = true, .compute = r->dtype });
    tp_tape *E = tp_tape_new(D, &(tp_tape_opts){ .compute = r->dtype, .check_finite = true });
    model *m = calloc(1, sizeof *m);
    cr_assert(m);
    tp_record(E, false);
    declare(P, m, r);
    tp_optim *O = r->momentum > 0 ? tp_sgd_new(P, &(tp_sgd_opts){ .momentum = r->momentum })
                                  : tp_adamw_new(P, NULL);
    tp_ema *A = r->ema ? tp_ema_new(P, 0.9) : NULL;
    for (int u = 0; u < UPDATES; u++) {
        for (int k = 0; k < (r->accumulation ? r->accumulation : 1); k++) {
            const tp_tensor loss = loss_of(T, m, r, false);
            tp_backward(T, loss);
            const double value = tp_item(T, loss);
            cr_expect(dry ? value == 0 : value > 0, "%s: loss %g", r->name, value);
        }
        tp_clip_grad_norm(P, 0.1);
        cr_assert(tp_step(O, 1e-3), "%s: %s", r->name, tp_optim_why(O));
        if (A) tp_ema_update(A);
        if (A) tp_ema_swap(A);
        if (r->eval) tp_item(E, loss_of(E, m, r, true));
        if (A) tp_ema_swap(A);
    }
    cr_assert(tp_ok(T) && tp_ok(E) && tp_params_ok(P), "%s: %s%s", r->name, tp_why(T), tp_why(E));
    const tp_stats s = tp_device_stats(D);
    tp_ema_free(A);
    tp_optim_free(O);
    tp_tape_free(E);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    free(m);
    return s;
}

static void compare(const recipe *r, const char *device)
{
    const char *name = r->name;
    const tp_stats dry = train(r, device, true), real = train(r, device, false);
    cr_expect_eq(dry.peak_bytes, real.peak_bytes, "%s, %s: peak %zu, predicted %zu", device, name,
                 real.peak_bytes, dry.peak_bytes);
    cr_expect_eq(dry.held_peak_bytes, real.held_peak_bytes, "%s, %s: held %zu, predicted %zu",
                 device, name, real.held_peak_bytes, dry.held_peak_bytes);
    cr_expect_eq(dry.live_bytes, real.live_bytes, "%s, %s: live", device, name);
    cr_expect_eq(dry.cached_bytes, real.cached_bytes, "%s, %s: cached", device, name);
    cr_expect_eq(dry.allocs, real.allocs, "%s, %s: allocations", device, name);
    cr_expect_eq(dry.launches, real.launches, "%s, %s: kernels", device, name);
    cr_expect(real.peak_bytes > 0 && real.held_peak_bytes > real.peak_bytes / 2, "%s", name);
}

Test(plan, a_dry_device_counts_as_a_real_one)
{
    device_cpu_only();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) compare(&recipes[i], "cpu");
}

Test(plan, a_dry_gpu_counts_as_a_real_one, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (recipes[i].dtype == TP_BF16 || (recipes[i].recompute && recipes[i].dtype == TP_F32))
            compare(&recipes[i], "cuda");
}

/* Tensors larger than any machine's memory touch nothing; shape errors are still reported. */
Test(plan, a_dry_device_touches_nothing)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_tape *T = tp_tape_new(D, NULL);
    const int64_t n = (int64_t)1 << 20;
    const tp_tensor a = tp_full(T, TP_F32, TP_SHAPE(n, n), 3.0), b = tp_add(T, a, a);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    cr_expect_eq(tp_device_stats(D).live_bytes, (size_t)8 << 40);
    cr_expect_eq(tp_item(T, tp_sum(T, b, TP_ALL)), 0.0);
    tp_matmul(T, b, tp_full(T, TP_F32, TP_SHAPE(3, 3), 1.0));
    cr_expect_eq(tp_code_of(T), TP_E_SHAPE, "%s", tp_why(T));
    tp_tape_free(T);
    cr_expect_eq(tp_device_stats(D).live_bytes, 0);
    tp_device_close(D);
}

Test(plan, a_dry_device_saves_nothing)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/tapegrad-plan-%d.safetensors", (int)getpid());
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_param(P, "w", TP_SHAPE(5), (tp_init){ 0 }, 0);
    tp_writer *W = tp_writer_new(path);
    tp_params_write(P, W, "");
    cr_expect(!tp_writer_commit(W));
    cr_expect(strstr(tp_writer_why(W), "'w' lives on a dry device, which holds no values"), "%s",
              tp_writer_why(W));
    cr_expect(access(path, F_OK) != 0);
    tp_writer_free(W);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- the program ---- */

/* The number after the last `what` in the program's output, or -1. */
static double number_after(const char *what)
{
    const char *at = NULL;
    for (const char *s = out; (s = strstr(s, what)) != NULL; s++) at = s + strlen(what);
    return at ? strtod(at, NULL) : -1;
}

#define MIDDLE                                                                                     \
    "train --data text --layers 2 --dim 96 --heads 3 --hidden 384 --tokens 256 --mem-len 256 "     \
    "--batch 6 --eval-tokens 300 "

/* A run of two validated updates agrees with its own forecast and with the plan of its flags. */
Test(plan, a_run_uses_the_planned_memory, .init = enwik8_begin, .fini = program_end, .timeout = 900)
{
    device_cpu_only();
    static const char *const flags[] = { "", "--recompute block --ema 0.9 --accumulation 2",
                                         "--model txl --d-head 32 --recompute attention" };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char args[512];
        snprintf(args, sizeof args, MIDDLE "%s --steps 2 --eval-every 1 --log-every 1 --overwrite",
                 flags[i]);
        succeed("%s", args);
        const double said = number_after("a step needs "), whole = number_after("the process ");
        slurp("runs/enwik8/log.jsonl", out, sizeof out);
        const double used = number_after("\"memory\":") / 1e6;
        cr_expect(fabs(said - used) < 0.02 * used, "%s: %g MB were forecast, %g used", args, said,
                  used);
        snprintf(args, sizeof args, MIDDLE "%s --plan --steps 2 --run-dir none", flags[i]);
        succeed("%s", args);
        cr_expect(access("none", F_OK) != 0, "%s: a plan makes no folder", args);
        const char *row = strstr(out, "peak of a step"), *columns = strstr(out, "--recompute");
        cr_assert(row && columns, "%s", out);
        double peak[3] = { 0 };
        sscanf(row, "peak of a step %lf %lf %lf", &peak[0], &peak[1], &peak[2]);
        const int chosen = strstr(flags[i], "block") ? 2 : strstr(flags[i], "attention") ? 1 : 0;
        static const char *const marks[] = { "*none", "*attention", "*block" };
        cr_expect(strstr(columns, marks[chosen]), "%s: %s", args, out);
        cr_expect(fabs(peak[chosen] - used) < 0.02 * used, "%s: %g MB planned, %g used", args,
                  peak[chosen], used);
        cr_expect(peak[0] > peak[1] && peak[1] > peak[2], "%s: %s", args, out);
        cr_expect(strstr(out, "Time here: about "), "%s: %s", args, out);
        cr_expect(whole > 0.5 * said, "%s: process %g, device %g", args, whole, said);
    }
    expect_refusal("train --data text --plan --resume", 1, "leave out --resume");
}

/* A validation with averages that the optimiser keeps needs a copy of the weights. */
Test(plan, averages_of_the_optimiser_are_planned, .init = enwik8_begin, .fini = program_end)
{
    device_cpu_only();
    succeed("train --data text --layers 2 --dim 192 --heads 3 --hidden 3072 --tokens 16 "
            "--mem-len 16 --chunk 4 --window 8 --batch 1 --eval-tokens 60 --steps 2 --eval-every 1 "
            "--log-every 1 --optimizer schedulefree");
    const double said = number_after("a step needs ");
    slurp("runs/enwik8/log.jsonl", out, sizeof out);
    const double used = number_after("\"memory\":") / 1e6;
    cr_expect(fabs(said - used) < 0.02 * used, "%g MB were forecast, %g used", said, used);
}

/* Forecasts process memory as the operating system counts it. */
Test(plan, the_process_is_planned, .init = enwik8_begin, .fini = program_end, .timeout = 900)
{
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("the address sanitizer uses its own memory");
#endif
    struct rusage use;
    succeed(MIDDLE "--steps 2");
    getrusage(RUSAGE_CHILDREN, &use);
    const double said = number_after("the process "), used = (double)use.ru_maxrss * 1024 / 1e6;
    cr_expect(fabs(said - used) < 0.1 * used, "%g MB were forecast, %g used", said, used);
}
