/* test_corrupt.c - corruptions of images: exact where a closed form exists, statistical where they
 * are random, and in the pipeline, where they do not depend on threads. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/augment.h>
#include <tapegrad/image_set.h>

enum { SIDE = 64, BYTES = SIDE * SIDE * 3 };

static tp_random stream(uint64_t index)
{
    return tp_random_stream(7, "test", index, 0);
}

static void uniform_image(tp_image *p, int64_t width, int64_t height, int value)
{
    cr_assert(tp_image_new(p, width, height), "%s", p->why);
    memset(p->rgb, value, (size_t)(width * height * 3));
}

static void drawn_image(tp_image *p)
{
    cr_assert(tp_image_new(p, SIDE, SIDE), "%s", p->why);
    for (int i = 0; i < SIDE * SIDE; i++) {
        const int x = i % SIDE, y = i / SIDE;
        p->rgb[3 * i] = (uint8_t)(x * 4);
        p->rgb[3 * i + 1] = (uint8_t)(y * 2 + 60);
        p->rgb[3 * i + 2] = (uint8_t)(128 + 100 * sin(0.3 * x) * cos(0.2 * y));
    }
}

/* Corrupts with the stream `index`. */
static void corrupt(tp_image *p, tp_corrupt c, double argument, uint64_t index)
{
    tp_image work = { 0 };
    tp_random r = stream(index);
    cr_assert(tp_image_corrupt(p, c, argument, &r, &work), "%s: %s", tp_corrupt_name(c), p->why);
    tp_image_free(&work);
}

static double squared_change(const tp_image *a, const tp_image *b)
{
    double sum = 0;
    cr_assert(a->width == b->width && a->height == b->height);
    for (int64_t i = 0; i < a->width * a->height * 3; i++) {
        const double d = (double)a->rgb[i] - (double)b->rgb[i];
        sum += d * d;
    }
    return sum;
}

/* ---- names and severities ---- */

Test(corrupt, names)
{
    for (int i = 0; i < TP_NCORRUPT; i++) {
        tp_corrupt c = TP_CORRUPT_NONE;
        const char *name = tp_corrupt_name((tp_corrupt)i);
        cr_expect(tp_corrupt_find(name, &c) && (int)c == i, "%s", name);
        for (int s = 0; s <= TP_CORRUPT_SEVERITIES + 1; s++)
            cr_expect_eq(isnan(tp_corrupt_argument((tp_corrupt)i, s)) != 0,
                         i == 0 || s < 1 || s > TP_CORRUPT_SEVERITIES, "%s, severity %d", name, s);
    }
    tp_corrupt c;
    cr_expect_not(tp_corrupt_find("gaussian_noise", &c), "a name of ImageNet-C");
    cr_expect(isnan(tp_corrupt_argument(TP_NCORRUPT, 1)));
}

/* Each severity changes an image more than the previous one. */
Test(corrupt, severities_grow)
{
    tp_image in = { 0 }, p = { 0 };
    drawn_image(&in);
    for (int c = 1; c < TP_NCORRUPT; c++) {
        double before = 0;
        for (int s = 1; s <= TP_CORRUPT_SEVERITIES; s++) {
            const double argument = tp_corrupt_argument((tp_corrupt)c, s);
            cr_assert(tp_image_copy(&p, &in));
            corrupt(&p, (tp_corrupt)c, argument, 3);
            const double change = squared_change(&p, &in);
            cr_expect_gt(change, before, "%s %d: %g, before %g", tp_corrupt_name((tp_corrupt)c), s,
                         change, before);
            before = change;
        }
    }
    tp_image_free(&in);
    tp_image_free(&p);
}

Test(corrupt, refusals)
{
    static const struct {
        tp_corrupt c;
        double argument;
        const char *why;
    } bad[] = {
        { TP_CORRUPT_JPEG, 0, "corruption jpeg of strength 0: it must be from 1 to 100" },
        { TP_CORRUPT_SHOT_NOISE, 0, "corruption shot-noise of strength 0: it must be from 0.01" },
        { TP_CORRUPT_MOTION_BLUR, NAN, "corruption motion-blur of strength nan" },
        { TP_CORRUPT_IMPULSE_NOISE, 1.5, "it must be from 0 to 1" },
        { TP_CORRUPT_GREY, -1, "it must be from 0 to 100" },
        { TP_NCORRUPT, 1, "does not exist" },
    };
    tp_image p = { 0 }, work = { 0 };
    tp_random r = stream(0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uniform_image(&p, 4, 4, 9);
        cr_expect_not(tp_image_corrupt(&p, bad[i].c, bad[i].argument, &r, &work));
        cr_expect(strstr(p.why, bad[i].why) && !tp_image_ok(&p), "%s", p.why);
        cr_expect_not(tp_image_corrupt(&p, TP_CORRUPT_JPEG, 50, &r, &work), "an empty image");
    }
    tp_image_free(&p);
    tp_image_free(&work);
}

/* Images of one pixel and of one row. */
Test(corrupt, smallest_images)
{
    static const int64_t sizes[][2] = { { 1, 1 }, { 200, 1 }, { 1, 200 }, { 3, 2 } };
    for (int k = 0; k < 4; k++)
        for (int c = 0; c < TP_NCORRUPT; c++)
            for (int s = 1; s <= TP_CORRUPT_SEVERITIES; s++) {
                tp_image p = { 0 };
                uniform_image(&p, sizes[k][0], sizes[k][1], 100);
                corrupt(&p, (tp_corrupt)c, tp_corrupt_argument((tp_corrupt)c, s), 1);
                cr_expect(p.width == sizes[k][0] && p.height == sizes[k][1]);
                tp_image_free(&p);
            }
}

/* ---- noise ---- */

Test(corrupt, gaussian_noise)
{
    static float z[BYTES];
    tp_image p = { 0 };
    tp_random r = stream(4);
    for (int i = 0; i < BYTES; i += 1024) tp_random_normals(&r, z + i, 1024);
    uniform_image(&p, SIDE, SIDE, 128);
    corrupt(&p, TP_CORRUPT_GAUSSIAN_NOISE, 0.5, 4);
    for (int i = 0; i < BYTES; i++) {
        const double x = fmin(fmax(128 + 127.5 * (double)z[i], 0), 255);
        cr_assert_eq(p.rgb[i], (int)floor(x + 0.5), "%d: %d, not %g", i, p.rgb[i], x);
    }
    tp_image_free(&p);
}

/* A count of mean m has variance m, so values have variance v / photons. */
Test(corrupt, shot_noise)
{
    static const int values[] = { 0, 51, 128 };
    const double photons = 100;
    tp_image p = { 0 };
    for (int k = 0; k < 3; k++) {
        double sum = 0, squares = 0;
        uniform_image(&p, SIDE, SIDE, values[k]);
        corrupt(&p, TP_CORRUPT_SHOT_NOISE, photons, 5);
        for (int i = 0; i < BYTES; i++) {
            const double d = p.rgb[i] / 255.0 - values[k] / 255.0, n = p.rgb[i] / 255.0 * photons;
            cr_assert_float_eq(n, nearbyint(n), 0.5 * photons / 255 + 1e-9, "whole photons");
            sum += d / BYTES;
            squares += d * d / BYTES;
        }
        const double variance = values[k] / 255.0 / photons;
        cr_expect_float_eq(sum, 0, 5 * sqrt(variance / BYTES) + 1e-9, "%d: mean %g", values[k],
                           sum);
        cr_expect_float_eq(squares, variance, 0.06 * variance, "%d: variance %g", values[k],
                           squares);
    }
    tp_image_free(&p);
}

Test(corrupt, impulse_noise)
{
    static const double shares[] = { 0, 0.2, 1 };
    tp_image p = { 0 };
    for (int k = 0; k < 3; k++) {
        int black = 0, white = 0;
        uniform_image(&p, SIDE, SIDE, 77);
        corrupt(&p, TP_CORRUPT_IMPULSE_NOISE, shares[k], 6);
        for (int i = 0; i < BYTES; i++) {
            black += p.rgb[i] == 0;
            white += p.rgb[i] == 255;
            cr_assert(p.rgb[i] == 0 || p.rgb[i] == 255 || p.rgb[i] == 77);
        }
        cr_expect_float_eq(black, shares[k] / 2 * BYTES, 280, "%d black", black);
        cr_expect_float_eq(white, shares[k] / 2 * BYTES, 280, "%d white", white);
        if (shares[k] == 1) cr_expect_eq(black + white, BYTES);
    }
    tp_image_free(&p);
}

/* ---- blurs ---- */

static const tp_corrupt blurs[] = { TP_CORRUPT_GAUSSIAN_BLUR, TP_CORRUPT_DEFOCUS_BLUR,
                                    TP_CORRUPT_MOTION_BLUR };

/* Kernels sum to 1 and are symmetric: they keep constants, and ramps away from the border. Length 0
 * changes nothing. */
Test(corrupt, blurs_keep_constants_and_ramps)
{
    for (int k = 0; k < 3; k++) {
        tp_image p = { 0 }, in = { 0 };
        uniform_image(&p, 21, SIDE, 201);
        corrupt(&p, blurs[k], 0.2, 7);
        for (int i = 0; i < 21 * SIDE * 3; i++) cr_assert_eq(p.rgb[i], 201);
        cr_assert(tp_image_new(&p, SIDE, SIDE));
        for (int i = 0; i < BYTES; i++) p.rgb[i] = (uint8_t)(i / 3 % SIDE + i / 3 / SIDE * 3);
        cr_assert(tp_image_copy(&in, &p));
        corrupt(&p, blurs[k], 0, 7);
        cr_expect_eq(squared_change(&p, &in), 0, "%s", tp_corrupt_name(blurs[k]));
        corrupt(&p, blurs[k], 1e-170, 7); /* its square is 0 */
        cr_expect_eq(squared_change(&p, &in), 0, "%s", tp_corrupt_name(blurs[k]));
        corrupt(&p, blurs[k], 0.05, 7);
        for (int i = 0; i < BYTES; i++) {
            const int x = i / 3 % SIDE, y = i / 3 / SIDE;
            if (x < 14 || y < 14 || x >= SIDE - 14 || y >= SIDE - 14) continue;
            cr_assert(abs(p.rgb[i] - in.rgb[i]) <= 1, "%s at %d,%d: %d, not %d",
                      tp_corrupt_name(blurs[k]), x, y, p.rgb[i], in.rgb[i]);
        }
        tp_image_free(&p);
        tp_image_free(&in);
    }
}

/* A white pixel on black shows the kernel: at[dy][dx] around it. */
static void response(tp_corrupt c, double argument, uint64_t index, double at[31][31])
{
    tp_image p = { 0 };
    uniform_image(&p, SIDE, SIDE, 0);
    memset(p.rgb + (32 * SIDE + 32) * 3, 255, 3);
    corrupt(&p, c, argument, index);
    for (int y = 0; y < 31; y++)
        for (int x = 0; x < 31; x++) at[y][x] = p.rgb[((y + 17) * SIDE + x + 17) * 3];
    tp_image_free(&p);
}

Test(corrupt, kernels)
{
    static double at[31][31];
    const double sigma = 1.25, radius = 3;
    double gauss = 0, disk = 0;
    for (int x = -5; x <= 5; x++) gauss += exp(-x * x / (2 * sigma * sigma));
    response(TP_CORRUPT_GAUSSIAN_BLUR, sigma / SIDE, 0, at);
    for (int y = -5; y <= 5; y++)
        for (int x = -5; x <= 5; x++) {
            const double across = floor(255 * exp(-x * x / (2 * sigma * sigma)) / gauss + 0.5);
            const double want = floor(across * exp(-y * y / (2 * sigma * sigma)) / gauss + 0.5);
            cr_expect_float_eq(at[y + 15][x + 15], want, 1e-9, "Gaussian at %d,%d", x, y);
        }
    response(TP_CORRUPT_DEFOCUS_BLUR, radius / SIDE, 0, at);
    for (int y = -15; y <= 15; y++)
        for (int x = -15; x <= 15; x++)
            disk += fmin(fmax(radius + 0.5 - sqrt(x * x + y * y), 0), 1);
    for (int y = -15; y <= 15; y++)
        for (int x = -15; x <= 15; x++) {
            const double w = fmin(fmax(radius + 0.5 - sqrt(x * x + y * y), 0), 1);
            cr_expect_float_eq(at[y + 15][x + 15], floor(255 * w / disk + 0.5), 1e-9,
                               "disk at %d,%d", x, y);
        }
}

/* A line of length L has variance L^2/12 along it, plus at most 1/4 in each direction from sharing
 * points among pixels; across it has only that. Directions differ between streams. */
Test(corrupt, lines)
{
    enum { N = 40 };
    static double at[31][31];
    const double length = 12;
    double least = 4, most = 0;
    for (uint64_t k = 0; k < N; k++) {
        double n = 0, xx = 0, yy = 0, xy = 0, sx = 0, sy = 0;
        response(TP_CORRUPT_MOTION_BLUR, length / SIDE, k, at);
        for (int y = -15; y <= 15; y++)
            for (int x = -15; x <= 15; x++) {
                const double w = at[y + 15][x + 15];
                n += w;
                sx += w * x;
                sy += w * y;
                xx += w * x * x;
                yy += w * y * y;
                xy += w * x * y;
            }
        const double half = (xx + yy) / (2 * n);
        const double spread = sqrt((xx - yy) * (xx - yy) / 4 + xy * xy) / n;
        const double angle = atan2(2 * xy, xx - yy) / 2;
        cr_expect_float_eq(n, 255, 15, "weight %g", n);
        cr_expect_float_eq(hypot(sx, sy) / n, 0, 0.15, "the centre moved by %g", hypot(sx, sy) / n);
        cr_expect_float_eq(half + spread, length * length / 12, 1, "along %g", half + spread);
        cr_expect(half - spread >= 0 && half - spread < 0.4, "across %g", half - spread);
        least = fmin(least, angle);
        most = fmax(most, angle);
    }
    cr_expect(least < -1 && most > 1, "directions from %g to %g", least, most);
}

/* ---- values, cells, JPEG ---- */

Test(corrupt, brightness)
{
    tp_image p = { 0 };
    uniform_image(&p, 16, 16, 0);
    for (int i = 0; i < 256; i++) memset(p.rgb + 3 * i, i, 3);
    corrupt(&p, TP_CORRUPT_BRIGHTNESS, 0.2, 0);
    for (int i = 0; i < 256; i++) cr_expect_eq(p.rgb[3 * i], i + 51 < 255 ? i + 51 : 255);
    tp_image_free(&p);
}

/* Those that are RandAugment operations equal them. */
Test(corrupt, factors)
{
    static const struct {
        tp_corrupt c;
        tp_pixel_op op;
        double factor;
    } cases[] = { { TP_CORRUPT_CONTRAST, TP_PIXEL_CONTRAST, 0.3 },
                  { TP_CORRUPT_DARKNESS, TP_PIXEL_BRIGHTNESS, 0.35 },
                  { TP_CORRUPT_SATURATION, TP_PIXEL_COLOR, 3 },
                  { TP_CORRUPT_GREY, TP_PIXEL_COLOR, 0 } };
    tp_image p = { 0 }, q = { 0 }, work = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        drawn_image(&p);
        drawn_image(&q);
        corrupt(&p, cases[i].c, cases[i].factor, 0);
        cr_assert(tp_image_apply(&q, cases[i].op, cases[i].factor, NULL, &work));
        cr_expect_eq(squared_change(&p, &q), 0, "%s", tp_corrupt_name(cases[i].c));
    }
    tp_image_free(&p);
    tp_image_free(&q);
    tp_image_free(&work);
}

/* Cells cover the image without overlap, of nearly equal sizes, each with its rounded mean. */
Test(corrupt, pixelate)
{
    enum { W = 10, H = 7, ACROSS = 4, DOWN = 3 };
    tp_image p = { 0 }, in = { 0 };
    cr_assert(tp_image_new(&p, W, H));
    for (int i = 0; i < W * H * 3; i++) p.rgb[i] = (uint8_t)(i * 37 % 251);
    cr_assert(tp_image_copy(&in, &p));
    corrupt(&p, TP_CORRUPT_PIXELATE, 0.35, 0);
    for (int i = 0; i < W * H * 3; i++) {
        const int x = i / 3 % W, y = i / 3 / W;
        int left = 0, top = 0, n = 0;
        long sum = 0;
        while ((left + 1) * W / ACROSS <= x) left++;
        while ((top + 1) * H / DOWN <= y) top++;
        for (int v = top * H / DOWN; v < (top + 1) * H / DOWN; v++)
            for (int u = left * W / ACROSS; u < (left + 1) * W / ACROSS; u++) {
                sum += in.rgb[(v * W + u) * 3 + i % 3];
                n++;
            }
        cr_expect_eq(p.rgb[i], (int)floor((double)sum / n + 0.5), "%d,%d", x, y);
    }
    tp_image_free(&p);
    tp_image_free(&in);
}

Test(corrupt, jpeg)
{
    tp_image p = { 0 }, in = { 0 }, grey = { 0 };
    drawn_image(&in);
    cr_assert(tp_image_copy(&p, &in));
    corrupt(&p, TP_CORRUPT_JPEG, 100, 0);
    cr_expect_lt(squared_change(&p, &in) / BYTES, 8, "%g", squared_change(&p, &in) / BYTES);
    for (int i = 0; i < BYTES; i++)
        in.rgb[i] = (uint8_t)((i / 3 * 7919 % 1009) & 255); /* a large file */
    cr_assert(tp_image_copy(&p, &in));
    corrupt(&p, TP_CORRUPT_JPEG, 100, 0);
    cr_expect_lt(squared_change(&p, &in) / BYTES, 8, "%g", squared_change(&p, &in) / BYTES);
    uniform_image(&p, 17, 33, 90); /* a constant block survives within a step of quantisation */
    uniform_image(&grey, 17, 33, 90);
    corrupt(&p, TP_CORRUPT_JPEG, 60, 0);
    cr_expect_leq(squared_change(&p, &grey), 17.0 * 33 * 3 * 9);
    uniform_image(&p, 65501, 1, 1);
    tp_random r = stream(0);
    cr_expect_not(tp_image_corrupt(&p, TP_CORRUPT_JPEG, 50, &r, &grey));
    cr_expect(strstr(p.why, "JPEG: "), "%s", p.why);
    tp_image_free(&p);
    tp_image_free(&in);
    tp_image_free(&grey);
}

/* ---- in the pipeline ---- */

/* The pipeline corrupts the pixels that the model sees, from a separate stream. */
Test(corrupt, pipeline)
{
    tp_image in = { 0 }, work = { 0 };
    drawn_image(&in);
    for (int c = 0; c < TP_NCORRUPT; c++) {
        tp_augment a;
        tp_augment_work plain = { 0 }, w = { 0 };
        const tp_example e = { .seed = 3, .epoch = 1, .index = 11 };
        float *out = malloc(sizeof(float[48 * 48 * 3]));
        cr_assert(out && tp_augment_recipe(&a, "eval", 48));
        cr_assert(tp_augment_image(&a, &plain, &in, e, out), "%s", plain.why);
        a.corrupt = (tp_corrupt)c;
        a.severity = 4;
        cr_assert(tp_augment_image(&a, &w, &in, e, out), "%s", w.why);
        tp_random r = tp_random_stream(3, "corrupt", 11, 1);
        cr_assert(tp_image_corrupt(&plain.image, a.corrupt, tp_corrupt_argument(a.corrupt, 4), &r,
                                   &work));
        cr_expect_eq(squared_change(&w.image, &plain.image), 0, "%s", tp_corrupt_name(a.corrupt));
        cr_expect_eq(out[7], ((float)w.image.rgb[7] / 255 - a.mean[1]) / a.std[1]);
        a.severity = 6;
        cr_expect_eq(tp_augment_image(&a, &w, &in, e, out), c == 0);
        cr_expect(c == 0 || strstr(w.why, "strength nan"), "%s", w.why);
        free(out);
        tp_augment_work_free(&plain);
        tp_augment_work_free(&w);
    }
    tp_image_free(&in);
    tp_image_free(&work);
}

/* Batches have the same bits with any number of threads. */
Test(corrupt, threads)
{
    enum { N = 20, EACH = 32 * 32 * 3 };
    static float x[2][N * EACH];
    tp_image_set *X = tp_image_set_shapes(N, 32, TP_VALID);
    for (int c = 1; c < TP_NCORRUPT; c++) {
        tp_augment a;
        cr_assert(tp_augment_recipe(&a, "eval", 32));
        a.corrupt = (tp_corrupt)c;
        a.severity = 3;
        for (int k = 0; k < 2; k++) {
            tp_image_batch b;
            int64_t n = 0;
            tp_loader *L = tp_image_loader_new(
                X, &(tp_image_loader_opts){
                       .augment = &a, .batch = k ? 7 : 3, .threads = k ? 3 : 1, .seed = 5 });
            for (; tp_image_loader_next(L, &b); n += b.n)
                memcpy(x[k] + n * EACH, b.x, (size_t)(b.n * EACH) * sizeof(float));
            cr_expect_eq(n, N, "%s", tp_loader_why(L));
            tp_loader_free(L);
        }
        cr_expect_arr_eq(x[0], x[1], sizeof x[0], "%s", tp_corrupt_name(a.corrupt));
    }
    tp_image_set_close(X);
}
