/* parity_exceptions.h - reasons that several tables of exceptions share. */
#ifndef PARITY_EXCEPTIONS_H
#define PARITY_EXCEPTIONS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/augment.h>

#include "parity_audit.h"

static inline bool is(parity *p, const char *key, const char *value)
{
    const char *text = par_text(p, key);
    return text && strcmp(text, value) == 0;
}

static inline int64_t number(parity *p, const char *key)
{
    const char *text = par_text(p, key);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* True if one value is `a` and the other `b`. */
static inline bool are(const char *from, const char *to, const char *a, const char *b)
{
    return (strcmp(from, a) == 0 && strcmp(to, b) == 0) ||
           (strcmp(from, b) == 0 && strcmp(to, a) == 0);
}

/* Changes this small are lost in the rounding of the reference next to variances of 10 and more. Ten
 * times the usual 1e-5, or adding 1, is not. */
static inline bool small_change(parity *p, const char *from, const char *to)
{
    static const double lost = 2.1e-5;
    (void)p;
    return fabs(strtod(from, NULL) - strtod(to, NULL)) <= lost;
}

static inline bool one_side(parity *p, const char *from, const char *to)
{
    const size_t n = strlen(to);
    (void)p;
    return strlen(from) == 2 * n + 1 && strncmp(from, to, n) == 0 && strcmp(from + n + 1, to) == 0;
}

static inline bool in_evaluation(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "mode", "eval");
}

static inline int64_t smaller_side(parity *p)
{
    const int64_t H = number(p, "height"), W = number(p, "width");
    return H < W ? H : W;
}

/* The box of cutmix has integer sides, and its area determines lambda. */
static inline bool same_box(parity *p, const char *from, const char *to)
{
    const double a = strtod(from, NULL), b = strtod(to, NULL);
    const tp_shape s = par_shape(p, "input.x");
    int64_t n;
    const int64_t *centre = par_sizes(p, "cutmix_centre", 0, &n);

    if (n != 2 || s.ndim != 4 || !(a >= 0 && a <= 1 && b >= 0 && b <= 1)) return false;
    const tp_box x = tp_mix_cut(a, centre[1], centre[0], s.dim[2], s.dim[3]).box;
    const tp_box y = tp_mix_cut(b, centre[1], centre[0], s.dim[2], s.dim[3]).box;
    return x.x == y.x && x.y == y.y && x.width == y.width && x.height == y.height;
}

/* The value of the key, or of `other` if the key is absent. */
static inline int64_t number_or(parity *p, const char *key, const char *other)
{
    return number(p, par_given(p, key) ? key : other);
}

static inline bool no_warmup(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return number_or(p, "warmup_iters", "warmup_epochs") == 0;
}

/* True if every window of w, with its halo, covers a whole side of the map. */
static inline bool reaches(int64_t w, int64_t side)
{
    const int64_t halo = w > 1 ? w / 2 : 1;
    return w > 0 && (side - 1) / w * w <= halo && w + halo >= side;
}

static inline bool fewer_names(parity *p, const char *from, const char *to)
{
    (void)p;
    return strlen(to) < strlen(from);
}

#endif
