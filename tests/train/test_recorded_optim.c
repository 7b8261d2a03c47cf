/* test_recorded_optim.c - whole training steps in a recording: forward, dropout, backward,
 * clipping, the optimiser, averages. Their results have the same bits as without a recording, with
 * schedules of rates, options and factors; what cannot be recorded is refused with a reason. On the
 * CPU nothing is recorded, and the same program runs. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <tapegrad/optim_kind.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/values.h"

enum { STEPS = 20, ROWS = 6, IN = 10, OUT = 8, EAGER = 2 }; /* EAGER: steps before the recording */

typedef struct net {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_ema *E;
    tp_capture *C; /* NULL: without */
    tp_tensor w, b, x, loss, norm;
} net;

static net make(const char *kind, const tp_optim_value *values, bool capture)
{
    net m = { .D = device_open(NULL), .x = TP_NONE, .loss = TP_NONE, .norm = TP_NONE };
    const tp_init draw = { TP_INIT_NORMAL, 0.5, 0.0 };
    m.P = tp_params_new(m.D, &(tp_params_opts){ .seed = 3 });
    m.w = tp_param(m.P, "layer.weight", TP_SHAPE(OUT, IN), draw, 0);
    m.b = tp_param(m.P, "layer.bias", TP_SHAPE(OUT), draw, 0);
    m.T = tp_tape_new(m.D, &(tp_tape_opts){ .seed = 5, .train = true });
    m.O = tp_optim_new(m.P, kind, &(tp_optim_opts){ .values = values });
    m.E = tp_ema_new(m.P, 0.9);
    m.C = capture ? tp_capture_new(m.T) : NULL;
    return m;
}

static void destroy(net *m)
{
    cr_expect(tp_ok(m->T) && tp_optim_ok(m->O) && tp_ema_ok(m->E), "%s%s%s", tp_why(m->T),
              tp_optim_why(m->O), tp_ema_why(m->E));
    tp_capture_free(m->C);
    tp_ema_free(m->E);
    tp_optim_free(m->O);
    tp_tape_free(m->T);
    tp_params_free(m->P);
    cr_expect_eq(tp_device_stats(m->D).live_bytes, 0, "memory is returned");
    tp_device_close(m->D);
}

static void feed(net *m, int i)
{
    double x[ROWS * IN];
    float f[ROWS * IN];
    values_random(x, ROWS * IN, 100 + (uint64_t)i);
    for (int k = 0; k < ROWS * IN; k++) f[k] = (float)x[k];
    tp_feed(m->T, &m->x, TP_F32, TP_SHAPE(ROWS, IN), f);
}

static double rate(int i)
{
    return tp_lr_cosine(i, 3, STEPS, 0.05, 0.001);
}

static void differentiate(net *m)
{
    const tp_tensor h = tp_linear(m->T, tp_dropout(m->T, m->x, 0.3), m->w, m->b, TP_ACT_NONE);
    m->loss = tp_mean(m->T, tp_square(m->T, tp_gelu(m->T, h)), TP_ALL);
    tp_backward(m->T, m->loss);
}

/* What stands between begin and end. */
static void whole(net *m, double lr)
{
    differentiate(m);
    m->norm = tp_clip_grad_norm(m->P, 0.4);
    tp_step(m->O, lr);
    tp_ema_update(m->E);
}

static void step(net *m, int i)
{
    feed(m, i);
    tp_next_rate(m->O, rate(i));
    if (!m->C) tp_reset(m->T);
    if (!m->C || tp_capture_begin(m->C)) {
        whole(m, rate(i));
        if (m->C) tp_capture_end(m->C);
    }
}

typedef struct answer {
    double loss[STEPS], norm[STEPS];
    float w[OUT * IN], b[OUT], averages[OUT * IN];
    int64_t updates, launches;
} answer;

static void read_all(net *m, answer *a)
{
    cr_expect(tp_param_get(m->P, m->w, TP_F32, a->w, sizeof a->w));
    cr_expect(tp_param_get(m->P, m->b, TP_F32, a->b, sizeof a->b));
    cr_expect(tp_ema_swap(m->E));
    cr_expect(tp_param_get(m->P, m->w, TP_F32, a->averages, sizeof a->averages));
    cr_expect(tp_ema_swap(m->E));
    a->updates = tp_optim_updates(m->O);
    a->launches = tp_capture_launches(m->C);
}

static void note(net *m, int i, answer *a)
{
    a->loss[i] = tp_item(m->T, m->loss);
    a->norm[i] = tp_item(m->T, m->norm);
}

/* launches: of the recorded run, on a GPU. */
static void expect_same(const char *what, const answer *plain, answer *recorded, int64_t launches)
{
    cr_expect_eq(recorded->launches, device_is_cuda() ? launches : 0, "%s: %d launches", what,
                 (int)recorded->launches);
    recorded->launches = plain->launches;
    for (int i = 0; i < STEPS; i++)
        cr_expect(recorded->loss[i] == plain->loss[i] && recorded->norm[i] == plain->norm[i],
                  "%s: step %d: loss %.9g, norm %.9g, without a recording %.9g, %.9g", what, i,
                  recorded->loss[i], recorded->norm[i], plain->loss[i], plain->norm[i]);
    cr_expect(memcmp(recorded, plain, sizeof *plain) == 0, "%s: other bits", what);
}

TestSuite(recorded_optim, .init = make_folder, .fini = remove_folder);

/* ---- every optimiser ---- */

static const tp_optim_value momentum[] = { { "momentum", 0.9 },
                                           { "weight_decay", 0.01 },
                                           { NULL, 0 } };
static const tp_optim_value decay[] = { { "weight_decay", 0.1 }, { NULL, 0 } };
static const tp_optim_value slower[] = { { "lr_decay", 0.1 }, { NULL, 0 } };
static const struct {
    const char *kind;
    const tp_optim_value *values;
} forms[] = {
    { "sgd", NULL },           { "sgd", momentum },    { "qhm", NULL },
    { "adamw", decay },        { "adam", decay },      { "adamw-vil", decay },
    { "rmsprop", momentum },   { "adagrad", slower },  { "lion", decay },
    { "lamb", decay },         { "adafactor", decay }, { "muon", decay },
    { "schedulefree", decay },
};

static void run(int form, bool capture, answer *a)
{
    net m = make(forms[form].kind, forms[form].values, capture);
    memset(a, 0, sizeof *a);
    for (int i = 0; i < STEPS; i++) {
        step(&m, i);
        note(&m, i, a);
    }
    read_all(&m, a);
    destroy(&m);
}

Test(recorded_optim, all_have_the_bits_of_eager_steps)
{
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        static answer plain, recorded;
        run((int)k, false, &plain);
        run((int)k, true, &recorded);
        expect_same(forms[k].kind, &plain, &recorded, STEPS - EAGER);
        cr_expect_eq(recorded.updates, STEPS);
    }
}

/* ---- what may change between two steps ---- */

typedef enum change {
    FACTOR,
    OPTION,
    NEW_STATE,
    ITERATIONS,
    FREEZING,
    UNFREEZING,
    OTHER_STEPS,
    AVERAGES,
    FILES,
    CHANGES
} change;

static const struct {
    const char *name, *kind;
    int launches;
} changes[CHANGES] = {
    { "a factor on gradients", "adamw", STEPS - EAGER },
    { "an option", "adamw", STEPS - EAGER },
    { "a state that becomes necessary", "sgd", STEPS - 2 * EAGER },
    { "another number of kernels", "muon", STEPS - 2 * EAGER },
    { "a frozen parameter", "adamw", STEPS - 2 * EAGER },
    { "a parameter no longer frozen", "adamw", STEPS - 2 * EAGER },
    { "steps outside", "adamw", STEPS - EAGER },
    { "averages for validation", "schedulefree", STEPS - EAGER },
    { "a checkpoint", "adam", STEPS - EAGER },
};

/* A step of the same optimiser with gradients of the program's own. */
static void step_outside(net *m)
{
    const float g[OUT] = { 1, -2, 3, -4 };
    cr_expect(tp_param_set_grad(m->P, m->b, TP_F32, g, sizeof g));
    cr_expect(tp_step(m->O, 0.01), "%s", tp_optim_why(m->O));
}

static void write_and_read(net *m, const char *path)
{
    tp_writer *W = tp_writer_new(path);
    tp_optim_write(m->O, W, "");
    cr_expect(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    for (int i = 0; i < 2; i++) step_outside(m);
    tp_file *F = tp_file_open(path);
    cr_expect(tp_optim_read(m->O, F, ""), "%s", tp_optim_why(m->O));
    tp_file_close(F);
}

/* Gives the bias no moments. */
static void begin_frozen(net *m)
{
    tp_freeze(m->P, "layer.bias", true);
    tp_optim_free(m->O);
    m->O = tp_adamw_new(m->P, NULL);
}

static void make_change(net *m, change what)
{
    switch (what) {
    case OPTION: tp_optim_set(m->O, "beta2", 0.9); break;
    case NEW_STATE: tp_optim_set(m->O, "momentum", 0.5); break;
    case ITERATIONS: tp_optim_set(m->O, "newton_schulz", 3); break;
    case FREEZING: tp_freeze(m->P, "layer.bias", true); break;
    case UNFREEZING: tp_freeze(m->P, "layer.bias", false); break;
    case OTHER_STEPS: step_outside(m); break;
    case AVERAGES:
        cr_expect(tp_optim_swap(m->O) && tp_optim_swap(m->O), "%s", tp_optim_why(m->O));
        break;
    case FILES: write_and_read(m, in_folder("optim.safetensors")); break;
    default: break;
    }
}

Test(recorded_optim, notices_changes)
{
    for (change what = FACTOR; what < CHANGES; what++) {
        static answer a[2];
        memset(a, 0, sizeof a);
        for (int capture = 0; capture < 2; capture++) {
            net m = make(changes[what].kind, NULL, capture);
            if (what == UNFREEZING) begin_frozen(&m);
            for (int i = 0; i < STEPS; i++) {
                if (i == 9) make_change(&m, what);
                if (what == FACTOR && i % 3 == 1) tp_grad_scale(m.O, 0.25 * i);
                step(&m, i);
                note(&m, i, &a[capture]);
            }
            read_all(&m, &a[capture]);
            destroy(&m);
        }
        expect_same(changes[what].name, &a[0], &a[1], changes[what].launches);
    }
}

/* ---- what is refused ---- */

static void expect_refused(net *m, const char *said)
{
    cr_expect_not(tp_optim_ok(m->O));
    cr_expect(strstr(tp_optim_why(m->O), said), "%s", tp_optim_why(m->O));
    tp_grad_clear(m->P);
}

/* Begins a step, which must not be a launch, and runs it up to the optimiser. */
static void begin(net *m, int i)
{
    feed(m, i);
    cr_assert(tp_capture_begin(m->C));
    differentiate(m);
}

/* In every step and on every device, so that no program fails on a GPU first. */
Test(recorded_optim, needs_the_rate_before)
{
    for (int given = 0; given < 2; given++)
        for (int before = 0; before <= EAGER; before++) {
            net m = make("adamw", NULL, true);
            for (int i = 0; i < before; i++) step(&m, i);
            if (given) tp_next_rate(m.O, 0.2);
            begin(&m, before);
            if (!given) tp_next_rate(m.O, 0.125); /* too late */
            cr_expect_not(tp_step(m.O, 0.125));
            expect_refused(&m, given ? "rate is 0.125, and that of tp_next_rate before "
                                       "tp_capture_begin was 0.2"
                                     : "needs tp_next_rate with the same learning rate");
            tp_capture_end(m.C);
            for (int i = before; i < 6; i++) step(&m, i);
            cr_expect_eq(tp_optim_updates(m.O), 6, "the refused step is not launched again");
            destroy(&m);
        }
}

Test(recorded_optim, needs_the_factor_before)
{
    net m = make("adamw", NULL, true);
    tp_next_rate(m.O, 0.1);
    begin(&m, 0);
    tp_grad_scale(m.O, 0.5);
    cr_expect_not(tp_step(m.O, 0.1));
    expect_refused(&m, "tp_grad_scale must be called before tp_capture_begin");
    tp_capture_end(m.C);
    tp_grad_scale(m.O, 0.5);
    step(&m, 1);
    destroy(&m);
}

/* The memory of moments that a recorded step made would be the recording's. */
Test(recorded_optim, needs_moments_before)
{
    if (!device_is_cuda()) cr_skip_test("nothing is recorded on the CPU");
    net m = make("adamw", NULL, true);
    begin_frozen(&m);
    for (int i = 0; i < EAGER; i++) step(&m, i);
    feed(&m, EAGER);
    tp_next_rate(m.O, 0.1);
    cr_assert(tp_capture_begin(m.C));
    tp_freeze(m.P, "layer.bias", false);
    differentiate(&m);
    cr_expect_not(tp_step(m.O, 0.1));
    expect_refused(&m, "unfreeze it before tp_next_rate");
    tp_capture_end(m.C);
    for (int i = 0; i < STEPS; i++) step(&m, i);
    cr_expect_eq(tp_optim_updates(m.O), EAGER + STEPS);
    destroy(&m);
}

/* A launch has no rate of its own: the step runs normally and says so. */
Test(recorded_optim, notices_a_forgotten_rate)
{
    net m = make("adamw", NULL, true);
    for (int i = 0; i < 5; i++) step(&m, i);
    const int64_t launches = tp_capture_launches(m.C);
    begin(&m, 5);
    cr_expect_not(tp_step(m.O, 0.1));
    expect_refused(&m, "tp_next_rate");
    tp_capture_end(m.C);
    cr_expect_eq(tp_capture_launches(m.C), launches);
    for (int i = 5; i < 10; i++) step(&m, i);
    cr_expect_eq(tp_optim_updates(m.O), 10);
    if (device_is_cuda()) cr_expect_gt(tp_capture_launches(m.C), launches, "recorded again");
    destroy(&m);
}

Test(recorded_optim, unrecordable_kinds_step_outside)
{
    static tp_optim_kind own;
    own = *tp_optim_kind_at(tp_optim_find("sgd"));
    own.name = "own";
    own.recordable = false;
    cr_assert(tp_optim_register(&own));
    net m = make("own", NULL, true);
    cr_expect_not(tp_optim_records(m.O));
    for (int i = 0; i < 8; i++) {
        feed(&m, i);
        tp_next_rate(m.O, 0.1);
        if (tp_capture_begin(m.C)) {
            differentiate(&m);
            if (i == EAGER && device_is_cuda()) {
                cr_expect_not(tp_step(m.O, 0.1));
                cr_expect(strstr(tp_optim_why(m.O), "'own' cannot be recorded"), "%s",
                          tp_optim_why(m.O));
            }
            tp_capture_end(m.C);
        }
        cr_expect(tp_step(m.O, 0.1), "%s", tp_optim_why(m.O));
    }
    cr_expect_eq(tp_capture_launches(m.C), device_is_cuda() ? 4 : 0,
                 "that step, and three after two normal ones");
    destroy(&m);
}

static void *step_of_its_own(void *D)
{
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(3), (tp_init){ TP_INIT_CONST, 2, 0 }, 0);
    tp_optim *O = tp_sgd_new(P, NULL);
    tp_backward(T, tp_sum(T, w, TP_ALL));
    const bool done = tp_step(O, 0.5);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    return done ? D : NULL;
}

/* Threads may share a device of the CPU: what one has begun asks nothing of the others. */
Test(recorded_optim, steps_of_other_threads)
{
    if (device_is_cuda()) cr_skip_test("a GPU's device is for one thread");
    net m = make("adamw", NULL, true);
    pthread_t other;
    void *done = NULL;
    tp_next_rate(m.O, 0.1);
    begin(&m, 0);
    cr_assert(pthread_create(&other, NULL, step_of_its_own, m.D) == 0);
    cr_assert(pthread_join(other, &done) == 0);
    cr_expect(done, "it needs no tp_next_rate");
    cr_expect(tp_step(m.O, 0.1), "%s", tp_optim_why(m.O));
    tp_capture_end(m.C);
    destroy(&m);
}

/* What has state of its own on the host is not part of a step, recorded or not. */
Test(recorded_optim, swaps_and_blends_stay_outside)
{
    net m = make("schedulefree", NULL, true);
    tp_params *other = tp_params_new(m.D, &(tp_params_opts){ .seed = 4 });
    const tp_init draw = { TP_INIT_NORMAL, 0.5, 0.0 };
    tp_param(other, "layer.weight", TP_SHAPE(OUT, IN), draw, 0);
    tp_param(other, "layer.bias", TP_SHAPE(OUT), draw, 0);
    for (int i = 0; i < EAGER + 2; i++) {
        feed(&m, i);
        tp_next_rate(m.O, 0.1);
        if (!tp_capture_begin(m.C)) continue;
        differentiate(&m);
        cr_expect_not(tp_optim_swap(m.O));
        cr_expect(strstr(tp_optim_why(m.O), "tp_capture_end"), "%s", tp_optim_why(m.O));
        cr_expect_not(tp_ema_swap(m.E));
        cr_expect(strstr(tp_ema_why(m.E), "tp_capture_end"), "%s", tp_ema_why(m.E));
        cr_expect_not(tp_params_blend(other, m.P, 0.5));
        cr_expect(strstr(tp_params_why(other), "tp_capture_end"), "%s", tp_params_why(other));
        cr_expect(tp_step(m.O, 0.1) && tp_ema_update(m.E));
        tp_capture_end(m.C);
    }
    cr_expect(tp_params_blend(other, m.P, 0.5), "%s", tp_params_why(other));
    tp_params_free(other);
    destroy(&m);
}

/* ---- failures and lifetimes ---- */

/* A recorded step that fails has not happened, nor has the optimiser's in it. */
Test(recorded_optim, a_failed_recording_changes_nothing)
{
    if (!device_is_cuda()) cr_skip_test("nothing is recorded on the CPU");
    static answer a[2];
    memset(a, 0, sizeof a);
    for (int capture = 0; capture < 2; capture++) {
        net m = make("schedulefree", NULL, capture);
        for (int i = 0; i < STEPS; i++) {
            if (capture && i == EAGER) {
                tp_grad_scale(m.O, 0.5);
                tp_next_rate(m.O, 0.3);
                begin(&m, i);
                cr_expect(tp_step(m.O, 0.3), "%s", tp_optim_why(m.O));
                cr_expect_eq(tp_optim_updates(m.O), EAGER + 1, "counted as long as it is recorded");
                tp_item(m.T, m.loss); /* cannot be read */
                tp_capture_end(m.C);
                cr_expect_eq(tp_optim_updates(m.O), EAGER);
                tp_clear(m.T);
                tp_grad_scale(m.O, 1.0);
            }
            step(&m, i);
            note(&m, i, &a[capture]);
        }
        read_all(&m, &a[capture]);
        destroy(&m);
    }
    expect_same("after a failure", &a[0], &a[1], STEPS - 2 * EAGER);
}

static void replace(net *m, bool average)
{
    if (average) {
        tp_ema_free(m->E);
        m->E = tp_ema_new(m->P, 0.5);
    } else {
        tp_optim_free(m->O);
        m->O = tp_adamw_new(m->P, NULL);
    }
}

/* A step whose kernels would use the memory of a freed object is refused. */
Test(recorded_optim, nothing_is_freed_within_a_step)
{
    if (!device_is_cuda()) cr_skip_test("nothing is recorded on the CPU");
    for (int average = 0; average < 2; average++) {
        net m = make("adamw", NULL, true);
        for (int i = 0; i < EAGER; i++) step(&m, i);
        feed(&m, EAGER);
        tp_next_rate(m.O, 0.1);
        cr_assert(tp_capture_begin(m.C));
        whole(&m, 0.1);
        replace(&m, average);
        tp_capture_end(m.C);
        cr_expect(strstr(tp_why(m.T), "was freed"), "%s", tp_why(m.T));
        tp_clear(m.T);
        tp_grad_clear(m.P);
        for (int i = 0; i < EAGER + 2; i++) step(&m, i);
        destroy(&m);
    }
}

/* A recording whose optimiser or average is gone is dropped. */
Test(recorded_optim, objects_may_be_freed_in_any_order)
{
    for (int average = 0; average < 2; average++) {
        net m = make("adamw", NULL, true);
        for (int i = 0; i < 5; i++) step(&m, i);
        const int64_t launches = tp_capture_launches(m.C);
        replace(&m, average);
        step(&m, 5);
        cr_expect_eq(tp_capture_launches(m.C), launches, "not launched");
        for (int i = 6; i < 10; i++) step(&m, i);
        if (device_is_cuda()) cr_expect_gt(tp_capture_launches(m.C), launches);
        tp_optim *O = m.O;
        m.O = NULL;
        tp_optim_free(O); /* before the capture */
        m.O = tp_sgd_new(m.P, NULL);
        destroy(&m);
    }
}

/* Two optimisers over one set in a recording. */
Test(recorded_optim, several_steps)
{
    static answer a[2];
    memset(a, 0, sizeof a);
    for (int capture = 0; capture < 2; capture++) {
        net m = make("adamw", NULL, capture);
        tp_optim *other = tp_sgd_new(m.P, NULL);
        for (int i = 0; i < STEPS; i++) {
            feed(&m, i);
            tp_next_rate(m.O, rate(i));
            tp_next_rate(other, 0.1 * rate(i));
            if (!m.C) tp_reset(m.T);
            if (!m.C || tp_capture_begin(m.C)) {
                whole(&m, rate(i));
                differentiate(&m);
                cr_expect(tp_step(other, 0.1 * rate(i)), "%s", tp_optim_why(other));
                if (m.C) tp_capture_end(m.C);
            }
            note(&m, i, &a[capture]);
        }
        cr_expect_eq(tp_optim_updates(other), STEPS);
        read_all(&m, &a[capture]);
        tp_optim_free(other);
        destroy(&m);
    }
    expect_same("two optimisers", &a[0], &a[1], STEPS - EAGER);
}
