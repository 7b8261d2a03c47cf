/* test_emulation.c - the emulation of CUDA finds planted mistakes: a missing barrier, accesses past
 * an end, unwritten outputs, wrong tails, waits that never end, launches that a card refuses; and
 * the CUDA device's own errors.
 */
#include <criterion/criterion.h>

#ifdef TP_EMULATION
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <tapegrad/tapegrad.h>
#include <unistd.h>

#include "cuda_emulation/emulation.h"
#include "cuda_emulation/planted.h"
#include "support_device.h"
#include "tensor/backend.h"
#include "tensor/shape.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define MOST 512

/* Runs a kernel on n elements x = 1, 2, ...; the result to y. */
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
    const tp_code code = planted_run(&c, mistake);
    if (code == TP_OK) D->be->download(D, y, to->data, to->bytes);
    tp__buf_unref(from);
    tp__buf_unref(to);
    tp_device_close(D);
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
            cr_expect_eq(run(table[k].mistake, 127, 127, y), TP_OK);
            cr_expect(!reversed(y, 127, 64), "%s is seen in order %d", table[k].name, order);
        }
    float y[MOST];
    for (int order = FORWARD; order <= BACKWARD; order++) { /* one warp before the other */
        device_set_order(order);
        run(WARP_AHEAD, 128, 128, y);
        cr_expect(!reversed(y, 128, 64), "a warp ahead of others is seen in order %d", order);
        run(COPIED_EARLY, 128, 128, y);
        cr_expect(!reversed(y, 128, 64), "a copy to a place in use is seen in order %d", order);
    }
    device_set_order(0);
    run(UNWRITTEN, 127, 127, y);
    cr_expect(isnan(y[5]), "what is not written is NaN");
    run(NOT_WAITED, 128, 128, y);
    cr_expect(!reversed(y, 128, 128), "a copy that was not waited for is seen");
}

Test(emulation, finds_waits_without_end)
{
    float y[MOST];
    cr_expect_eq(run(BARRIER_IN_BRANCH, 70, 70, y), TP_E_CUDA, "barrier in a branch");
    cr_expect_eq(run(LANE_MISSING, 32, 32, y), TP_E_CUDA, "a lane is missing");
    cr_expect_eq(run(REVERSE, 70, 70, y), TP_OK, "after that all is well");
}

/* In this order: what one launch has asked for holds for the next. */
Test(emulation, finds_launches_that_a_card_refuses)
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
}

static void touch_from_the_host(void)
{
    tp_device *D = device_cuda();
    const tp_buf *b = tp__buf_new(D, 64);
    ((volatile char *)b->data)[3] = 1;
}

/* Does the sanitizer end a process that does this? */
static bool dies(planted mistake, int64_t n)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        float y[MOST];
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        if (n > 0)
            run(mistake, n, n, y);
        else
            touch_from_the_host();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}

Test(emulation, sanitizer_finds_bad_addresses)
{
    if (!SANITIZED) cr_skip_test("needs the address sanitizer: preset emulate-asan");
    cr_expect(!dies(REVERSE, 128), "a correct kernel passes");
    cr_expect(dies(PAST_THE_END, 127), "past the end of a buffer");
    cr_expect(dies(PAST_SHARED, 128), "past the end of shared memory");
    cr_expect(dies(REVERSE, 0), "the host touches device memory");
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
    expect_open("cuda", TP_E_DEVICE, "the NVIDIA driver is too old: it serves CUDA 11.4");
    emulation = usual;
    emulation.open_error = cudaErrorNoDevice;
    expect_open("cuda", TP_E_DEVICE, "the driver sees no NVIDIA card");
    emulation = usual;
    emulation.set_error = cudaErrorDevicesUnavailable;
    expect_open("cuda", TP_E_DEVICE, "another process holds the card");
    emulation = usual;
    emulation.major = 7;
    expect_open("cuda", TP_E_DEVICE, "has compute capability 7.0; 8.0 (Ampere) or later is needed");
    emulation = usual;
    emulation.memory = 1 << 20;
    expect_open("cuda", TP_E_DEVICE, "is the card's memory full?");
}

Test(emulation, faults_name_the_last_ops)
{
    tp_device *D = device_cuda();
    tp_tape *T = tp_tape_new(D, NULL);
    const float one = 1.0f;
    tp_tensor x = tp_from(T, TP_F32, TP_SCALAR, &one);
    x = tp_tanh(T, tp_exp(T, x));
    cr_expect_float_eq((float)tp_item(T, x), 0.9913f, 1e-4f);
    emulation.async = cudaErrorLaunchFailure;
    cr_expect(isnan(tp_item(T, x)));
    cr_expect_eq(tp_code_of(T), TP_E_CUDA);
    cr_expect(strstr(tp_why(T), "device cuda:0: waiting: unspecified launch failure "
                                "(cudaErrorLaunchFailure); one of the last ops queued: tanh, exp"),
              "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
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

#else
Test(emulation, absent)
{
    cr_skip_test("needs the preset emulate");
}
#endif
