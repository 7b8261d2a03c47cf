/* test_determinism.c - bits do not depend on the number of threads: ops (results and gradients) on
 * sizes that split, and a short training run, on 1, 2 and 8 threads and every instruction set. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tapegrad/lm.h>
#include <unistd.h>

#include "support/loops.h"
#include "support/values.h"

#define MAX_IN 9

/* ---- ops: y = f(x), x of the shapes in the table ---- */

static tp_tensor linear(tp_tape *T, const tp_tensor *x)
{
    return tp_linear(T, x[0], x[1], x[2], TP_ACT_GELU);
}

static tp_tensor matmul(tp_tape *T, const tp_tensor *x)
{
    return tp_matmul(T, x[0], x[1]);
}

static tp_tensor matmul_shared(tp_tape *T, const tp_tensor *x)
{
    return tp_matmul_t(T, x[0], false, x[1], true);
}

static tp_tensor layernorm(tp_tape *T, const tp_tensor *x)
{
    return tp_layernorm(T, x[0], x[1], x[2], 1e-5);
}

/* Of k, v, w and b. */
static tp_tensor layernorm_kv(tp_tape *T, const tp_tensor *x)
{
    const tp_kv y = tp_layernorm_kv(T, x[0], x[1], x[2], x[3], 1e-5);
    return tp_concat(T, 0, y.k, y.v);
}

static tp_tensor linear_dropout(tp_tape *T, const tp_tensor *x)
{
    return tp_linear_dropout(T, x[0], x[1], x[2], TP_ACT_GELU, 0.3);
}

static tp_tensor rmsnorm(tp_tape *T, const tp_tensor *x)
{
    return tp_rmsnorm(T, x[0], x[1], 1e-5);
}

static tp_tensor batchnorm(tp_tape *T, const tp_tensor *x)
{
    return tp_batchnorm(T, x[0], x[1], x[2], tp_square(T, x[3]), tp_square(T, x[4]), TP_NONE, 0.1,
                        1e-5);
}

static tp_tensor softmax(tp_tape *T, const tp_tensor *x)
{
    return tp_softmax(T, x[0]);
}
static tp_tensor log_softmax(tp_tape *T, const tp_tensor *x)
{
    return tp_log_softmax(T, x[0]);
}
static tp_tensor gelu(tp_tape *T, const tp_tensor *x)
{
    return tp_gelu(T, x[0]);
}
static tp_tensor multiply(tp_tape *T, const tp_tensor *x)
{
    return tp_mul(T, x[0], x[1]);
}
static tp_tensor sum_all(tp_tape *T, const tp_tensor *x)
{
    return tp_sum(T, x[0], TP_ALL);
}
static tp_tensor sum_first(tp_tape *T, const tp_tensor *x)
{
    return tp_sum(T, x[0], 0);
}
static tp_tensor mean_last(tp_tape *T, const tp_tensor *x)
{
    return tp_mean(T, x[0], -1);
}
static tp_tensor max_middle(tp_tape *T, const tp_tensor *x)
{
    return tp_max(T, x[0], 1);
}
static tp_tensor logsumexp(tp_tape *T, const tp_tensor *x)
{
    return tp_logsumexp(T, x[0], 0);
}

static tp_tensor expand(tp_tape *T, const tp_tensor *x)
{
    return tp_expand(T, x[0], TP_SHAPE(40, 30, 50));
}

static tp_tensor move(tp_tape *T, const tp_tensor *x)
{
    const tp_tensor turned = tp_permute(T, x[0], TP_SHAPE(2, 0, 1));
    return tp_roll(T, tp_concat(T, 1, tp_pad(T, turned, 1, 2, 3, 0.5), turned), 2, 7);
}

static tp_tensor embedding(tp_tape *T, const tp_tensor *x)
{
    return tp_add(T, tp_embedding(T, x[0], x[1], 2.0), tp_embedding(T, x[0], x[1], -0.3));
}

static tp_tensor index_rows(tp_tape *T, const tp_tensor *x)
{
    return tp_index_select(T, tp_index_add(T, x[0], 1, x[2], x[1]), 1, x[2]);
}

static tp_tensor gather(tp_tape *T, const tp_tensor *x)
{
    return tp_gather(T, x[0], 1, x[1]);
}

static tp_tensor scatter_add(tp_tape *T, const tp_tensor *x)
{
    return tp_scatter_add(T, x[0], 1, x[2], x[1]);
}

static tp_tensor dropout(tp_tape *T, const tp_tensor *x)
{
    return tp_dropout(T, x[0], 0.3);
}
static tp_tensor drop_path(tp_tape *T, const tp_tensor *x)
{
    return tp_drop_path(T, x[0], 0.3);
}

static tp_tensor dropout_add(tp_tape *T, const tp_tensor *x)
{
    return tp_dropout_add(T, x[0], x[1], x[2], 0.1);
}

static tp_tensor depthwise_1d(tp_tape *T, const tp_tensor *x)
{
    return tp_depthwise_conv1d(T, x[0], x[1], x[2], (tp_conv_cfg){ .pad = { 1 } });
}

static tp_tensor depthwise_2d(tp_tape *T, const tp_tensor *x)
{
    return tp_depthwise_conv2d(T, x[0], x[1], x[2],
                               (tp_conv_cfg){ .stride = { 2, 2 }, .pad = { 1, 1 } });
}

static tp_tensor conv_2d(tp_tape *T, const tp_tensor *x)
{
    return tp_conv2d(T, x[0], x[1], x[2], (tp_conv_cfg){ .stride = { 2, 2 }, .pad = { 1, 1 } });
}

static tp_tensor attention(tp_tape *T, const tp_tensor *x)
{
    return tp_attention(T, x[0], x[1], x[2], TP_NONE, x[3],
                        (tp_attn_cfg){ .heads = 2, .dropout = 0.1 });
}

static tp_tensor rel_attention(tp_tape *T, const tp_tensor *x)
{
    return tp_rel_attention(T, x[0], x[1], x[2], x[3], x[4], x[5],
                            (tp_attn_cfg){ .heads = 2, .causal = true });
}

static tp_tensor chunk_project(tp_tape *T, const tp_tensor *x)
{
    return tp_chunk_project(T, x[0], x[1], TP_NONE, 2, 16, 3);
}

static tp_tensor ls_attention(tp_tape *T, const tp_tensor *x)
{
    const tp_ls_in in = { x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], 0, 0 };
    return tp_ls_attention(T, in,
                           (tp_ls_attn_cfg){ .heads = 2, .chunk = 16, .rank = 1, .window = 64 });
}

static tp_tensor cross_entropy(tp_tape *T, const tp_tensor *x)
{
    return tp_cross_entropy_smooth(T, x[0], x[1], 0.1, TP_MEAN);
}

static tp_tensor soft_cross_entropy(tp_tape *T, const tp_tensor *x)
{
    return tp_cross_entropy(T, x[0], x[1], TP_EACH);
}

static tp_tensor bce(tp_tape *T, const tp_tensor *x)
{
    return tp_bce_logits(T, x[0], x[1], TP_MEAN);
}

static tp_tensor focal(tp_tape *T, const tp_tensor *x)
{
    return tp_focal(T, x[0], tp_square(T, x[1]), 0.25, 2.0, TP_SUM);
}

static tp_tensor smooth_l1(tp_tape *T, const tp_tensor *x)
{
    return tp_smooth_l1(T, x[0], x[1], 0.5, TP_EACH);
}

static tp_tensor mse(tp_tape *T, const tp_tensor *x)
{
    return tp_mse(T, x[0], x[1], TP_SUM);
}

typedef struct op_case {
    const char *name;
    tp_tensor (*f)(tp_tape *T, const tp_tensor *x);
    int grads;     /* number of leading inputs that need a gradient; the others are constants */
    int64_t below; /* > 0: the constant holds integers in [0, below)                  */
    tp_shape in[MAX_IN];
} op_case;

/* clang-format off */
static const op_case cases[] = {
    { "linear", linear, 3, 0, { { 2, { 1100, 130 } }, { 2, { 515, 130 } }, { 1, { 515 } } } },
    { "matmul", matmul, 2, 0, { { 3, { 9, 130, 65 } }, { 3, { 9, 65, 70 } } } },
    { "matmul, shared", matmul_shared, 2, 0, { { 3, { 9, 130, 65 } }, { 2, { 70, 65 } } } },
    { "layernorm", layernorm, 3, 0, { { 2, { 1003, 130 } }, { 1, { 130 } }, { 1, { 130 } } } },
    { "layernorm_kv", layernorm_kv, 4, 0,
      { { 2, { 1003, 130 } }, { 2, { 570, 130 } }, { 1, { 130 } }, { 1, { 130 } } } },
    { "linear_dropout", linear_dropout, 3, 0,
      { { 2, { 300, 30 } }, { 2, { 515, 30 } }, { 1, { 515 } } } },
    { "rmsnorm", rmsnorm, 2, 0, { { 2, { 1003, 130 } }, { 1, { 130 } } } },
    { "batchnorm", batchnorm, 3, 0,
      { { 2, { 1003, 33 } }, { 1, { 33 } }, { 1, { 33 } }, { 1, { 33 } }, { 1, { 33 } } } },
    { "softmax", softmax, 1, 0, { { 2, { 1003, 67 } } } },
    { "log_softmax", log_softmax, 1, 0, { { 2, { 1003, 67 } } } },
    { "gelu", gelu, 1, 0, { { 1, { 70001 } } } },
    { "mul, broadcast to rows", multiply, 2, 0, { { 2, { 1003, 67 } }, { 1, { 67 } } } },
    { "mul, broadcast to columns", multiply, 2, 0, { { 2, { 67, 1003 } }, { 2, { 67, 1 } } } },
    { "sum of all", sum_all, 1, 0, { { 1, { 70001 } } } },
    { "sum of columns", sum_first, 1, 0, { { 2, { 1003, 67 } } } },
    { "mean of rows", mean_last, 1, 0, { { 2, { 103, 1067 } } } },
    { "max", max_middle, 1, 0, { { 3, { 40, 30, 50 } } } },
    { "logsumexp", logsumexp, 1, 0, { { 2, { 1003, 67 } } } },
    { "expand", expand, 1, 0, { { 2, { 30, 1 } } } },
    { "permute, pad, concat, roll", move, 1, 0, { { 3, { 40, 30, 50 } } } },
    { "embedding", embedding, 1, 50, { { 2, { 50, 130 } }, { 1, { 1003 } } } },
    { "index_add, index_select", index_rows, 2, 30,
      { { 3, { 40, 30, 50 } }, { 3, { 40, 90, 50 } }, { 1, { 90 } } } },
    { "gather", gather, 1, 30, { { 3, { 40, 30, 50 } }, { 3, { 40, 90, 50 } } } },
    { "scatter_add", scatter_add, 2, 30,
      { { 3, { 40, 30, 50 } }, { 3, { 40, 90, 50 } }, { 3, { 40, 90, 50 } } } },
    { "dropout", dropout, 1, 0, { { 1, { 70001 } } } },
    { "drop_path", drop_path, 1, 0, { { 3, { 40, 30, 50 } } } },
    { "dropout_add", dropout_add, 3, 0,
      { { 2, { 1003, 67 } }, { 1, { 67 } }, { 2, { 1003, 67 } } } },
    { "depthwise_conv1d", depthwise_1d, 3, 0,
      { { 3, { 4, 200, 67 } }, { 3, { 67, 1, 3 } }, { 1, { 67 } } } },
    { "depthwise_conv2d", depthwise_2d, 3, 0,
      { { 4, { 3, 33, 20, 67 } }, { 4, { 67, 1, 3, 3 } }, { 1, { 67 } } } },
    { "conv2d", conv_2d, 3, 0,
      { { 4, { 3, 33, 20, 35 } }, { 4, { 67, 35, 3, 3 } }, { 1, { 67 } } } },
    { "attention", attention, 4, 0,
      { { 3, { 2, 300, 32 } }, { 3, { 2, 700, 32 } }, { 3, { 2, 700, 32 } },
        { 3, { 2, 300, 700 } } } },
    { "rel_attention", rel_attention, 6, 0,
      { { 3, { 2, 300, 32 } }, { 3, { 2, 700, 32 } }, { 3, { 2, 700, 32 } }, { 2, { 700, 32 } },
        { 2, { 2, 16 } }, { 2, { 2, 16 } } } },
    { "chunk_project", chunk_project, 2, 0, { { 3, { 2, 640, 32 } }, { 3, { 2, 640, 6 } } } },
    { "ls_attention", ls_attention, 9, 0,
      { { 3, { 2, 256, 32 } }, { 3, { 2, 320, 32 } }, { 3, { 2, 320, 32 } },
        { 3, { 2, 32, 32 } }, { 3, { 2, 32, 32 } }, { 2, { 64, 32 } }, { 2, { 32, 32 } },
        { 2, { 2, 16 } }, { 2, { 2, 16 } } } },
    { "cross_entropy", cross_entropy, 1, 67, { { 2, { 1003, 67 } }, { 1, { 1003 } } } },
    { "cross_entropy, soft", soft_cross_entropy, 1, 0,
      { { 2, { 1003, 67 } }, { 2, { 1003, 67 } } } },
    { "bce_logits", bce, 1, 0, { { 1, { 70001 } }, { 1, { 70001 } } } },
    { "focal", focal, 1, 0, { { 1, { 70001 } }, { 1, { 70001 } } } },
    { "smooth_l1", smooth_l1, 1, 0, { { 1, { 70001 } }, { 1, { 70001 } } } },
    { "mse", mse, 1, 0, { { 1, { 70001 } }, { 1, { 70001 } } } },
};
/* clang-format on */

static tp_tensor make_input(tp_tape *T, const op_case *c, int i)
{
    const int64_t n = elements(c->in[i]);
    double *x = malloc((size_t)n * sizeof *x);
    values_random(x, n, (uint64_t)i + 1);
    const bool constant = i >= c->grads, integer = constant && c->below > 0;
    for (int64_t e = 0; integer && e < n; e++)
        x[e] = (double)(int64_t)((x[e] + 1.0) / 2.0 * (double)c->below);
    const tp_tensor t = constant ? values_constant(T, integer ? TP_I64 : TP_F32, c->in[i], x)
                                 : values_input(T, TP_F32, c->in[i], x);
    free(x);
    return t;
}

/* The result of a case, followed by the gradients of its inputs. */
typedef struct outcome {
    float *data[1 + MAX_IN];
    size_t bytes[1 + MAX_IN];
} outcome;

static void read_piece(tp_tape *T, tp_tensor t, outcome *o, int i)
{
    o->bytes[i] = (size_t)tp_numel(t) * sizeof(float);
    o->data[i] = malloc(o->bytes[i]);
    tp_read(T, t, o->data[i], o->bytes[i]);
}

static outcome run_case(const op_case *c, tp_isa isa, int threads)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = threads, .isa = isa });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 5, .train = true });
    outcome o;
    tp_tensor x[MAX_IN];
    for (int i = 0; i < MAX_IN && c->in[i].ndim > 0; i++) x[i] = make_input(T, c, i);
    const tp_tensor y = c->f(T, x);
    read_piece(T, y, &o, 0);

    double *w = malloc((size_t)tp_numel(y) * sizeof *w);
    values_random(w, tp_numel(y), 77);
    const tp_tensor weights = values_constant(T, TP_F32, tp_shape_of(y), w);
    tp_backward(T, tp_sum(T, tp_mul(T, y, weights), TP_ALL));
    free(w);
    for (int i = 0; i < c->grads; i++) read_piece(T, tp_grad(T, x[i]), &o, 1 + i);
    cr_assert(tp_ok(T), "%s: %s", c->name, tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
    return o;
}

static void compare(const op_case *c, tp_isa isa, int threads, const outcome *one)
{
    outcome o = run_case(c, isa, threads);
    for (int i = 0; i <= c->grads; i++) {
        cr_expect_eq(memcmp(o.data[i], one->data[i], one->bytes[i]), 0,
                     "%s, instruction set %d: %s %d differs on %d threads", c->name, (int)isa,
                     i ? "gradient" : "result", i ? i - 1 : 0, threads);
        free(o.data[i]);
    }
}

Test(determinism, ops)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++) {
        if (!tp_isa_runs(isa)) continue;
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            const outcome one = run_case(&cases[k], isa, 1);
            compare(&cases[k], isa, 1, &one);
            compare(&cases[k], isa, 2, &one);
            compare(&cases[k], isa, 8, &one);
            for (int i = 0; i <= cases[k].grads; i++) free(one.data[i]);
        }
    }
}

/* ---- a training run ---- */

enum { VOCAB = 31, BATCH = 2, TOKENS = 64, STEPS = 3 };

/* The parameters of a small language model after a few updates with dropout, caches and clipping.
 */
static float *train(int threads, size_t *bytes)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = threads });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 2, .train = true });
    tp_ls_lm *lm = calloc(1, sizeof *lm);
    tp_ls_lm_state state = { 0 };
    tp_ls_lm_cfg cfg = tp_ls_lm_tiny(VOCAB);
    cfg.layers = 2;
    cfg.dropout = cfg.emb_dropout = 0.1;
    tp_ls_lm_init(P, lm, "", cfg);
    tp_optim *O = tp_adamw_new(P, &(tp_adamw_opts){ .weight_decay = 0.01 });

    for (int u = 0; u < STEPS; u++) {
        double ids[BATCH * TOKENS];
        values_random(ids, BATCH * TOKENS, (uint64_t)u);
        for (int i = 0; i < BATCH * TOKENS; i++) ids[i] = (int)((ids[i] + 1.0) / 2.0 * VOCAB);
        tp_reset(T);
        const tp_tensor tokens = values_constant(T, TP_I64, TP_SHAPE(BATCH, TOKENS), ids);
        const tp_tensor logits = tp_ls_lm_forward(T, lm, &state, tokens);
        tp_backward(T, tp_cross_entropy(T, logits, tokens, TP_MEAN));
        tp_clip_grad_norm(P, 0.25);
        tp_step(O, 1e-3);
    }
    cr_assert(tp_ok(T) && tp_optim_ok(O), "%s%s", tp_why(T), tp_optim_why(O));

    float *all = malloc((size_t)tp_params_count(P) * sizeof *all);
    *bytes = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const size_t size = (size_t)tp_numel(it.tensor) * sizeof *all;
        if (it.buffer || it.alias_of) continue;
        cr_expect(tp_param_get(P, it.tensor, TP_F32, (char *)all + *bytes, size));
        *bytes += size;
    }
    tp_optim_free(O);
    free(lm);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    return all;
}

Test(determinism, training_run)
{
    static const int threads[] = { 1, 2, 8 };
    size_t bytes, one_bytes;
    float *one = train(1, &one_bytes);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        float *p = train(threads[i], &bytes);
        cr_expect(bytes == one_bytes && memcmp(p, one, bytes) == 0, "%d threads", threads[i]);
        free(p);
    }
    free(one);
}

/* Several threads train at once, each on its own device. */
static void *train_beside(void *arg)
{
    size_t bytes;
    (void)arg;
    return train(2, &bytes);
}

Test(determinism, devices_in_several_threads, .timeout = 120)
{
    enum { N = 3 };
    size_t bytes;
    float *alone = train(1, &bytes);
    pthread_t threads[N];
    for (int i = 0; i < N; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, train_beside, NULL), 0);
    for (int i = 0; i < N; i++) {
        void *p;
        pthread_join(threads[i], &p);
        cr_expect(memcmp(p, alone, bytes) == 0, "thread %d", i);
        free(p);
    }
    free(alone);
}

/* A forked child has none of its parent's worker threads. */
Test(determinism, child_of_a_fork, .timeout = 120)
{
    size_t bytes, ours_bytes;
    int status;
    float *ours = train(2, &ours_bytes);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(60);
        const float *p = train(2, &bytes);
        _exit(bytes == ours_bytes && memcmp(p, ours, bytes) == 0 ? 0 : 1);
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
    free(ours);
}
