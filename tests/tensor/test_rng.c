/* test_rng.c - the random stream: known words, uniforms, normals, dropout and drop path masks. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "cpu/kit/philox_words.h"
#include "support/values.h"
#include "tensor/rng.h"

#define ONES UINT64_MAX

Test(rng, known_words)
{
    static const struct {
        uint64_t seed, offset, block;
        uint32_t w[4];
    } table[] = {
        { 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { ONES, ONES, ONES, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { 42, 0, 0, { 0x9ceaf053, 0x77f5493b, 0x12bf50ad, 0x5742b3d7 } },
        { 42, 0, 1, { 0x02933769, 0x2051e913, 0x3b68b038, 0xb62c409c } },
        { 42, 1, 0, { 0xfcdb2127, 0x53ba6cfd, 0x838f5a6e, 0x744e06fb } },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const tp_philox b = tp__philox(table[i].seed, table[i].offset, table[i].block);
        for (int k = 0; k < 4; k++) {
            cr_expect_eq(b.w[k], table[i].w[k], "row %zu, word %d: %08x", i, k, b.w[k]);
            if (table[i].block < ONES)
                cr_expect_eq(
                    tp__word(table[i].seed, table[i].offset, 4 * table[i].block + (uint64_t)k),
                    table[i].w[k], "row %zu, element %d", i, k);
        }
    }
}

/* Groups of words equal single words for any start, order and counter beyond 32 bits. */
Test(rng, words_in_groups)
{
    static const int64_t starts[] = { 0, 1, 255, 256, 1000, 77, 0x3fffffff0, 0x4000000001, 5 };
    tp_words s = { .rng = { 0x123456789abcdef0u, 0xfedcba9876543210u }, .group = -1 };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        for (int64_t e = starts[i], end = e + 700, n; e < end; e += n) {
            n = end - e;
            const uint32_t *w = tp__words_at(&s, e, &n);
            cr_assert(n > 0);
            for (int64_t k = 0; k < n; k++)
                cr_assert_eq(w[k], tp__word(s.rng.seed, s.rng.offset, (uint64_t)(e + k)),
                             "element %lld", (long long)(e + k));
        }
}

Test(rng, uniforms_and_keep_limits)
{
    cr_expect_eq(tp__uniform(0), 0.0f);
    cr_expect_eq(tp__uniform(0xff), 0.0f, "24 bits: the low byte does not count");
    cr_expect_eq(tp__uniform(0x80000000u), 0.5f);
    cr_expect_eq(tp__uniform(UINT32_MAX), 1.0f - 0x1p-24f, "1 is never reached");
    cr_expect_eq(tp__drop_below(0.0), 0);
    cr_expect_eq(tp__drop_below(0.1), 429496729u);
    cr_expect_eq(tp__drop_below(0.5), 0x80000000u);
    cr_expect_eq(tp__drop_below(nextafter(1.0, 0.0)), UINT32_MAX);

    double sum = 0.0, squares = 0.0;
    const int n = 200000;
    for (int i = 0; i < n; i++) {
        const double u = (double)tp__uniform(tp__word(3, 7, (uint64_t)i));
        sum += u;
        squares += u * u;
    }
    cr_expect_float_eq(sum / n, 0.5, 5.0 * sqrt(1.0 / 12.0 / n), "mean of uniforms");
    cr_expect_float_eq(squares / n, 1.0 / 3.0, 5.0 * sqrt(4.0 / 45.0 / n), "their squares");
}

Test(rng, normals)
{
    const int n = 200000;
    double m1 = 0.0, m2 = 0.0, m3 = 0.0, m4 = 0.0, pair = 0.0, last = 0.0;
    for (int i = 0; i < n; i++) {
        const double z = tp__normal(11, 0, (uint64_t)i);
        m1 += z / n;
        m2 += z * z / n;
        m3 += z * z * z / n;
        m4 += z * z * z * z / n;
        pair += z * last / n;
        last = z;
    }
    const double one = 5.0 / sqrt(n);
    cr_expect_float_eq(m1, 0.0, one, "mean");
    cr_expect_float_eq(m2, 1.0, one * sqrt(2.0), "variance");
    cr_expect_float_eq(m3, 0.0, one * sqrt(15.0), "third moment");
    cr_expect_float_eq(m4, 3.0, one * sqrt(96.0), "fourth moment");
    cr_expect_float_eq(pair, 0.0, one, "neighbours are independent");
}

/* cuRAND's host generator needs the library, but no GPU. */
Test(rng, curand)
{
    enum { FIRST = 262144, N = FIRST + 4096, PHILOX4_32_10 = 161 };
    static const char *const names[] = { "libcurand.so", "libcurand.so.10",
                                         "/usr/local/cuda/lib64/libcurand.so" };
    static unsigned words[N];
    void *lib = NULL, *generator = NULL;
    int (*create)(void **, int), (*seed)(void *, unsigned long long);
    int (*generate)(void *, unsigned *, size_t), (*destroy)(void *);

    for (size_t i = 0; !lib && i < sizeof names / sizeof *names; i++)
        lib = dlopen(names[i], RTLD_NOW);
    if (!lib) cr_skip_test("libcurand not found");
    *(void **)&create = dlsym(lib, "curandCreateGeneratorHost");
    *(void **)&seed = dlsym(lib, "curandSetPseudoRandomGeneratorSeed");
    *(void **)&generate = dlsym(lib, "curandGenerate");
    *(void **)&destroy = dlsym(lib, "curandDestroyGenerator");
    cr_assert(create && seed && generate && destroy);
    cr_assert_eq(create(&generator, PHILOX4_32_10), 0);
    cr_assert_eq(seed(generator, 42), 0);
    cr_assert_eq(generate(generator, words, N), 0);
    for (uint64_t i = 0; i < N; i++)
        cr_assert_eq(words[i], tp__word(42, i / FIRST, i % FIRST), "word %llu",
                     (unsigned long long)i);
    destroy(generator);
}

/* ---- masks ---- */

typedef struct world {
    tp_device *D;
    tp_tape *T;
} world;

static world begin(bool train, tp_isa isa)
{
    world s;
    s.D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2, .isa = isa });
    s.T = tp_tape_new(s.D, &(tp_tape_opts){ .seed = 42, .train = train });
    return s;
}

static void end(world *s)
{
    cr_expect(tp_ok(s->T), "%s", tp_why(s->T));
    tp_tape_free(s->T);
    tp_device_close(s->D);
}

static uint64_t offset_of(const tp_tape *T)
{
    uint64_t seed, offset;
    tp_random_state(T, &seed, &offset);
    return offset;
}

enum { N = 100003 };

Test(rng, dropout_is_the_keep_rule)
{
    static const double probabilities[] = { 0.1, 0.5, 0.9 };
    static double y[N];
    static const tp_isa isas[] = { TP_ISA_BASE, TP_ISA_AVX2, TP_ISA_AVX512 };
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        if (!tp_isa_runs(isas[k])) continue;
        world s = begin(true, isas[k]);
        for (int i = 0; i < 6; i++) {
            const double p = probabilities[i / 2];
            const tp_dtype dt = i % 2 ? TP_F64 : TP_F32;
            const uint64_t offset = offset_of(s.T);
            values_read(s.T, tp_dropout(s.T, tp_full(s.T, dt, TP_SHAPE(N), 1.0), p), y);
            cr_expect_eq(offset_of(s.T), offset + 1, "one op takes one offset");
            const double scale = dt == TP_F32 ? (double)(float)(1.0 / (1.0 - p)) : 1.0 / (1.0 - p);
            double kept = 0.0;
            for (int64_t e = 0; e < N; e++) {
                const bool keep = tp__word(42, offset, (uint64_t)e) >= tp__drop_below(p);
                cr_assert_eq(y[e], keep ? scale : 0.0, "p %g, element %lld", p, (long long)e);
                kept += keep;
            }
            cr_expect_float_eq(kept / N, 1.0 - p, 5.0 * sqrt(p * (1.0 - p) / N), "kept share");
        }
        end(&s);
    }
}

/* residual + dropout(x + b) as one op equals three ops at the same offset. */
Test(rng, dropout_add_has_the_mask_of_dropout)
{
    enum { ROWS = 301, C = 77 };
    static double x[ROWS * C], r[ROWS * C], fused[ROWS * C], plain[ROWS * C];
    double b[C];
    for (int train = 0; train < 2; train++) {
        world s = begin(train, TP_ISA_AUTO);
        const tp_shape shape = TP_SHAPE(7, 43, C);
        values_random(x, ROWS * C, 1);
        values_random(r, ROWS * C, 2);
        values_random(b, C, 3);
        const tp_tensor tx = values_constant(s.T, TP_F64, shape, x);
        const tp_tensor tr = values_constant(s.T, TP_F64, shape, r);
        const tp_tensor tb = values_constant(s.T, TP_F64, TP_SHAPE(C), b);
        values_read(s.T, tp_dropout_add(s.T, tx, tb, tr, 0.25), fused);
        tp_set_random_state(s.T, 42, 0);
        const tp_tensor dropped = tp_dropout(s.T, tp_add(s.T, tx, tb), 0.25);
        values_read(s.T, tp_add(s.T, dropped, tr), plain);
        cr_expect_leq(values_error(fused, plain, ROWS * C, 1.0), 1e-15, "%s",
                      train ? "training" : "eval");
        end(&s);
    }
}

Test(rng, eval_is_the_identity)
{
    double x[6] = { 1, 2, 3, 4, 5, 6 }, y[6];
    world s = begin(false, TP_ISA_AUTO);
    const tp_tensor t = values_constant(s.T, TP_F64, TP_SHAPE(3, 2), x);
    values_read(s.T, tp_drop_path(s.T, tp_dropout(s.T, t, 0.5), 0.5), y);
    cr_expect_eq(memcmp(x, y, sizeof x), 0);
    cr_expect_eq(offset_of(s.T), 0, "no random numbers are taken");
    end(&s);
}

Test(rng, drop_path_drops_samples)
{
    enum { SAMPLES = 500, SIZE = 33 };
    static double y[SAMPLES * SIZE];
    world s = begin(true, TP_ISA_AUTO);
    const tp_tensor x = tp_full(s.T, TP_F32, TP_SHAPE(SAMPLES, 3, 11), 1.0);
    values_read(s.T, tp_drop_path(s.T, x, 0.2), y);
    for (int64_t e = 0; e < SAMPLES * SIZE; e++) {
        const bool keep = tp__word(42, 0, (uint64_t)(e / SIZE)) >= tp__drop_below(0.2);
        cr_assert_eq(y[e], keep ? 1.25 : 0.0, "sample %lld", (long long)(e / SIZE));
    }
    end(&s);
}

/* Backward uses the forward mask, even if the tape's random state has changed since. */
Test(rng, backward_uses_the_mask_of_forward)
{
    static double y[N], dx[N];
    world s = begin(true, TP_ISA_AUTO);
    const tp_tensor x = tp_input(s.T, TP_F64, TP_SHAPE(N), memset(dx, 0, sizeof dx));
    const tp_tensor one = tp_full(s.T, TP_F64, TP_SHAPE(N), 1.0);
    tp_dropout(s.T, one, 0.5);
    tp_set_random_state(s.T, 42, 5);
    const tp_tensor d = tp_dropout(s.T, tp_add(s.T, x, one), 0.3);
    tp_dropout(s.T, one, 0.5);
    values_read(s.T, d, y);
    tp_backward(s.T, tp_sum(s.T, d, TP_ALL));
    values_read(s.T, tp_grad(s.T, x), dx);
    cr_expect_eq(memcmp(dx, y, sizeof dx), 0);
    end(&s);
}

Test(rng, messages)
{
    world s = begin(false, TP_ISA_AUTO);
    const double zeros[6] = { 0 };
    static const char *const expected[] = {
        "dropout: p must be at least 0 and less than 1, not 1",
        "dropout: p must be at least 0 and less than 1, not -0.1",
        "dropout: input 0 must be floating point, not ",
        "drop_path: p must be at least 0 and less than 1, not nan",
        "drop_path: x must have an axis of samples",
        "dropout_add: p must be at least 0 and less than 1, not 2",
        "dropout_add: x and residual differ in shape",
        "dropout_add: b must have one axis of size 3, the last of x",
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        tp_tape *T = s.T;
        const tp_tensor x = values_constant(T, TP_F32, TP_SHAPE(2, 3), zeros);
        const tp_tensor turned = values_constant(T, TP_F32, TP_SHAPE(3, 2), zeros);
        const tp_tensor b = values_constant(T, TP_F32, TP_SHAPE(2), zeros);
        switch (i) {
        case 0: tp_dropout(T, x, 1.0); break;
        case 1: tp_dropout(T, x, -0.1); break;
        case 2: tp_dropout(T, tp_from(T, TP_I32, TP_SHAPE(3), zeros), 0.5); break;
        case 3: tp_drop_path(T, x, (double)NAN); break;
        case 4: tp_drop_path(T, tp_full(T, TP_F32, TP_SCALAR, 1.0), 0.5); break;
        case 5: tp_dropout_add(T, x, TP_NONE, x, 2.0); break;
        case 6: tp_dropout_add(T, x, TP_NONE, turned, 0.5); break;
        case 7: tp_dropout_add(T, x, b, x, 0.5); break;
        }
        cr_expect_eq(strncmp(tp_why(T), expected[i], strlen(expected[i])), 0, "case %zu: %s", i,
                     tp_why(T));
        tp_clear(T);
    }
    end(&s);
}
