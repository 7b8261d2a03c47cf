/* test_errors.c - exact error messages, one for each code that the core can raise on a CPU. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

static tp_tape *open_tape(tp_device **D)
{
    *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
    return tp_tape_new(*D, NULL);
}

static void close_tape(tp_device *D, tp_tape *T)
{
    tp_tape_free(T);
    tp_device_close(D);
}

Test(errors, op_inputs_place_and_path)
{
    tp_device *D;
    tp_tape *T = open_tape(&D);
    tp_enter(T, "model");
    tp_enter(T, "layers.3.attn");
    const tp_tensor a = tp_full(T, TP_F32, TP_SHAPE(32, 16), 1.0);
    const tp_tensor b = tp_full(T, TP_F32, TP_SHAPE(64, 64), 1.0);
#line 27 "examples/train.c"
    const tp_tensor y = tp_matmul(T, a, b);
#line 35 "tests/autograd/test_errors.c"
    cr_expect_str_eq(tp_why(T),
                     "matmul: inner sizes differ: 16 and 64\n"
                     "  inputs f32[32,16], f32[64,64]\n"
                     "  at examples/train.c:27, in model > layers.3.attn, op 1 of this "
                     "tape",
                     "%s", tp_why(T));
    cr_expect_eq(tp_code_of(T), TP_E_SHAPE);
    /* failed tensors pass through; the first error stays */
    cr_expect_eq(tp_numel(y), 1);
    cr_expect_eq(tp_dim(y, 5), 1);
    cr_expect(isnan(tp_item(T, tp_sum(T, tp_add(T, y, b), TP_ALL))));
    tp_backward(T, y);
    cr_expect(strstr(tp_why(T), "inner sizes differ"));
    tp_reset(T);
    cr_expect(!tp_ok(T), "reset keeps the error");
    tp_clear(T);
    cr_expect(tp_ok(T));
    close_tape(D, T);
}

/* Each function below makes T fail. */
static void bad_dtype(tp_tape *T)
{
    tp_add(T, tp_full(T, TP_F32, TP_SHAPE(2), 0), tp_full(T, TP_F64, TP_SHAPE(2), 0));
}
static void no_broadcast(tp_tape *T)
{
    tp_add(T, tp_full(T, TP_F32, TP_SHAPE(5), 0), tp_full(T, TP_F32, TP_SHAPE(5, 4), 0));
}
static void missing(tp_tape *T)
{
    tp_add(T, tp_full(T, TP_F32, TP_SHAPE(5), 0), TP_NONE);
}
static void negative_size(tp_tape *T)
{
    tp_full(T, TP_F32, TP_SHAPE(5, -1), 0);
}
static void overflow(tp_tape *T)
{
    tp_from(T, TP_F32, TP_SHAPE(INT64_C(1) << 40, INT64_C(1) << 40), NULL);
}
static void huge(tp_tape *T)
{
    tp_full(T, TP_F32, TP_SHAPE(INT64_C(1) << 55), 0);
}
static void null_host(tp_tape *T)
{
    tp_from(T, TP_F32, TP_SHAPE(2), NULL);
}
static void integer_input(tp_tape *T)
{
    tp_input(T, TP_I32, TP_SHAPE(1), &(int32_t){ 1 });
}
static void item_of_two(tp_tape *T)
{
    tp_item(T, tp_full(T, TP_F32, TP_SHAPE(2), 0));
}
static void raised(tp_tape *T)
{
    tp_raise(T, TP_E_IO, "reader: %s is gone", "corpus.txt");
}

static const struct {
    const char *name;
    void (*run)(tp_tape *T);
    tp_code code;
    const char *part;
} cases[] = {
    { "mixed dtypes", bad_dtype, TP_E_DTYPE, "add: inputs mix f32 and f64; convert with tp_cast" },
    { "no broadcast", no_broadcast, TP_E_SHAPE, "along axis -1 the sizes are 5 in a, 4 in b" },
    { "missing input", missing, TP_E_VALUE, "add: input 1: is missing (TP_NONE)" },
    { "negative size", negative_size, TP_E_SHAPE, "tp_full: impossible shape [5,-1] of 2 axes" },
    { "overflow", overflow, TP_E_SHAPE, "tp_from: impossible shape [1099511627776,1099511627776]" },
    { "no memory", huge, TP_E_MEMORY, "tp_full: out of memory on cpu: requested 134217728.00 GiB" },
    { "no memory: what to do", huge, TP_E_MEMORY,
      "or call tp_reset after each step (this tape has applied " },
    { "NULL host", null_host, TP_E_VALUE, "tp_from: host data is NULL" },
    { "integer input", integer_input, TP_E_DTYPE, "tp_input: i32 tensors have no gradient" },
    { "item of two", item_of_two, TP_E_SHAPE, "tp_item: needs one element, the tensor has 2" },
    { "raised", raised, TP_E_IO, "reader: corpus.txt is gone" },
};

Test(errors, table)
{
    tp_device *D;
    tp_tape *T = open_tape(&D);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cases[i].run(T);
        cr_expect_eq(tp_code_of(T), cases[i].code, "%s: %s", cases[i].name,
                     tp_code_name(tp_code_of(T)));
        cr_expect(strstr(tp_why(T), cases[i].part), "%s: %s", cases[i].name, tp_why(T));
        tp_clear(T);
        tp_reset(T);
    }
    close_tape(D, T);
}

Test(errors, product_of_bf16_and_f32)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, NULL);
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(8, 8), (tp_init){ TP_INIT_CONST, 1, 0 }, 0);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_F64 });
    tp_linear(T, tp_full(T, TP_BF16, TP_SHAPE(4, 8), 1), w, TP_NONE, TP_ACT_NONE);
    cr_expect_eq(tp_code_of(T), TP_E_DTYPE);
    cr_expect(strstr(tp_why(T), "linear: inputs mix bf16 and f32"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

static tp_code same_shape(tp_infer *q)
{
    q->y[0] = q->x[0];
    return TP_OK;
}
static tp_code copy_kernel(const tp_call *c)
{
    memcpy(c->y[0].data, c->x[0].data, (size_t)c->x[0].numel * tp_dtype_size(c->x[0].dtype));
    return TP_OK;
}
static tp_code failing_kernel(const tp_call *c)
{
    strcpy(c->why, "the kernel says no");
    return TP_E_VALUE;
}
static const tp_op forward_only = { .name = "forward_only",
                                    .nx = 1,
                                    .ny = 1,
                                    .shape = same_shape,
                                    .forward = { [TP_CPU] = copy_kernel } };
static const tp_op no_kernel = { .name = "no_kernel", .nx = 1, .ny = 1, .shape = same_shape };
static const tp_op refuses = { .name = "refuses",
                               .nx = 1,
                               .ny = 1,
                               .shape = same_shape,
                               .forward = { [TP_CPU] = failing_kernel } };

static tp_tensor refuse(tp_tape *T, tp_tensor x)
{
    return tp_apply(T, &refuses, NULL, x);
}
#define refuse(T, ...) refuse(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)

Test(errors, the_place_of_a_users_op)
{
    tp_device *D;
    tp_tape *T = open_tape(&D);
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(1), 1.0);
#line 12 "examples/mine.c"
    refuse(T, x);
#line 187 "tests/autograd/test_errors.c"
    cr_expect(strstr(tp_why(T), "refuses: the kernel says no\n  at examples/mine.c:12, op 1"), "%s",
              tp_why(T));
    close_tape(D, T);
}

Test(errors, ops_without_gradient_kernel_or_success)
{
    tp_device *D;
    tp_tape *T = open_tape(&D);
    const float x = 1.0f;
    tp_apply(T, &forward_only, NULL, tp_input(T, TP_F32, TP_SHAPE(1), &x));
    cr_expect_eq(tp_code_of(T), TP_E_NOGRAD);
    cr_expect(strstr(tp_why(T), "forward_only: an input wants a gradient, but the op has no "
                                "backward on cpu"),
              "%s", tp_why(T));
    tp_clear(T);
    tp_apply(T, &forward_only, NULL, tp_from(T, TP_F32, TP_SHAPE(1), &x));
    cr_expect(tp_ok(T), "without a wanted gradient it runs");
    tp_apply(T, &no_kernel, NULL, tp_from(T, TP_F32, TP_SHAPE(1), &x));
    cr_expect_eq(tp_code_of(T), TP_E_NOKERNEL);
    tp_clear(T);
    tp_apply(T, &refuses, NULL, tp_from(T, TP_F32, TP_SHAPE(1), &x));
    cr_expect_eq(tp_code_of(T), TP_E_VALUE);
    cr_expect(strstr(tp_why(T), "refuses: the kernel says no"), "%s", tp_why(T));
    tp_clear(T);
    tp_apply(T, &forward_only, NULL, tp_full(T, TP_F32, TP_SHAPE(1), 1),
             tp_full(T, TP_F32, TP_SHAPE(1), 1));
    cr_expect_eq(tp_code_of(T), TP_E_VALUE, "two inputs for an op of one");
    close_tape(D, T);
}

Test(errors, failed_objects_pass_their_text_on)
{
    tp_device *D = tp_device_open("tpu", NULL);
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    /* a build without CUDA omits it */
    const char *missing = device_cuda_missing();
    const char *text = missing && strstr(missing, "this build of tapegrad has no CUDA")
                           ? "device 'tpu' is unknown; this build has one device, cpu"
                           : "device 'tpu' is unknown; devices are cpu, cuda, cuda:1";
    cr_expect_str_eq(tp_device_why(D), text);
    cr_expect_str_eq(tp_params_why(P), text);
    cr_expect_str_eq(tp_why(T), text);
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(2), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    tp_enter(T, "scope");
    tp_backward(T, tp_leave(T, tp_add(T, w, w)));
    tp_clear(T);
    cr_expect(!tp_ok(T), "a failed birth cannot be forgotten");
    tp_reset(T);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    D = tp_device_open("cuda:1", NULL);
    cr_expect_eq(tp_device_ok(D), false);
    cr_expect(strstr(tp_device_why(D), "cuda:1"), "%s", tp_device_why(D));
    tp_device_close(D);
}

/* ---- the callback ---- */

typedef struct heard {
    int calls;
    tp_code code;
    char text[2048];
} heard;

static void hear(void *env, tp_code code, const char *text)
{
    heard *h = env;
    h->calls++;
    h->code = code;
    snprintf(h->text, sizeof h->text, "%s", text);
}

static void expect_heard(const heard *h, int calls, const char *why, const char *what)
{
    cr_expect_eq(h->calls, calls, "%s: %d calls", what, h->calls);
    cr_expect_str_eq(h->text, why, "%s: %s", what, h->text);
}

Test(errors, the_callback_hears_of_each_error_once)
{
    tp_device *D, *other = tp_device_open("cpu", NULL);
    tp_tape *T = open_tape(&D), *stranger = tp_tape_new(other, NULL);
    tp_params *P = tp_params_new(D, NULL);
    heard h = { 0 };
    tp_device_on_error(D, hear, &h);
    item_of_two(stranger);
    cr_expect_eq(h.calls, 0, "an error of another device");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        h.calls = 0;
        cases[i].run(T);
        expect_heard(&h, 1, tp_why(T), cases[i].name);
        cr_expect_eq(h.code, cases[i].code, "%s", cases[i].name);
        item_of_two(T); /* a failed tape does not fail again */
        cr_expect_eq(h.calls, 1, "%s", cases[i].name);
        tp_clear(T);
        tp_reset(T);
    }
    h.calls = 0;
    tp_param(P, "", TP_SCALAR, (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    expect_heard(&h, 1, tp_params_why(P), "parameters");
    tp_optim *O = tp_adam_new(P, NULL);
    expect_heard(&h, 2, tp_optim_why(O), "an optimiser of failed parameters");
    tp_ema *E = tp_ema_new(P, 0.5);
    expect_heard(&h, 3, tp_ema_why(E), "an average of failed parameters");
    tp_device_on_error(D, NULL, NULL);
    item_of_two(T);
    cr_expect_eq(h.calls, 3, "no callback any more");
    tp_ema_free(E);
    tp_optim_free(O);
    tp_params_free(P);
    tp_tape_free(stranger);
    tp_device_close(other);
    close_tape(D, T);
}

/* NaN weights pass through ops. If a program never checks, its callback is called at the first
 * check: clipping (hence each CPU step) and saving. */
Test(errors, the_callback_hears_of_nan)
{
    tp_device *D;
    tp_tape *T = open_tape(&D);
    tp_params *P = tp_params_new(D, NULL);
    const float nan = NAN;
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(1), (tp_init){ TP_INIT_CONST, 1.0, 0 }, 0);
    tp_optim *O = tp_sgd_new(P, NULL);
    heard h = { 0 };
    tp_device_on_error(D, hear, &h);
    cr_assert(tp_param_set(P, w, TP_F32, &nan, sizeof nan));
    for (int step = 1; step <= 2; step++) {
        tp_reset(T);
        tp_backward(T, tp_sum(T, tp_square(T, w), TP_ALL));
        tp_clip_grad_norm(P, 1.0);
        cr_expect_not(tp_step(O, 0.1));
        expect_heard(&h, step, tp_optim_why(O), "a step");
        cr_expect_eq(h.code, TP_E_NONFINITE);
        tp_grad_clear(P);
    }
    tp_backward(T, tp_sum(T, tp_square(T, w), TP_ALL));
    cr_expect(tp_step(O, 0.1), "without clipping nobody looks");
    cr_expect(tp_ok(T), "%s", tp_why(T));
    cr_expect_not(tp_save(P, "never.safetensors"));
    expect_heard(&h, 3, tp_params_why(P), "tp_save");
    cr_expect_eq(h.code, TP_E_NONFINITE, "%s", tp_code_name(h.code));
    tp_optim_free(O);
    tp_params_free(P);
    close_tape(D, T);
}

Test(errors, a_device_that_never_opened_is_reported_at_once)
{
    tp_device *D = tp_device_open("tpu", NULL);
    heard h = { 0 };
    tp_device_on_error(D, hear, &h);
    expect_heard(&h, 1, tp_device_why(D), "device");
    tp_tape *T = tp_tape_new(D, NULL);
    expect_heard(&h, 2, tp_why(T), "a tape on it");
    tp_device_on_error(NULL, hear, &h);
    close_tape(D, T);
}

static void leave(void *env, tp_code code, const char *text)
{
    (void)env;
    (void)text;
    exit(code == TP_E_SHAPE ? 3 : 4);
}

Test(errors, the_callback_may_end_the_process, .exit_code = 3)
{
    tp_device *D;
    tp_tape *T = open_tape(&D);
    tp_device_on_error(D, leave, NULL);
    item_of_two(T);
    cr_expect(false, "not reached");
}

Test(errors, null_objects)
{
    tp_tape *T = NULL;
    const float v = 1.0f;
    tp_enter(T, "model");
    const tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(1), &v);
    tp_backward(T, tp_leave(T, tp_sum(T, tp_apply(T, &refuses, NULL, x), TP_ALL)));
    cr_expect(isnan(tp_item(T, tp_raise(T, TP_E_IO, "reader"))));
    tp_train(T, true);
    cr_expect_not(tp_record(T, true) || tp_is_training(T));
    tp_reset(T);
    tp_clear(T);
    cr_expect_not(tp_ok(T));
    tp_tensor slot = TP_NONE; /* calls functions instead of macros, as with TP_NO_SITE */
    (tp_input)(T, TP_F32, TP_SHAPE(1), &v);
    (tp_from)(T, TP_F32, TP_SHAPE(1), &v);
    (tp_backward)(T, (tp_sum)(T, (tp_full)(T, TP_F32, TP_SHAPE(2), 1.0), TP_ALL));
    cr_expect(isnan((tp_item)(T, (tp_grad)(T, (tp_keep)(T, (tp_detach)(T, x))))));
    (tp_carry)(T, &slot, (tp_checkpoint)(T, NULL, NULL, (tp_checkpoint_n)(T, NULL, NULL, 1, &x)));
    (tp_write_rows)(T, (tp_feed)(T, &slot, TP_F32, TP_SHAPE(1), &v), 0, x);
    cr_expect_not((tp_read)(T, x, &slot, sizeof v) || tp_given(slot));
    cr_expect_str_eq(tp_why(T),
                     "tape: NULL was given in place of a tape; make one with tp_tape_new");
    tp_tape_free(T);

    tp_params *P = tp_params_new(NULL, NULL);
    cr_expect_str_eq(tp_params_why(P), "params: NULL was given in place of a device");
    tp_param(P, "w", TP_SHAPE(1), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    T = tp_tape_new(NULL, NULL);
    cr_expect_str_eq(tp_why(T), "tape: NULL was given in place of a device");
    tp_optim *O = tp_adam_new(NULL, NULL);
    cr_expect_str_eq(tp_optim_why(O), "adam: NULL was given in place of a parameter set");
    tp_ema *E = tp_ema_new(NULL, 0.5);
    cr_expect_str_eq(tp_ema_why(E), "ema: NULL was given in place of a parameter set");
    tp_ema_update(E);
    tp_ema_swap(E);
    cr_expect_not(tp_step(O, 0.1) || tp_step(NULL, 0.1));
    cr_expect_not(tp_device_ok(NULL) || tp_params_ok(NULL) || tp_optim_ok(NULL) || tp_ema_ok(NULL));
    tp_ema_free(E);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
}

Test(errors, null_buffers)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_params *P = tp_params_new(D, NULL);
    const float v = 1.0f;
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(1), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    cr_expect_not(tp_read(T, tp_input(T, TP_F32, TP_SHAPE(1), &v), NULL, sizeof v));
    cr_expect(strstr(tp_why(T), "tp_read: NULL was given in place of a buffer"), "%s", tp_why(T));
    cr_expect_not(tp_param_get(P, w, TP_F32, NULL, sizeof v));
    cr_expect_str_eq(tp_params_why(P), "parameter 'w': NULL was given in place of a buffer");
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

Test(errors, two_devices_of_one_name)
{
    tp_device *D, *E = tp_device_open("cpu", NULL);
    tp_tape *T = open_tape(&D);
    tp_params *P = tp_params_new(E, NULL);
    tp_square(T, tp_param(P, "w", TP_SHAPE(2), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0));
    cr_expect(strstr(tp_why(T), "square: input 0: the parameter lives on cpu, the tape on another "
                                "device opened as cpu; open a device once and give it to both"),
              "%s", tp_why(T));
    tp_params_free(P);
    close_tape(D, T);
    tp_device_close(E);
}

Test(errors, missing_gpu_is_one_sentence)
{
    const char *text = device_cuda_missing();
    if (!text) cr_skip_test("there is a GPU, or the emulation of one");
    tp_device *D = tp_device_open("cuda", NULL);
    cr_expect_str_eq(tp_device_why(D), text);
    cr_expect_eq(tp_device_ok(D), false);
    tp_device_close(D);
}

Test(errors, codes_have_names_and_texts)
{
    for (int c = TP_OK; c <= TP_E_BUG; c++) {
        cr_expect(strncmp(tp_code_name((tp_code)c), "TP_", 3) == 0);
        cr_expect(strlen(tp_code_text((tp_code)c)) > 5);
    }
    cr_expect_str_eq(tp_code_name(TP_E_NOGRAD), "TP_E_NOGRAD");
}

Test(errors, numbers_that_integers_do_not_have)
{
    tp_device *D;
    tp_tape *T = open_tape(&D);
    const double x[] = { 2.9, -2.9, 1e300, -INFINITY, (double)NAN };
    const int64_t wide[] = { 2, -2, INT64_MAX, INT64_MIN, 0 };
    const int32_t narrow[] = { 2, -2, INT32_MAX, INT32_MIN, 0 };
    const uint8_t byte[] = { 2, 0, UINT8_MAX, 0, 0 };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        int64_t a;
        int32_t b;
        uint8_t c;
        tp_read(T, tp_full(T, TP_I64, TP_SHAPE(1), x[i]), &a, sizeof a);
        tp_read(T, tp_full(T, TP_I32, TP_SHAPE(1), x[i]), &b, sizeof b);
        tp_read(T, tp_full(T, TP_U8, TP_SHAPE(1), x[i]), &c, sizeof c);
        cr_expect(a == wide[i] && b == narrow[i] && c == byte[i], "%g", x[i]);
    }
    cr_expect(tp_ok(T), "%s", tp_why(T));
    close_tape(D, T);
}
