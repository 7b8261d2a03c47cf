/* main.c - the smallest program that differentiates: d(x^2)/dx at 3 is 6. */
#include <stdio.h>
#include <tapegrad/data.h>
#include <tapegrad/detection.h>
#include <tapegrad/lm.h>
#include <tapegrad/tapegrad.h>
#include <tapegrad/train.h>

int main(void)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const float three = 3.0f;
    const tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(1), &three);
    tp_backward(T, tp_sum(T, tp_square(T, x), TP_ALL));
    const double g = tp_item(T, tp_grad(T, x));
    const bool trains = tp_option_find(tp_train_options, "resume") != NULL;
    const double area = tp_corners_area((tp_corners){ 0, 0, 2, 3 });
    const int vocab = (int)tp_ls_lm_small(208).vocab;
    if (!tp_ok(T)) fprintf(stderr, "%s\n", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
    return g == 6.0 && area == 6.0 && vocab == 208 && trains ? 0 : 1;
}
