/* test_gradcheck.c - the gradient of every op against finite differences, on every instruction set;
 * and that the check itself finds planted mistakes. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/device.h>
#include <tapegrad/op.h>

extern const tp_op *const tp_op_table[]; /* made by cmake/op_table.cmake, ends with NULL */

static void check_all(tp_isa isa)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2, .isa = isa });
    char text[2048];
    for (const tp_op *const *op = tp_op_table; *op; op++)
        cr_expect(tp_gradcheck(*op, D, text, sizeof text), "%s: %s", tp_device_stats(D).isa, text);
    tp_device_close(D);
}

Test(gradcheck, every_op_base)
{
    check_all(TP_ISA_BASE);
}

Test(gradcheck, every_op_avx2)
{
    if (!tp_isa_runs(TP_ISA_AVX2)) cr_skip_test("this machine does not run avx2 kernels");
    check_all(TP_ISA_AVX2);
}

Test(gradcheck, every_op_avx512)
{
    if (!tp_isa_runs(TP_ISA_AVX512)) cr_skip_test("this machine does not run avx512 kernels");
    check_all(TP_ISA_AVX512);
}

/* ---- ops with planted mistakes: y0 = a^2 b, y1 = 3 a ---- */

typedef enum mistake {
    NONE,
    SLIGHTLY_WRONG, /* one part in 10^5                                     */
    SECOND_OUTPUT,  /* dy1 forgotten                                        */
    NAN_GRADIENT,
    NAN_RESULT,
    ALONE,   /* da depends on whether db is wanted                         */
    NO_ADD,  /* overwrites although asked to add                           */
    READS_Y, /* an output that is not saved                                */
    KERNEL_FAILS
} mistake;

static tp_code bad_shape(tp_infer *q)
{
    q->y[0] = q->y[1] = q->x[0];
    return TP_OK;
}

static tp_code bad_forward(const tp_call *c)
{
    const mistake m = *(const mistake *)c->attr;
    if (m == KERNEL_FAILS) return strcpy(c->why, "out of patience"), TP_E_VALUE;
    for (int64_t i = 0; i < c->x[0].numel; i++) {
        const double a = tp_ld(&c->x[0], i), b = tp_ld(&c->x[1], i);
        tp_st(&c->y[0], i, m == NAN_RESULT ? NAN : a * a * b);
        tp_st(&c->y[1], i, 3.0 * a);
    }
    return TP_OK;
}

static void put(const tp_call *c, int i, int64_t e, double g)
{
    const bool add = (c->add >> i & 1u) && *(const mistake *)c->attr != NO_ADD;
    if (c->dx[i].data) tp_st(&c->dx[i], e, add ? tp_ld(&c->dx[i], e) + g : g);
}

static tp_code bad_backward(const tp_call *c)
{
    const mistake m = *(const mistake *)c->attr;
    for (int64_t i = 0; i < c->x[0].numel; i++) {
        const double a = tp_ld(&c->x[0], i), b = tp_ld(&c->x[1], i), dy = tp_ld(&c->dy[0], i);
        double da = 2.0 * a * b * dy;
        if (m != SECOND_OUTPUT) da += 3.0 * tp_ld(&c->dy[1], i);
        if (m == SLIGHTLY_WRONG) da *= 1.00001;
        if (m == ALONE && !c->dx[1].data) da = 0.0;
        if (m == READS_Y) da = da + tp_ld(&c->y[1], i) - 3.0 * a;
        put(c, 0, i, m == NAN_GRADIENT ? NAN : da);
        put(c, 1, i, a * a * dy);
    }
    return TP_OK;
}

/* What tp_gradcheck says about an op with the mistake, on 5 elements and on 5 x 13. */
static bool verdict_saving(uint32_t saves, mistake m, bool large, char *text, size_t size)
{
    const tp_shape s = large ? TP_SHAPE(5, 13) : TP_SHAPE(5);
    const tp_gradcase cases[] = { { "only", .in = { s, s }, .attr = &m, .ny = 2 }, { 0 } };
    const tp_op op = {
        .name = "bad",
        .nx = 2,
        .ny = 2,
        .attr_size = sizeof m,
        .saves = saves,
        .flags = TP_ACCUMULATES,
        .shape = bad_shape,
        .forward = { [TP_CPU] = bad_forward },
        .backward = { [TP_CPU] = bad_backward },
        .cases = cases,
    };
    return tp_gradcheck(&op, NULL, text, size);
}

static bool verdict(mistake m, bool large, char *text, size_t size)
{
    return verdict_saving(TP_SAVE_X(0) | TP_SAVE_X(1), m, large, text, size);
}

/* Otherwise the kernel would follow a NULL pointer. */
Test(gradcheck, names_unsaved_reads)
{
    static const struct {
        uint32_t saves;
        mistake m;
        const char *text;
    } table[] = {
        { 0, NONE,
          "bad, case 'only' (eval): backward reads input 0, which the op does not save (a "
          "NULL pointer when it runs): add TP_SAVE_X(0) to .saves" },
        { TP_SAVE_X(0), NONE, "backward reads input 1, which" },
        { TP_SAVE_X(0) | TP_SAVE_X(1), READS_Y, "backward reads output 1, which" },
    };
    char text[2048];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        cr_expect(!verdict_saving(table[i].saves, table[i].m, false, text, sizeof text));
        cr_expect(strstr(text, table[i].text), "%zu: %s", i, text);
    }
    const uint32_t all = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(1);
    cr_expect(verdict_saving(all, READS_Y, false, text, sizeof text), "%s", text);
}

Test(gradcheck, finds_mistakes)
{
    static const struct {
        mistake m;
        const char *text;
    } table[] = {
        { SLIGHTLY_WRONG, " 0: backward gives " },
        { SECOND_OUTPUT, " 0: backward gives " },
        { NAN_GRADIENT, "(eval): the gradient of input 0 is not finite" },
        { NAN_RESULT, "(eval): a result is not finite" },
        { ALONE, "(eval): input 0, element 0: the gradient wanted alone is 0 instead of" },
        { NO_ADD, "(eval): input 0, element 0: the gradient of two applications is" },
        { KERNEL_FAILS, "(eval): bad: out of patience" },
    };
    char text[2048];

    for (int large = 0; large < 2; large++) {
        cr_expect(verdict(NONE, large, text, sizeof text), "no mistake: %s", text);
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
            cr_expect(!verdict(table[i].m, large, text, sizeof text), "mistake %d passes",
                      table[i].m);
            cr_expect(strstr(text, table[i].text), "mistake %d: %s", table[i].m, text);
        }
    }
}

Test(gradcheck, requires_cases)
{
    const tp_op op = { .name = "bare", .nx = 1, .ny = 1 };
    const tp_op no_gradient = { .name = "flat", .nx = 1, .ny = 1, .flags = TP_NOT_DIFFERENTIABLE };
    char text[256];
    cr_expect(!tp_gradcheck(&op, NULL, text, sizeof text));
    cr_expect_str_eq(text, "bare: differentiable, but without gradient cases");
    cr_expect(tp_gradcheck(&no_gradient, NULL, text, sizeof text));
}
