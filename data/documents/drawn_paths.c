/* drawn_paths.c - draws images in the manner of Pathfinder, by a process of our own.
 *
 * A curve is a chain of dashes, each turned a little from the one before. Chains keep a distance
 * from each other and from themselves. If one does not fit, all start over, shorter after many
 * failures, so that drawing ends. */
#include <math.h>
#include <string.h>
#include <tapegrad/random.h>

#include "documents.h"

enum {
    SIDE = 32,
    DASHES = 14,
    SHORT = 4,
    DISTRACTORS = 5,
    MOST = 2 * DASHES + DISTRACTORS * SHORT
};
enum { ATTEMPTS = 60, TURNS = 12 };
static const double step = 3, half = 1, apart = 3, border = 2, radius = 1.5, sharpest = 0.7;

typedef struct dash {
    double x, y, angle;
} dash;

typedef struct drawing {
    tp_random r;
    dash at[MOST];
    int n;
    float ink[SIDE * SIDE]; /* 0 to 1 */
} drawing;

/* Is the place inside, and far enough from all dashes except the last of its own chain? */
static bool is_free(const drawing *d, double x, double y, int begin)
{
    if (x < border || y < border || x > SIDE - 1 - border || y > SIDE - 1 - border) return false;
    for (int i = 0; i < d->n; i++) {
        const double far = hypot(x - d->at[i].x, y - d->at[i].y);
        if (far < apart && !(i == d->n - 1 && i >= begin)) return false;
    }
    return true;
}

/* Appends a chain; if it gets stuck, appends nothing and returns false. */
static bool chain(drawing *d, int length)
{
    const int begin = d->n;
    dash at = { tp_random_between(&d->r, border, SIDE - 1 - border),
                tp_random_between(&d->r, border, SIDE - 1 - border),
                tp_random_between(&d->r, 0, 6.283185307179586) };
    bool fits = is_free(d, at.x, at.y, begin);
    for (int i = 0; fits && i < length; i++) {
        d->at[d->n++] = at;
        if (i == length - 1) break;
        fits = false;
        for (int turn = 0; !fits && turn < TURNS; turn++) {
            const double angle = at.angle + tp_random_between(&d->r, -sharpest, sharpest);
            const dash next = { at.x + step * cos(angle), at.y + step * sin(angle), angle };
            fits = is_free(d, next.x, next.y, begin);
            if (fits) at = next;
        }
    }
    if (!fits) d->n = begin;
    return fits;
}

static bool try_chain(drawing *d, int length)
{
    for (int i = 0; i < ATTEMPTS; i++)
        if (chain(d, length)) return true;
    return false;
}

/* Inks pixels by their distance from a segment; a segment of length 0 is a disc. */
static void ink(drawing *d, dash at, double length, double width, float value)
{
    const double c = cos(at.angle), s = sin(at.angle), reach = length + width + 1;
    const int left = (int)fmax(at.x - reach, 0), right = (int)fmin(at.x + reach, SIDE - 1);
    const int top = (int)fmax(at.y - reach, 0), bottom = (int)fmin(at.y + reach, SIDE - 1);
    for (int y = top; y <= bottom; y++)
        for (int x = left; x <= right; x++) {
            const double dx = x - at.x, dy = y - at.y;
            const double along = fmax(fabs(dx * c + dy * s) - length, 0), across = dx * s - dy * c;
            const double cover = fmin(fmax(width + 0.5 - hypot(along, across), 0), 1);
            float *to = &d->ink[y * SIDE + x];
            *to = fmaxf(*to, (float)cover * value);
        }
}

/* Draws an image; returns its label. */
static int32_t draw(drawing *d, uint8_t pixels[SIDE * SIDE])
{
    const int32_t label = (int32_t)tp_random_below(&d->r, 2);
    int length = DASHES, fit = 0;
    for (d->n = 0; fit < 2; fit++) {
        if (try_chain(d, length)) continue;
        length -= length > SHORT;
        d->n = 0;
        fit = -1;
    }
    const int ends[] = { 0, length - 1, length, 2 * length - 1 };
    const int one = (int)tp_random_below(&d->r, 4);
    const int other = label ? one ^ 1 : (one ^ 2) ^ (int)tp_random_below(&d->r, 2);
    for (int i = 0; i < DISTRACTORS; i++) try_chain(d, SHORT);
    memset(d->ink, 0, sizeof d->ink);
    for (int i = 0; i < d->n; i++) ink(d, d->at[i], half, 0.25, 0.75f);
    ink(d, d->at[ends[one]], 0, radius, 1);
    ink(d, d->at[ends[other]], 0, radius, 1);
    for (int i = 0; i < SIDE * SIDE; i++) pixels[i] = (uint8_t)(d->ink[i] * 255 + 0.5f);
    return label;
}

tp_documents *tp_documents_drawn_paths(int64_t count, tp_part part, uint64_t seed,
                                       const tp_documents_opts *o)
{
    static const tp_documents_opts defaults = { 0 };
    tp_documents *X = tp_documents_new(1, 2);
    if (count < 1) tp__fail(X, "drawn paths: %lld images", (long long)count);
    for (int64_t i = 0; !X->why[0] && i < count; i++) {
        uint8_t pixels[SIDE * SIDE];
        drawing d = { .r = tp_random_stream(seed, "drawn paths", (uint64_t)i, (uint64_t)part) };
        const int32_t label = draw(&d, pixels);
        tp__documents_pixels(X, pixels, SIDE * SIDE, label, o ? o : &defaults);
    }
    return X;
}
