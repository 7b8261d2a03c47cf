/* op_guide.c - values and gradients of docs/adding-an-op.md's op and of a function that is a row of
 * functions.h. */
#include <criterion/criterion.h>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>

extern const tp_op tp_op_inverse, tp_op_cube;

static void expect(const tp_op *op, tp_tensor (*f)(tp_tape *, tp_tensor), const float want[3])
{
    const float x[3] = { 0.5f, -2.0f, 4.0f };
    float y[3] = { 0 };
    char text[2000] = "";
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor in = tp_from(T, TP_F32, TP_SHAPE(3), x);
    cr_expect(tp_read(T, f(T, in), y, sizeof y), "%s", tp_why(T));
    for (int i = 0; i < 3; i++) cr_expect_eq(y[i], want[i], "%s: %g", op->name, (double)y[i]);
    cr_expect(tp_gradcheck(op, D, text, sizeof text), "%s", text);
    tp_tape_free(T);
    tp_device_close(D);
}

Test(op_guide, inverse)
{
    expect(&tp_op_inverse, tp_inverse, (const float[]){ 2.0f, -0.5f, 0.25f });
}

Test(op_guide, one_row)
{
    expect(&tp_op_cube, tp_cube, (const float[]){ 0.125f, -8.0f, 64.0f });
}
