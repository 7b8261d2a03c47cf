/* test_fragments.c - shifts of accumulators, transposed fragments, shuffles and votes on the
 * emulated device, against plain loops, in every order of threads. */
#include <criterion/criterion.h>

#ifdef TP_EMULATION
#include <tapegrad/tapegrad.h>

#include "cuda_emulation/fragments.h"
#include "support/device.h"
#include "tensor/backend.h"
#include "tensor/rng.h"
#include "tensor/shape.h"

enum { SEED = 12, OFFSET = 5 }; /* of random words */

static void run_on(fragment what, const float *x, int64_t n, int64_t ny, float *y)
{
    tp_device *D = device_cuda();
    char why[TP_WHY] = "";
    tp_buf *from = tp__buf_new(D, (size_t)n * sizeof *x), *to = tp__buf_new(D, (size_t)ny * 4);
    D->be->upload(D, from->data, x, from->bytes);
    const tp_view in = tp__view(TP_F32, &TP_SHAPE(n), from->data);
    tp_view out = tp__view(TP_F32, &TP_SHAPE(ny), to->data);
    const tp_call c = {
        .dev = D, .nx = 1, .ny = 1, .x = &in, .y = &out, .why = why, .rng = { SEED, OFFSET }
    };
    cr_assert_eq(fragments_run(&c, what), TP_OK, "%s", why);
    D->be->download(D, y, to->data, to->bytes);
    tp__buf_unref(from);
    tp__buf_unref(to);
    tp_device_close(D);
}

/* Runs a kernel on x = 1 .. n, or tiles on small numbers, so that products are exact. */
static void run(fragment what, int64_t n, int64_t ny, float *y)
{
    float x[960];
    for (int64_t i = 0; i < n; i++) x[i] = (float)(what == TILES ? i * 7 % 5 - 2 : i + 1);
    run_on(what, x, n, ny, y);
}

Test(fragments, rows_are_shifted_and_back)
{
    float y[16 * 24];
    for (int order = 0; device_set_order(order); order++) {
        run(SKEW, 640, 384, y);
        for (int i = 0; i < 16; i++)
            for (int c = 0; c < 24; c++)
                cr_expect_eq(y[i * 24 + c], (float)(i * 40 + 16 + c - i + 1),
                             "skew: row %d, column %d, order %d", i, c, order);
        run(UNSKEW, 640, 384, y);
        for (int i = 0; i < 16; i++)
            for (int u = 0; u < 24; u++)
                cr_expect_eq(y[i * 24 + u], (float)(i * 40 + u + i + 1),
                             "unskew: row %d, column %d, order %d", i, u, order);
        run(LEAN, 192, 128, y);
        for (int i = 0; i < 16; i++)
            for (int c = 0; c < 8; c++)
                cr_expect_eq(y[i * 8 + c], (float)((16 + c - i) * 8 + c + 1),
                             "lean: row %d, column %d, order %d", i, c, order);
    }
}

Test(fragments, tiles_multiply)
{
    static float y[256 + 16 * 64 + 480];
    float x[24][64] = { { 0 } };
    for (int i = 0; i < 24 * 40; i++) x[i / 40][i % 40] = (float)(i * 7 % 5 - 2);
    for (int order = 0; device_set_order(order); order++) {
        run(TILES, 960, 256 + 16 * 64 + 480, y);
        for (int i = 0; i < 16; i++) {
            float z[16] = { 0 };
            for (int j = 0; i < 12 && j < 12; j++)
                for (int k = 0; k < 40; k++) z[j] += x[i][k] * x[12 + j][k];
            for (int j = 0; j < 16; j++)
                cr_expect_eq(y[i * 16 + j], z[j], "A B^T: row %d, column %d, order %d", i, j,
                             order);
            for (int k = 0; k < 64; k++) {
                float sum = 0.0f;
                for (int j = 0; j < 12; j++) sum += z[j] * x[12 + j][k];
                cr_expect_eq(y[256 + i * 64 + k], sum, "Z B: row %d, column %d, order %d", i, k,
                             order);
            }
        }
    }
}

Test(fragments, ldmatrix_transposes)
{
    float y[256]; /* 1 .. 256 are exact in bf16 */
    for (int order = 0; device_set_order(order); order++) {
        run(TRANSPOSED, 256, 256, y);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++)
                cr_expect_eq(y[i * 16 + j], (float)(j * 16 + i + 1), "row %d, column %d, order %d",
                             i, j, order);
    }
}

Test(fragments, shuffles_and_votes)
{
    float y[160];
    for (int order = 0; device_set_order(order); order++) {
        run(SHUFFLES, 32, 160, y);
        for (int i = 0; i < 32; i++) {
            cr_expect_eq(y[i], (float)(i + 3 < 32 ? i + 4 : i + 1), "down, lane %d", i);
            cr_expect_eq(y[32 + i], (float)(i >= 5 ? i - 4 : i + 1), "up, lane %d", i);
            cr_expect_eq(y[64 + i], 65535.0f, "ballot, lane %d", i);
            cr_expect_eq(y[96 + i], 1.0f, "any, lane %d", i);
            cr_expect_eq(y[128 + i], 0.0f, "all, lane %d", i);
        }
    }
}

/* Rows and columns begin at all places in their blocks of random words. */
Test(fragments, lanes_share_random_blocks)
{
    static const int tiles[] = { 7, 4, 4, 2, 2, 8 };
    static float y[6 * 16 * 64];
    for (int k = 0; k < 16; k++) {
        const int64_t first = 400 + k / 4, stride = 100 + k % 4;
        const float x[2] = { (float)first, (float)stride };
        run_on(DROPS, x, 2, 6 * 16 * 64, y);
        for (int e = 0; e < 6 * 16 * 64; e++) {
            const int kind = e / 1024, r = e / 64 % 16, c = e % 64;
            if (c >= 8 * tiles[kind]) continue;
            const int64_t at =
                first + (kind < 2 ? r * stride + c : c * stride + (kind < 4 ? r : 15 - r));
            const bool drops = tp__word(SEED, OFFSET, (uint64_t)at) < tp__drop_below(0.5);
            cr_expect_eq(y[e] > 0.5f, drops, "layout %d, row %d, column %d, from %d by %d", kind, r,
                         c, (int)first, (int)stride);
        }
    }
}

#else
Test(fragments, need_the_emulation)
{
    cr_skip_test("built without the emulated CUDA device");
}
#endif
