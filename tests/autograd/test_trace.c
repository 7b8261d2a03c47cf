/* test_trace.c - traces of a step: valid JSON, read by jansson, with every kernel once, in order,
 * nested and under its module; on CUDA also as measured there. Errors, the flag of the programs. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <pthread.h>
#include <string.h>
#include <tapegrad/observe.h>
#include <tapegrad/tapegrad.h>
#include <unistd.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/program.h"

static json_t *root;

static void begin(void)
{
    make_folder();
    cr_assert(chdir(folder) == 0);
}

static void end(void)
{
    json_decref(root);
    root = NULL;
    program_end();
}

TestSuite(trace, .init = begin, .fini = end);

/* ---- reading ---- */

static const char *text(const json_t *e, const char *key)
{
    const char *s = json_string_value(json_object_get(e, key));
    return s ? s : "";
}

static double number(const json_t *e, const char *key)
{
    return json_number_value(json_object_get(e, key));
}

static const char *argument(const json_t *e, const char *key)
{
    return text(json_object_get(e, "args"), key);
}

static void read_trace(const char *path)
{
    json_error_t why;
    json_decref(root);
    root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    cr_assert(root, "%s: %s", path, why.text);
}

/* The nth slice of that process, category and name; NULL if there are fewer. */
static const json_t *find(int process, const char *category, const char *name, int nth)
{
    const json_t *list = json_object_get(root, "traceEvents");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        if (strcmp(text(e, "ph"), "X") == 0 && number(e, "pid") == process &&
            strcmp(text(e, "cat"), category) == 0 &&
            (!name || strcmp(text(e, "name"), name) == 0) && nth-- == 0)
            return e;
    }
    return NULL;
}

static int count(int process, const char *category, const char *name)
{
    int n = 0;
    while (find(process, category, name, n)) n++;
    return n;
}

static bool holds(const json_t *outer, const json_t *inner)
{
    return number(inner, "ts") >= number(outer, "ts") &&
           number(inner, "ts") + number(inner, "dur") <=
               number(outer, "ts") + number(outer, "dur") + 0.002; /* rounded to ns */
}

/* ---- a model ---- */

typedef struct model {
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_linear_m layer;
} model;

static model model_new(tp_device *D)
{
    model m = { .P = tp_params_new(D, NULL), .T = tp_tape_new(D, NULL) };
    tp_linear_init(m.P, &m.layer, "layers.0", 4, 3, true);
    m.O = tp_sgd_new(m.P, NULL);
    return m;
}

static void step(model *m)
{
    const float x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    tp_tape *T = m->T;
    tp_reset(T);
    tp_enter(T, "all");
    const tp_tensor h = tp_linear_forward(T, &m->layer, tp_from(T, TP_F32, TP_SHAPE(2, 4), x));
    const tp_tensor loss = tp_leave(T, tp_sum(T, tp_mul(T, h, h), TP_ALL));
    tp_backward(T, loss);
    tp_step(m->O, 1e-3);
    cr_expect(tp_ok(T) && tp_optim_ok(m->O), "%s%s", tp_why(T), tp_optim_why(m->O));
}

static void model_free(model *m)
{
    tp_optim_free(m->O);
    tp_tape_free(m->T);
    tp_params_free(m->P);
}

/* ---- tests ---- */

static void expect_ops(int process)
{
    const struct {
        const char *category, *name, *module, *inputs, *outputs;
    } ops[] = {
        { "forward", "linear", "layers.0", "f32[2,4] f32[3,4] f32[3]", "f32[2,3]" },
        { "forward", "mul", "all", "f32[2,3] f32[2,3]", "f32[2,3]" },
        { "forward", "sum", "all", "f32[2,3]", "f32[]" },
        { "backward", "sum", "all", "f32[2,3]", "f32[]" },
        { "backward", "mul", "all", "f32[2,3] f32[2,3]", "f32[2,3]" },
        { "backward", "linear", "layers.0", "f32[2,4] f32[3,4] f32[3]", "f32[2,3]" },
        { "forward", "sgd", "", "", "" },
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const json_t *e = find(process, ops[i].category, ops[i].name, 0);
        cr_assert(e, "%d: no %s %s", process, ops[i].category, ops[i].name);
        cr_expect_str_eq(argument(e, "module"), ops[i].module, "%s", ops[i].name);
        cr_expect_str_eq(argument(e, "inputs"), ops[i].inputs, "%s", ops[i].name);
        cr_expect_eq(strncmp(argument(e, "outputs"), ops[i].outputs, strlen(ops[i].outputs)), 0,
                     "%s: %s", ops[i].name, argument(e, "outputs"));
        cr_expect(number(e, "ts") >= 0 && number(e, "dur") >= 0, "%s", ops[i].name);
        cr_expect(i == 0 ||
                      number(e, "ts") >=
                          number(find(process, ops[i - 1].category, ops[i - 1].name, 0), "ts"),
                  "%s is in order", ops[i].name);
    }
}

static void check(const char *device, bool profile)
{
    char why[2000] = "";
    const bool cuda = strncmp(device, "cuda", 4) == 0;
    tp_device *D = tp_device_open(device, &(tp_device_opts){ .threads = 1, .profile = profile });
    model m = model_new(D);
    step(&m);
    const uint64_t before = tp_device_stats(D).launches;
    tp_trace_begin(D);
    tp_trace_enter(D, "step");
    step(&m);
    tp_trace_leave(D);
    const uint64_t launched = tp_device_stats(D).launches - before;
    cr_assert(tp_trace_end(D, "t.json", why, sizeof why), "%s", why);
    read_trace("t.json");
    expect_ops(1);
    cr_expect_eq(count(1, "forward", NULL) + count(1, "backward", NULL), (int)launched,
                 "%s: every kernel is there once", device);
    const json_t *all = find(1, "module", "all", 0), *layer = find(1, "module", "layers.0", 0);
    cr_assert(all && layer);
    cr_expect(holds(all, layer) && holds(layer, find(1, "forward", "linear", 0)));
    cr_expect(holds(all, find(1, "forward", "sum", 0)));
    cr_expect(holds(find(1, "span", "step", 0), find(1, "backward", "linear", 0)));
    const int measured = count(2, "forward", NULL) + count(2, "backward", NULL);
    cr_expect_eq(measured, cuda && profile ? (int)launched : 0, "%s: on the device", device);
    if (measured) expect_ops(2);
    step(&m);
    cr_expect_not(tp_trace_end(D, "t.json", why, sizeof why), "it has ended");
    cr_expect(strstr(why, "there is no trace to end: call tp_trace_begin first"), "%s", why);
    model_free(&m);
    tp_device_close(D);
}

Test(trace, of_a_step)
{
    check("cpu", false);
    check("cpu", true);
    if (device_has_cuda()) check("cuda", false);
    if (device_has_cuda()) check("cuda", true);
}

/* More ops than a CUDA device has marks. */
Test(trace, of_many_steps)
{
    char why[2000] = "";
    tp_device *D = device_open(&(tp_device_opts){ .profile = true });
    model m = model_new(D);
    tp_trace_begin(D);
    step(&m);
    tp_trace_begin(D); /* drops the first */
    for (int i = 0; i < 400; i++) step(&m);
    cr_assert(tp_trace_end(D, "t.json", why, sizeof why), "%s", why);
    read_trace("t.json");
    cr_expect_eq(count(1, "backward", "linear"), 400);
    model_free(&m);
    tp_device_close(D);
}

/* Recomputed ops have their own module. */
static tp_tensor twice(tp_tape *T, const void *self, tp_tensor x)
{
    (void)self;
    tp_enter(T, "inner");
    return tp_leave(T, tp_exp(T, x));
}

Test(trace, recomputed_ops)
{
    char why[2000] = "";
    const float x = 0.5F;
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_trace_begin(D);
    const tp_tensor in = tp_input(T, TP_F32, TP_SCALAR, &x);
    tp_backward(T, tp_mul(T, tp_checkpoint(T, twice, NULL, in), in));
    cr_expect(tp_ok(T), "%s", tp_why(T));
    cr_assert(tp_trace_end(D, "t.json", why, sizeof why), "%s", why);
    read_trace("t.json");
    cr_assert_eq(count(1, "forward", "exp"), 2);
    cr_expect_str_eq(argument(find(1, "forward", "exp", 1), "module"), "inner");
    cr_expect_str_eq(argument(find(1, "backward", "exp", 0), "module"), "inner");
    cr_expect_str_eq(argument(find(1, "backward", "mul", 0), "module"), "");
    tp_tape_free(T);
    tp_device_close(D);
}

static void *other_thread(void *D)
{
    tp_trace_enter(D, "\xff\"\\\n"); /* a name may be anything */
    model m = model_new(D);
    step(&m);
    model_free(&m);
    tp_trace_leave(D);
    tp_trace_leave(D); /* one too many */
    return NULL;
}

Test(trace, threads)
{
    enum { N = 3 };
    char why[2000] = "";
    pthread_t thread[N];
    tp_device *D = device_open(NULL);
    tp_trace_begin(D);
    tp_trace_enter(D, "main");
    for (int i = 0; i < N; i++) {
        cr_assert(pthread_create(&thread[i], NULL, other_thread, D) == 0);
        if (device_is_cuda()) pthread_join(thread[i], NULL); /* one at a time (device.h) */
    }
    for (int i = 0; i < N && !device_is_cuda(); i++) pthread_join(thread[i], NULL);
    cr_assert(tp_trace_end(D, "t.json", why, sizeof why), "%s", why);
    read_trace("t.json");
    cr_expect_eq(count(1, "forward", "linear"), N);
    for (int i = 0; i < N; i++) {
        const json_t *e = find(1, "span", "\\xff\"\\\\n", i), *op = NULL;
        cr_assert(e, "its name is made readable");
        for (int k = 0; k < N; k++) {
            const json_t *x = find(1, "forward", "linear", k);
            if (number(x, "tid") == number(e, "tid") && holds(e, x)) op = x;
        }
        cr_expect(op, "a thread's ops are in its own slices");
    }
    cr_expect(find(1, "span", "main", 0), "a slice that is open at the end ends there");
    tp_device_close(D);
}

Test(trace, files)
{
    char why[2000] = "";
    tp_device *D = device_open(NULL);
    tp_trace_begin(D);
    cr_expect_not(tp_trace_end(D, "nowhere/t.json", why, sizeof why));
    cr_expect(strstr(why, "nowhere/t.json") && strstr(why, "create the folder first"), "%s", why);
    tp_trace_begin(D);
    cr_expect(tp_trace_end(D, NULL, NULL, 0), "dropped");
    tp_trace_begin(D); /* freed with the device */
    tp_device_close(D);
}

Test(trace, of_a_run)
{
    program_begin("first_text");
    succeed("--run-dir run --eval-every 0 --steps 3 --trace t.json");
    cr_expect(strstr(out, "trace of update 3: t.json"), "%s", out);
    read_trace("t.json");
    static const char *const parts[] = { "next batch", "forward", "backward", "optimizer" };
    for (int i = 0; i < 4; i++) cr_expect_eq(count(1, "span", parts[i]), 1, "%s", parts[i]);
    cr_expect(holds(find(1, "span", "backward", 0), find(1, "backward", "embedding", 0)));
    cr_expect(holds(find(1, "span", "optimizer", 0), find(1, "forward", "adamw", 0)));
    succeed("--run-dir run --overwrite --eval-every 0 --steps 2 --trace t.json");
    cr_expect(strstr(out, "it is of the third update of a process, and this one made only 2"), "%s",
              out);
    succeed("--run-dir run --overwrite --eval-every 0 --steps 3 --trace nowhere/t.json");
    cr_expect(strstr(out, "warning: no trace: nowhere/t.json"), "%s", out);
    program_end();
}

/* Each op is measured on the GPU as well, with --graph, too. */
Test(trace, of_a_run_on_cuda)
{
    if (!device_has_cuda()) cr_skip_test("there is no CUDA");
    program_begin("first_text");
    for (int graph = 0; graph < 2; graph++) {
        succeed("--run-dir run --overwrite --device cuda %s --eval-every 0 --steps 3 "
                "--trace t.json",
                graph ? "--graph" : "");
        read_trace("t.json");
        static const struct {
            const char *category, *name, *part;
        } ops[] = {
            { "forward", "embedding", "forward" },
            { "backward", "embedding", "backward" },
            { "forward", "adamw", "optimizer" },
        };
        for (int i = 0; i < 3; i++) {
            const json_t *e = find(1, ops[i].category, ops[i].name, 0);
            cr_assert(e && holds(find(1, "span", ops[i].part, 0), e), "%s", ops[i].name);
            cr_expect_eq(count(2, ops[i].category, ops[i].name),
                         count(1, ops[i].category, ops[i].name), "%s", ops[i].name);
        }
        const int queued = count(1, "forward", NULL) + count(1, "backward", NULL);
        cr_expect_eq(count(2, "forward", NULL) + count(2, "backward", NULL), queued,
                     "all %d kernels are measured", queued);
    }
    program_end();
}
