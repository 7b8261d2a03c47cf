/* affine.c - rotation, shear and translation of images, bit-identical to Pillow's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

bool tp_image_affine(tp_image *out, const tp_image *in, const double m[6], tp_filter filter,
                     const uint8_t fill[3])
{
    if (!out) return false;
    if (!tp_image_ok(in)) return tp__image_fail_as(out, in);
    if (!tp_image_new(out, in->width, in->height)) return false;
    tp__loops()->affine(out, in, m, filter, fill);
    return true;
}

/* Rounds to 15 decimals, as Pillow does. */
static double rounded(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.15f", x);
    return strtod(text, NULL);
}

void tp_image_rotation(const tp_image *in, double degrees, double m[6])
{
    if (!in) return;
    const double turn = fmod(degrees, 360), pi = 3.141592653589793;
    const double angle = -((turn < 0 ? turn + 360 : turn) * (pi / 180));
    const double x = (double)in->width / 2, y = (double)in->height / 2;
    const double c = rounded(cos(angle)), s = rounded(sin(angle)), d = rounded(-sin(angle));
    const double rotation[6] = { c, s, c * -x + s * -y + x, d, c, d * -x + c * -y + y };
    memcpy(m, rotation, sizeof rotation);
}
