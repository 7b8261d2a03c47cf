/* calibration_draw.c - the reliability diagram. */
#include <math.h>
#include <stdio.h>

#include "calibration.h"
#include "pictures/picture.h"

enum { BINS = CALIBRATION_BINS, SIDE = 360 };

typedef struct points {
    double x[BINS], y[BINS];
} points;

/* The accuracy over the mean confidence of each bin, in percent; NAN: an empty bin. */
static void reliability(points *p, const calibration_bin bin[BINS])
{
    for (int k = 0; k < BINS; k++) {
        const double n = bin[k].examples > 0 ? (double)bin[k].examples : NAN;
        p->x[k] = 100 * bin[k].confidence / n;
        p->y[k] = 100 * (double)bin[k].right / n;
    }
}

/* The share of the examples over the middle of each bin, in percent. */
static void distribution(points *p, const calibration_bin bin[BINS])
{
    int64_t n = 0;
    for (int k = 0; k < BINS; k++) n += bin[k].examples;
    for (int k = 0; k < BINS; k++) {
        p->x[k] = 100 * (k + 0.5) / BINS;
        p->y[k] = n > 0 ? 100 * (double)bin[k].examples / (double)n : NAN;
    }
}

bool calibration_draw(const calibration_result *r, const char *what, const char *examples,
                      const char *path, char *why, size_t size)
{
    static const double ends[] = { 0, 100 };
    points p[4];
    char note[1600], scaled[64], all[64], share_of[64];
    const int n = r->scaled ? 2 : 1;
    reliability(&p[0], r->bin);
    reliability(&p[1], r->bin_after);
    distribution(&p[2], r->bin);
    distribution(&p[3], r->bin_after);
    snprintf(all, sizeof all, "all %s", examples);
    snprintf(share_of, sizeof share_of, "share of the %s, %%", examples);
    snprintf(scaled, sizeof scaled, "temperature %.2f, other half", r->temperature);
    snprintf(note, sizeof note,
             "%.1000s: %lld %s, ECE %.2f %%, NLL %.4f, Brier score %.4f\nBelow the diagonal the "
             "model is too sure of itself, above it not sure enough.",
             what, (long long)r->examples, examples, 100 * r->ece, r->nll, r->brier);
    const curve right[] = { { all, BINS, p[0].x, p[0].y },
                            { scaled, BINS, p[1].x, p[1].y },
                            { "calibrated", 2, ends, ends } };
    const curve few[] = { right[0], right[2] };
    const curve share[] = { { "", BINS, p[2].x, p[2].y }, { "", BINS, p[3].x, p[3].y } };
    const panel panels[] = {
        { .kind = PANEL_CURVES,
          .across = "probability of the likeliest class, %",
          .up = share_of,
          .width = SIDE,
          .height = SIDE,
          .curves = { .n = n, .at = share } },
        { .kind = PANEL_CURVES,
          .across = "probability of the likeliest class, %",
          .up = "accuracy, %",
          .width = SIDE,
          .height = SIDE,
          .curves = { .n = n + 1, .at = r->scaled ? right : few, .most = 100 } },
    };
    const picture whole = { "Reliability", note, 1, 2, panels };
    return picture_draw(NULL, &whole, path, why, size);
}
