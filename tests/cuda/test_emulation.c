/* test_emulation.c - the CUDA emulation finds planted mistakes: missing barriers, out-of-bounds
 * accesses, unwritten outputs, wrong tails, deadlocks, launches that a GPU refuses. It also tests
 * the CUDA device's own errors. */
#include <criterion/criterion.h>

#ifdef TP_EMULATION
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <tapegrad/tapegrad.h>
#include <unistd.h>

#include "cuda_emulation/counts.h"
#include "cuda_emulation/emulation.h"
#include "cuda_emulation/planted.h"
#include "support/device.h"
#include "tensor/backend.h"
#include "tensor/shape.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* A race fails a launch in builds with the race detector. */
#ifdef TP_RACES
#define RACE TP_E_CUDA
#else
#define RACE TP_OK
#endif

#define MOST 512

/* Runs a kernel on n elements x = 1, 2, ...; writes the result to y. */
static tp_code run(planted mistake, int64_t n, int64_t ny, float *y)
{
    tp_device *D = device_cuda();
    float x[MOST];
    char why[TP_WHY] = "";
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 61 + 1);
    tp_buf *from = tp__buf_new(D, (size_t)n * sizeof *x), *to = tp__buf_new(D, (size_t)ny * 4);
    D->be->upload(D, from->data, x, from->bytes);
    const tp_view in = tp__view(TP_F32, &TP_SHAPE(n), from->data);
    tp_view out = tp__view(TP_F32, &TP_SHAPE(ny), to->data);
    const tp_call c = { .dev = D, .nx = 1, .ny = 1, .x = &in, .y = &out, .why = why };
    tp_code code = planted_run(&c, mistake);
    if (code == TP_OK) D->be->download(D, y, to->data, to->bytes);
    if (code == TP_OK) code = D->err.code;
    tp__buf_unref(from);
    tp__buf_unref(to);
    tp_device_close(D);
    emulation.fault = cudaSuccess;
    return code;
}

static bool reversed(const float *y, int64_t n, int64_t block)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = i / block * block, m = n - first < block ? n - first : block;
        if (y[i] != (float)((first + m - 1 - (i - first)) % 61 + 1)) return false;
    }
    return true;
}

Test(emulation, correct_kernels_pass)
{
    float y[MOST];
    for (int order = 0; device_set_order(order); order++) {
        for (int64_t n = 1; n < 200; n += 13) {
            cr_expect_eq(run(REVERSE, n, n, y), TP_OK);
            cr_expect(reversed(y, n, 64), "reverse, %d elements, order %d", (int)n, order);
        }
        cr_expect_eq(run(WARP, 32, 32, y), TP_OK);
        for (int i = 0; i < 32; i++) cr_expect_eq(y[i], 496.0f, "lane %d", i);
        cr_expect_eq(run(COPY, 128, 128, y), TP_OK);
        cr_expect(reversed(y, 128, 128), "copy, order %d", order);
        cr_expect_eq(run(ROUNDS, 128, 128, y), TP_OK);
        cr_expect(reversed(y, 128, 64), "rounds, order %d", order);
    }
}

Test(emulation, tensor_core)
{
    float y[MOST];
    cr_assert_eq(run(MMA, 384, 128, y), TP_OK);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0.0f;
            for (int k = 0; k < 16; k++)
                sum += (float)((i * 16 + k) % 61 + 1) * (float)((256 + j * 16 + k) % 61 + 1);
            cr_expect_float_eq(y[i * 8 + j], sum, 1e-3f * sum, "element %d,%d: %g, not %g", i, j,
                               (double)y[i * 8 + j], (double)sum);
        }
}

Test(emulation, quick_division)
{
    float y[MOST];
    cr_assert_eq(run(DIVIDE, 32, 32, y), TP_OK);
    for (int i = 0; i < 32; i++) cr_expect_eq(y[i], 0.0f, "lane %d: %g are wrong", i, (double)y[i]);
}

/* The cuRAND function that kernels call gives the CPU's words. */
Test(emulation, words_of_curand)
{
#ifndef TP_CURAND
    cr_skip_test("cuRAND's headers are not installed");
#endif
    float y[MOST];
    cr_assert_eq(run(PHILOX, 32, 32, y), TP_OK);
    for (int i = 0; i < 32; i++) cr_expect_eq(y[i], 0.0f, "lane %d: %g are wrong", i, (double)y[i]);
}

Test(emulation, finds_wrong_results)
{
    static const struct {
        planted mistake;
        const char *name;
    } table[] = {
        { MISSING_BARRIER, "missing barrier" },
        { UNWRITTEN, "unwritten output" },
        { WRONG_TAIL, "wrong tail" },
    };
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        for (int order = 0; device_set_order(order); order++) {
            float y[MOST];
            const tp_code code = run(table[k].mistake, 127, 127, y);
            cr_expect_eq(code, table[k].mistake == MISSING_BARRIER ? RACE : TP_OK);
            cr_expect(code || !reversed(y, 127, 64), "%s is seen in order %d", table[k].name,
                      order);
        }
    float y[MOST];
    for (int order = FORWARD; order <= BACKWARD; order++) { /* one warp after another */
        device_set_order(order);
        cr_expect_eq(run(WARP_AHEAD, 128, 128, y), RACE);
        cr_expect(RACE || !reversed(y, 128, 64), "a warp ahead of others is seen in order %d",
                  order);
        cr_expect_eq(run(COPIED_EARLY, 128, 128, y), RACE);
        cr_expect(RACE || !reversed(y, 128, 64), "a copy to a place in use is seen in order %d",
                  order);
    }
    for (int order = FORWARD; device_set_order(order); order++) {
        cr_expect_eq(run(BLOCKS_IN_TURN, MOST, MOST, y), RACE);
        if (!RACE)
            cr_expect_eq(reversed(y, MOST, 64), order == FORWARD,
                         "a block that reads what another writes is seen in order %d", order);
    }
    device_set_order(0);
    run(UNWRITTEN, 127, 127, y);
    cr_expect(isnan(y[5]), "what is not written is NaN");
}

/* Correct kernels give correct results in every order. */
Test(emulation, finds_races)
{
    static const struct {
        planted mistake;
        int64_t block;
        bool wrong;
        const char *name;
    } table[] = {
        { RACELESS, 64, false, "a correct kernel" },
        { LANES_IN_ORDER, 32, false, "lanes with __syncwarp between them" },
        { LANES_UNORDERED, 32, true, "lanes with only a shuffle between them" },
        { READ_AND_OVERWRITTEN, 64, true, "shared memory that another warp may not have read" },
        { TWO_BLOCKS_WRITE, 64, true, "two blocks that write one word" },
        { BLOCK_READS, 64, true, "a block that reads what another writes" },
    };
    float y[MOST];
    for (int order = 0; device_set_order(order); order++) {
        for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
            const tp_code code = run(table[k].mistake, 128, 128, y);
            cr_expect_eq(code, table[k].wrong ? RACE : TP_OK, "%s, order %d", table[k].name, order);
            cr_expect(code || reversed(y, 128, table[k].block), "%s", table[k].name);
        }
        uint32_t counted = 0;
        cr_expect_eq(run(COUNTED, 32, 32, y), TP_OK, "atomic operations");
        memcpy(&counted, y, sizeof counted);
        cr_expect_eq(counted, 64);
        cr_expect_eq(run(COUNTED_PLAINLY, 32, 32, y), RACE, "a sum that is not atomic");
    }
}

Test(emulation, finds_words_that_are_not_aligned)
{
    float y[MOST];
    cr_expect_eq(run(WORDS, 128, 128, y), TP_OK);
    if (!RACE) cr_skip_test("needs the race detector, or UBSan");
    cr_expect_eq(run(WORDS_MISALIGNED, 128, 128, y), TP_E_CUDA);
}

Test(emulation, finds_copies_that_have_not_arrived)
{
    float y[MOST];
    cr_expect_eq(run(NOT_WAITED, 128, 128, y), TP_E_CUDA, "a copy that nobody waits for");
    cr_expect_eq(run(NOT_COMMITTED, 128, 128, y), TP_E_CUDA, "a copy that is in no group");
    cr_expect_eq(run(USED_EARLY, 128, 128, y), RACE);
    cr_expect(RACE || !reversed(y, 128, 128), "a copy that is used before it has arrived");
}

Test(emulation, finds_waits_without_end)
{
    float y[MOST];
    cr_expect_eq(run(BARRIER_IN_BRANCH, 70, 70, y), TP_E_CUDA, "barrier in a branch");
    cr_expect_eq(run(LANE_MISSING, 32, 32, y), TP_E_CUDA, "a lane is missing");
    cr_expect_eq(run(REVERSE, 70, 70, y), TP_OK, "after that all is well");
}

/* The table's order matters: an attribute set for one launch also holds for later ones. */
Test(emulation, finds_launches_that_a_gpu_refuses)
{
    static const struct {
        planted mistake;
        tp_code code;
        const char *name;
    } table[] = {
        { NO_BLOCKS, TP_E_CUDA, "a grid of no blocks" },
        { TOO_MANY_DOWN, TP_E_CUDA, "65536 blocks along y" },
        { SHARED_NOT_ASKED, TP_E_CUDA, "49 KiB of shared memory, not asked for" },
        { SHARED_FITS, TP_OK, "49 KiB of shared memory" },
        { SHARED_TOO_MUCH, TP_E_CUDA, "100 KiB of shared memory" },
    };
    float y[MOST];
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        cr_expect_eq(run(table[k].mistake, 32, 32, y), table[k].code, "%s", table[k].name);
    cr_expect_eq(run(MISALIGNED, 128, 128, y), TP_E_CUDA, "a copy that is not aligned");
    cr_expect_eq(run(SHARED_STORED, 128, 128, y), TP_E_CUDA, "shared memory taken for global");
    cr_expect_eq(run(SHARED_LOWERED, 32, 32, y), TP_E_CUDA, "more than the kernel's limit");
    cr_expect_eq(run(SHARED_LOWERED_RECORDED, 32, 32, y), TP_E_CUDA, "so in a recorded launch");
}

/* ---- two GPUs ---- */

Test(emulation, finds_work_for_another_gpu)
{
    float y[MOST];
    emulation.gpus = 2;
    cr_expect_eq(run(ANOTHER_GPU, 32, 32, y), TP_E_CUDA, "a launch while another GPU is current");
    cr_expect_eq(run(MEMORY_ELSEWHERE, 32, 32, y), TP_E_CUDA, "memory of another GPU");
    cr_expect_eq(run(REVERSE, 32, 32, y), TP_OK);
    emulation.gpus = 1;
}

enum { CARDS = 2, STEPS = 6, WIDE = 12288 }; /* a row fills the default shared memory */

typedef struct trained {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_capture *C;
    tp_tensor w, x, loss;
} trained;

static trained train_on(const char *gpu, bool profile)
{
    trained m = { .D = tp_device_open(gpu, &(tp_device_opts){ .profile = profile }) };
    m.P = tp_params_new(m.D, &(tp_params_opts){ .seed = 3 });
    m.w = tp_param(m.P, "w", TP_SHAPE(1, WIDE), (tp_init){ TP_INIT_NORMAL, 0.5, 0.0 }, 0);
    m.T = tp_tape_new(m.D, &(tp_tape_opts){ .seed = 5, .train = true });
    m.O = tp_adamw_new(m.P, NULL);
    m.C = tp_capture_new(m.T);
    m.x = m.loss = TP_NONE;
    return m;
}

static double train_step(trained *m, int step)
{
    static float x[WIDE];
    for (int i = 0; i < WIDE; i++) x[i] = (float)((i + step) % 61);
    tp_feed(m->T, &m->x, TP_F32, TP_SHAPE(1, WIDE), x);
    if (tp_capture_begin(m->C)) {
        const tp_tensor y = tp_softmax(m->T, tp_add(m->T, m->x, m->w));
        m->loss = tp_sum(m->T, tp_square(m->T, tp_dropout(m->T, y, 0.1)), TP_ALL);
        tp_backward(m->T, m->loss);
        tp_capture_end(m->C);
    }
    const double loss = tp_item(m->T, m->loss);
    tp_clip_grad_norm(m->P, 0.5);
    tp_step(m->O, 0.01);
    return loss;
}

static size_t free_memory(int gpu)
{
    size_t left = 0, total = 0;
    cudaSetDevice(gpu);
    cudaMemGetInfo(&left, &total);
    return left;
}

static void train_end(trained *m, bool profile)
{
    tp_op_time list[4];
    cr_expect_eq(tp_device_profile(m->D, list, 4) > 0, profile, "times are read");
    cr_expect_eq(tp_capture_launches(m->C) > 0, !profile, "steps are recorded");
    cr_expect(tp_ok(m->T) && tp_optim_ok(m->O) && tp_device_ok(m->D), "%s%s%s", tp_why(m->T),
              tp_optim_why(m->O), tp_device_why(m->D));
    tp_capture_free(m->C);
    tp_optim_free(m->O);
    tp_tape_free(m->T);
    tp_params_free(m->P);
    tp_device_close(m->D);
}

/* A kernel's shared memory limit still allows a recorded launch after a smaller one. */
Test(emulation, recordings_keep_their_shared_memory)
{
    trained m = train_on("cuda", false);
    tp_tape *other = tp_tape_new(m.D, NULL);
    for (int step = 0; step < STEPS; step++) {
        tp_reset(other);
        tp_softmax(other, tp_full(other, TP_F32, TP_SHAPE(1, WIDE * 2 / 3), 1.0));
        cr_expect(isfinite(train_step(&m, step)), "step %d: %s", step, tp_why(m.T));
    }
    cr_expect(tp_ok(other), "%s", tp_why(other));
    tp_tape_free(other);
    train_end(&m, false);
}

/* ---- recordings that fail ---- */

/* Steps whose loss is the bf16 product of a carried tensor and w. */
typedef struct recorded {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_capture *C;
    tp_tensor w, memory, loss;
    bool whole; /* the optimiser's step is recorded, too */
} recorded;

static recorded record_on(bool capture, bool whole)
{
    recorded m = { .D = tp_device_open("cuda", NULL), .whole = whole };
    m.P = tp_params_new(m.D, &(tp_params_opts){ .seed = 3 });
    m.w = tp_param(m.P, "w", TP_SHAPE(8, 8), (tp_init){ TP_INIT_NORMAL, 0.5, 0.0 }, 0);
    m.T = tp_tape_new(m.D, &(tp_tape_opts){ .seed = 5, .train = true, .compute = TP_BF16 });
    m.O = tp_adamw_new(m.P, NULL);
    m.C = capture ? tp_capture_new(m.T) : NULL;
    m.memory = m.loss = TP_NONE;
    tp_carry(m.T, &m.memory, tp_full(m.T, TP_F32, TP_SHAPE(8, 8), 0.25));
    return m;
}

/* Runs a step, up to its update unless that is part of it. False on failure. */
static bool record_step(recorded *m)
{
    tp_next_rate(m->O, 0.01);
    if (!m->C) tp_reset(m->T);
    if (!m->C || tp_capture_begin(m->C)) {
        const tp_tensor y = tp_linear(m->T, m->memory, m->w, TP_NONE, TP_ACT_NONE);
        const tp_tensor z = tp_dropout(m->T, tp_cast(m->T, y, TP_F32), 0.3);
        tp_carry(m->T, &m->memory, tp_tanh(m->T, z));
        m->loss = tp_mean(m->T, tp_square(m->T, z), TP_ALL);
        tp_backward(m->T, m->loss);
        if (m->whole) tp_step(m->O, 0.01);
        if (m->C) tp_capture_end(m->C);
    }
    return tp_ok(m->T);
}

static void record_end(recorded *m)
{
    cr_expect(tp_ok(m->T) && tp_optim_ok(m->O) && tp_device_ok(m->D), "%s%s%s", tp_why(m->T),
              tp_optim_why(m->O), tp_device_why(m->D));
    tp_capture_free(m->C);
    tp_optim_free(m->O);
    tp_tape_free(m->T);
    tp_params_free(m->P);
    cr_expect_eq(tp_device_stats(m->D).live_bytes, 0);
    tp_device_close(m->D);
}

/* Makes the call behind `setting` fail in step `at`. The step has not run; repeated without
 * recording, it and later steps give the losses of a run without recordings. */
static void fail_recording(cudaError_t *setting, cudaError_t e, int at, bool whole,
                           const char *name)
{
    recorded plain = record_on(false, whole), m = record_on(true, whole);
    for (int step = 0; step < STEPS; step++) {
        cr_assert(record_step(&plain));
        if (step == at) {
            const uint64_t launches = tp_device_stats(m.D).launches;
            *setting = e;
            cr_expect_not(record_step(&m), "%s", name);
            cr_expect(tp_device_ok(m.D), "%s: %s", name, tp_device_why(m.D));
            cr_expect(strstr(tp_why(m.T), "record") && strstr(tp_why(m.T), "no --graph") &&
                          strstr(tp_why(m.T), cudaGetErrorName(e)),
                      "%s: %s", name, tp_why(m.T));
            if (!whole) cr_expect_not(tp_step(m.O, 0.01), "%s: the gradients are missing", name);
            cr_expect_eq(tp_optim_updates(m.O), step, "%s", name);
            cr_expect(tp_device_stats(m.D).launches == launches, "%s", name);
            tp_grad_clear(m.P);
            tp_clear(m.T);
        }
        cr_assert(record_step(&m), "%s: step %d: %s", name, step, tp_why(m.T));
        cr_expect_eq(tp_item(m.T, m.loss), tp_item(plain.T, plain.loss), "%s: step %d", name, step);
        if (!whole)
            cr_expect(tp_step(plain.O, 0.01) && tp_step(m.O, 0.01), "%s: %s", name,
                      tp_optim_why(m.O));
    }
    cr_expect_eq(tp_capture_launches(m.C), at - 2, "%s: %d launches; none is tried again", name,
                 (int)tp_capture_launches(m.C));
    record_end(&plain);
    record_end(&m);
}

Test(emulation, a_recording_that_fails_leaves_the_device)
{
    for (int whole = 0; whole < 2; whole++) {
        fail_recording(&emulation.end_error, cudaErrorStreamCaptureUnsupported, 2, whole, "end");
        fail_recording(&emulation.make_error, cudaErrorMemoryAllocation, 2, whole, "instantiate");
        fail_recording(&emulation.start_error, cudaErrorMemoryAllocation, 2, whole, "first launch");
        fail_recording(&emulation.start_error, cudaErrorMemoryAllocation, 4, whole, "third launch");
    }
}

/* A step that fails during recording has updated neither bf16 copies nor gradients. */
Test(emulation, a_step_that_fails_while_recorded_leaves_no_trace)
{
    recorded plain = record_on(false, false), m = record_on(true, false);
    for (int step = 0; step < STEPS; step++) {
        cr_assert(record_step(&plain));
        if (step == 2) {
            cr_assert(tp_capture_begin(m.C));
            const tp_tensor y = tp_linear(m.T, m.memory, m.w, TP_NONE, TP_ACT_NONE);
            tp_backward(m.T, tp_mean(m.T, tp_dropout(m.T, y, 0.5), TP_ALL));
            tp_item(m.T, y);
            tp_capture_end(m.C);
            cr_expect_not(tp_ok(m.T));
            tp_clear(m.T);
            tp_grad_clear(m.P);
        }
        cr_assert(record_step(&m), "step %d: %s", step, tp_why(m.T));
        cr_expect_eq(tp_item(m.T, m.loss), tp_item(plain.T, plain.loss), "step %d", step);
        cr_expect(tp_step(plain.O, 0.01) && tp_step(m.O, 0.01), "%s", tp_optim_why(m.O));
    }
    record_end(&plain);
    record_end(&m);
}

/* One thread alternates between training on both GPUs, with capture or profiling. Each GPU has its
 * own attributes, memory, events and recordings; the results agree. */
static void train_on_two_gpus(bool profile)
{
    static const char *const names[CARDS] = { "cuda:0", "cuda:1" };
    trained m[CARDS];
    emulation.gpus = CARDS;
    const size_t first = free_memory(0);
    for (int k = 0; k < CARDS; k++) m[k] = train_on(names[k], profile);
    for (int step = 0; step < STEPS; step++) {
        const double loss = train_step(&m[0], step);
        cr_expect_eq(train_step(&m[1], step), loss, "step %d", step);
    }
    cr_expect_eq(free_memory(0), free_memory(1), "both hold the same");
    for (int k = 0; k < CARDS; k++) train_end(&m[k], profile);
    cr_expect_eq(free_memory(0), first, "all is returned");
    cr_expect_eq(free_memory(1), first, "all is returned");
    emulation.gpus = 1;
}

Test(emulation, two_gpus_in_one_thread)
{
    train_on_two_gpus(false);
    train_on_two_gpus(true);
}

/* ---- hosts that do not wait ---- */

enum { FEW = 64 };

/* The emulated GPU has only one stream, the device's. */
static cudaStream_t stream_of_gpu(void)
{
    cudaStream_t s = NULL;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    return s;
}

/* Work runs only when the host waits for it. Before, it has neither read inputs nor written
 * results. */
Test(emulation, finds_hosts_that_do_not_wait)
{
    tp_device *D = device_cuda();
    const cudaStream_t s = stream_of_gpu();
    tp_buf *b = tp__buf_new(D, FEW);
    char x[FEW], y[FEW], z[FEW];
    cudaEvent_t half;
    cudaEventCreateWithFlags(&half, cudaEventDisableTiming);
    memset(x, 1, FEW);
    memset(y, 2, FEW);
    memset(z, 2, FEW);
    cudaMemcpyAsync(b->data, x, FEW, cudaMemcpyHostToDevice, s);
    cudaMemcpyAsync(y, b->data, FEW, cudaMemcpyDeviceToHost, s);
    cudaEventRecord(half, s);
    cudaMemcpyAsync(z, b->data, FEW, cudaMemcpyDeviceToHost, s);
    cr_expect_eq(y[0], 2, "a result that nobody waited for");
    x[0] = 3;
    cudaEventSynchronize(half);
    cr_expect(y[0] == 3 && y[1] == 1, "what is to be copied was overwritten");
    cr_expect_eq(z[0], 2, "an event is passed before what comes after it");
    tp_device_sync(D);
    cr_expect_eq(z[0], 3);
    cudaEventDestroy(half);
    tp__buf_unref(b);
    tp_device_close(D);
}

static void touch_from_the_host(void)
{
    tp_device *D = device_cuda();
    const tp_buf *b = tp__buf_new(D, FEW);
    ((volatile char *)b->data)[3] = 1;
}

static void free_too_early(void)
{
    tp_device *D = device_cuda();
    const tp_buf *b = tp__buf_new(D, FEW);
    void *x = calloc(1, FEW);
    cudaMemcpyAsync(b->data, x, FEW, cudaMemcpyHostToDevice, stream_of_gpu());
    free(x);
    tp_device_sync(D);
}

/* True if the sanitizer aborts a process calling act or running the kernel. */
static bool dies(void (*act)(void), planted mistake, int64_t n)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        float y[MOST];
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        if (act)
            act();
        else
            run(mistake, n, n, y);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}

Test(emulation, sanitizer_finds_bad_addresses)
{
    if (!SANITIZED) cr_skip_test("needs the address sanitizer: preset emulate-asan");
    cr_expect(!dies(NULL, REVERSE, 128), "a correct kernel passes");
    cr_expect(dies(NULL, PAST_THE_END, 127), "past the end of a buffer");
    cr_expect(dies(NULL, PAST_SHARED, 128), "past the end of shared memory");
    cr_expect(dies(touch_from_the_host, REVERSE, 0), "the host touches device memory");
    cr_expect(dies(free_too_early, REVERSE, 0), "the host frees what is to be copied");
}

/* ---- errors of the device ---- */

static void expect_open(const char *name, tp_code code, const char *text)
{
    tp_device *D = tp_device_open(name, NULL);
    cr_expect_eq(D->err.code, code, "%s", tp_device_why(D));
    cr_expect(strstr(tp_device_why(D), text), "%s", tp_device_why(D));
    tp_device_close(D);
}

Test(emulation, opening_fails_with_a_sentence)
{
    const emulation_settings usual = emulation;
    expect_open("cuda:1", TP_E_DEVICE, "device cuda:1: this machine has 1, cuda:0 to cuda:0");
    expect_open("cudax", TP_E_VALUE, "device 'cudax' is unknown");
    emulation.driver = 0;
    emulation.open_error = cudaErrorInsufficientDriver;
    expect_open("cuda", TP_E_DEVICE,
                "device cuda:0: this machine has no NVIDIA driver (libcuda.so.1); use cpu");
    emulation.driver = 11040;
    expect_open("cuda", TP_E_DEVICE, "the NVIDIA driver is too old: it supports CUDA 11.4");
    emulation = usual;
    emulation.open_error = cudaErrorNoDevice;
    expect_open("cuda", TP_E_DEVICE, "the driver sees no NVIDIA GPU");
    emulation = usual;
    emulation.set_error = cudaErrorDevicesUnavailable;
    expect_open("cuda", TP_E_DEVICE, "another process holds the GPU");
    emulation = usual;
    emulation.major = 7;
    expect_open("cuda", TP_E_DEVICE, "has compute capability 7.0; 8.0 (Ampere) or later is needed");
    emulation = usual;
    emulation.memory = 1 << 20;
    expect_open("cuda", TP_E_DEVICE, "is the GPU's memory full?");
}

/* A kernel fails after exp and tanh, then `meet` or a read reports it. With exact, each result
 * requests driver memory. */
static void expect_fault(bool exact, tp_tensor (*meet)(tp_tape *, tp_tensor), const char *met)
{
    static const char said[] = "unspecified launch failure (cudaErrorLaunchFailure); one of the "
                               "last ops queued: tanh, exp";
    tp_device *D = tp_device_open("cuda", &(tp_device_opts){ .exact = exact });
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(1, 1), 1.0);
    x = tp_tanh(T, tp_exp(T, x));
    emulation.fault = cudaErrorLaunchFailure;
    if (meet)
        meet(T, x);
    else
        cr_expect(isnan(tp_item(T, x)));
    cr_expect_eq(tp_code_of(T), TP_E_CUDA);
    cr_expect(strstr(tp_why(T), said), "%s: %s", met, tp_why(T));
    cr_expect(strstr(tp_why(T), met), "%s: %s", met, tp_why(T));
    cr_expect_not(tp_device_ok(D), "%s: the device has failed for good", met);
    cr_expect(strstr(tp_device_why(D), said), "%s: %s", met, tp_device_why(D));
    tp_tape_free(T);
    tp_device_close(D);
    emulation.fault = cudaSuccess;
}

static tp_tensor multiply(tp_tape *T, tp_tensor x)
{
    return tp_matmul(T, x, x);
}

Test(emulation, faults_name_the_last_ops)
{
    expect_fault(false, tp_sigmoid, "cuda:0: a kernel that was queued before: unspecified");
    expect_fault(false, tp_sigmoid, "; seen by sigmoid");
    expect_fault(false, multiply, "; seen by matmul");
    expect_fault(true, tp_sigmoid, "device cuda:0: asking for memory: "); /* the result's memory */
    expect_fault(true, NULL, "device cuda:0: download: ");
}

/* The next call reports a kernel's fault; then every call fails, as on a GPU. */
Test(emulation, faults_stay)
{
    tp_device *D = device_cuda();
    emulation.fault = cudaErrorLaunchFailure;
    tp_device_sync(D);
    cr_expect_not(tp_device_ok(D));
    tp_device_close(D);
    expect_open("cuda", TP_E_DEVICE, "unspecified launch failure");
    emulation.fault = cudaSuccess;
}

Test(emulation, out_of_memory_is_an_error)
{
    tp_device *D = device_cuda();
    tp_tape *T = tp_tape_new(D, NULL);
    tp_full(T, TP_F32, TP_SHAPE(1 << 30), 0.0);
    cr_expect_eq(tp_code_of(T), TP_E_MEMORY, "%s", tp_why(T));
    tp_clear(T);
    tp_full(T, TP_F64, TP_SHAPE(4), 1.0);
    tp_exp(T, tp_full(T, TP_F64, TP_SHAPE(4), 0.0));
    cr_expect_eq(tp_code_of(T), TP_E_DTYPE, "%s", tp_why(T));
    cr_expect(strstr(tp_why(T), "exp: f64 is not supported on CUDA devices"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

Test(emulation, counts_instead_of_executing)
{
    float y[128];
    const count_line *lines;
    uint64_t launches = 0, uploaded = 0;
    emulation.counting = 1;
    cr_expect_eq(run(REVERSE, 128, 128, y), TP_OK);
    counts_op("reverse", 1);
    const size_t n = counts_list(&lines);
    for (size_t i = 0; i < n; i++) {
        const count_line *l = &lines[i];
        cr_expect_str_eq(l->op, "reverse");
        if (l->kind == COUNT_UPLOAD) uploaded += l->amount;
        if (l->kind != COUNT_KERNEL) continue;
        launches += l->calls;
        cr_expect_str_eq(l->name, "reverse_kernel");
        cr_expect_eq(l->amount, 2, "blocks of 64");
    }
    cr_expect_eq(launches, 1);
    cr_expect_eq(uploaded, sizeof y);
    for (int i = 0; i < 128; i++) cr_expect_eq(y[i], 0.0F);
    counts_clear();
    cr_expect_eq(counts_list(&lines), 0);
}

/* Forward, backward, clipping, AdamW and averages of a recorded step are one launch. */
Test(emulation, a_recorded_step_is_one_launch)
{
    static const float in[8 * 16];
    uint64_t calls[COUNT_KINDS] = { 0 };
    const count_line *lines;
    emulation.counting = 1;
    tp_device *D = tp_device_open("cuda", NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    const tp_tensor w =
        tp_param(P, "w", TP_SHAPE(16, 16), (tp_init){ TP_INIT_NORMAL, 0.5, 0.0 }, 0);
    tp_optim *O = tp_adamw_new(P, NULL);
    tp_ema *E = tp_ema_new(P, 0.9);
    tp_capture *C = tp_capture_new(T);
    tp_tensor x = TP_NONE;
    for (int i = 0; i < 6; i++) {
        counts_clear();
        tp_feed(T, &x, TP_F32, TP_SHAPE(8, 16), in);
        tp_next_rate(O, 0.1 / (i + 1));
        if (!tp_capture_begin(C)) continue;
        const tp_tensor h = tp_linear(T, tp_dropout(T, x, 0.5), w, TP_NONE, TP_ACT_NONE);
        tp_backward(T, tp_mean(T, tp_square(T, h), TP_ALL));
        tp_clip_grad_norm(P, 1.0);
        tp_step(O, 0.1 / (i + 1));
        tp_ema_update(E);
        tp_capture_end(C);
    }
    const size_t n = counts_list(&lines); /* of the last step */
    for (size_t i = 0; i < n; i++) calls[lines[i].kind] += lines[i].calls;
    cr_expect_eq(tp_capture_launches(C), 4, "%s%s", tp_why(T), tp_optim_why(O));
    for (int k = 0; k < COUNT_KINDS; k++) {
        const uint64_t wanted = k == COUNT_LAUNCH ? 1 : k == COUNT_UPLOAD ? 3 : 0;
        cr_expect_eq(calls[k], wanted,
                     "%d calls of kind %d: the input, the place in the random "
                     "stream and the optimiser's numbers are uploaded",
                     (int)calls[k], k);
    }
    tp_capture_free(C);
    tp_ema_free(E);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

#else
Test(emulation, absent)
{
    cr_skip_test("needs the preset emulate");
}
#endif
