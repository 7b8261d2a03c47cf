/* calibration.c - compares a model's probabilities with its accuracy. Scores every temperature as
 * each example is added, so that no logits are stored. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "calibration.h"
#include "pictures/picture.h"

enum { BINS = CALIBRATION_BINS, UNIT = 32, PER_OCTAVE = 16 }; /* temperature[UNIT] = 1 */

static double temperature(int t)
{
    return exp2((double)(t - UNIT) / PER_OCTAVE);
}

/* ---- adding ---- */

bool calibration_fits(int64_t example)
{
    tp_random r = tp_random_stream(0, "calibration", (uint64_t)example, 0);
    return tp_random_word(&r) % 2 == 0;
}

/* Bin k holds confidences in (k/15, (k+1)/15]. */
static void add(calibration_bin bin[BINS], double confidence, bool right)
{
    int k = (int)ceil(confidence * BINS) - 1;
    k = k < 0 ? 0 : k < BINS ? k : BINS - 1;
    bin[k].examples++;
    bin[k].right += right;
    bin[k].confidence += confidence;
}

/* Sum over the classes of exp((logit - top) / temperature). */
static double partition(const float *logits, int64_t classes, double top, double t)
{
    double sum = 0;
    for (int64_t c = 0; c < classes; c++) sum += exp(((double)logits[c] - top) / t);
    return sum;
}

static double brier(const float *logits, int64_t classes, double top, double sum, int32_t label)
{
    double squares = 0;
    for (int64_t c = 0; c < classes; c++) {
        const double p = exp((double)logits[c] - top) / sum, d = p - (c == label);
        squares += d * d;
    }
    return squares;
}

static bool keep(calibration *c, double confidence, bool right)
{
    if (c->n == c->room) {
        const int64_t room = c->room ? 2 * c->room : 1024;
        struct calibration_guess *more = realloc(c->guess, (size_t)room * sizeof *more);
        if (!more) return false;
        c->guess = more;
        c->room = room;
    }
    c->guess[c->n++] = (struct calibration_guess){ confidence, right };
    return true;
}

void calibration_note(calibration *c, int64_t example, int32_t label, const float *logits,
                      int64_t classes)
{
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++)
        if (logits[k] > logits[best]) best = k;
    const double top = (double)logits[best], below = top - (double)logits[label];
    if (!isfinite(top) || !isfinite(below)) return;
    const bool right = best == label, fits = calibration_fits(example);
    const double sum = partition(logits, classes, top, 1);
    if (isnan(sum)) return;
    if (!keep(c, 1 / sum, right)) c->no_memory = true;
    c->nll += log(sum) + below;
    c->brier += brier(logits, classes, top, sum, label);
    *(fits ? &c->fitted : &c->others) += 1;
    for (int t = 0; t < TEMPERATURES; t++) {
        const double s = partition(logits, classes, top, temperature(t));
        *(fits ? &c->fit[t] : &c->other[t].nll) += log(s) + below / temperature(t);
        if (!fits) add(c->other[t].bin, 1 / s, right);
    }
}

void calibration_free(calibration *c)
{
    free(c->guess);
    *c = (calibration){ 0 };
}

/* ---- results ---- */

double calibration_error(const calibration_bin bin[BINS], int64_t n)
{
    double sum = 0;
    for (int k = 0; k < BINS; k++) sum += fabs((double)bin[k].right - bin[k].confidence);
    return n > 0 ? sum / (double)n : NAN;
}

/* Among equal confidences wrong predictions come first; the order of examples does not matter. */
static int by_confidence(const void *a, const void *b)
{
    const struct calibration_guess *x = a, *y = b;
    if (x->confidence != y->confidence) return x->confidence < y->confidence ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

static double adaptive_error(const calibration *c)
{
    calibration_bin bin[BINS] = { 0 };
    for (int64_t i = 0; i < c->n; i++) {
        calibration_bin *b = &bin[i * BINS / c->n];
        b->right += c->guess[i].right;
        b->confidence += c->guess[i].confidence;
    }
    return calibration_error(bin, c->n);
}

static void scale(calibration_result *r, const calibration *c)
{
    int best = 0;
    r->scaled = c->fitted > 0 && c->others > 0;
    if (!r->scaled) return;
    for (int t = 1; t < TEMPERATURES; t++)
        if (c->fit[t] < c->fit[best]) best = t;
    r->temperature = temperature(best);
    r->nll_before = c->other[UNIT].nll / (double)c->others;
    r->nll_after = c->other[best].nll / (double)c->others;
    r->ece_before = calibration_error(c->other[UNIT].bin, c->others);
    r->ece_after = calibration_error(c->other[best].bin, c->others);
    memcpy(r->bin_after, c->other[best].bin, sizeof r->bin_after);
}

calibration_result calibration_of(calibration *c)
{
    const double n = (double)c->n;
    calibration_result r = { .examples = c->n, .nll = c->nll / n, .brier = c->brier / n };
    if (c->n > 0) qsort(c->guess, (size_t)c->n, sizeof *c->guess, by_confidence);
    for (int64_t i = 0; i < c->n; i++) {
        add(r.bin, c->guess[i].confidence, c->guess[i].right);
        r.confidence += c->guess[i].confidence / n;
        r.right += c->guess[i].right / n;
    }
    r.ece = calibration_error(r.bin, c->n);
    r.adaptive = c->n > 0 ? adaptive_error(c) : NAN;
    scale(&r, c);
    return r;
}

/* ---- the diagram ---- */

enum { SIDE = 360 };

typedef struct points {
    double x[BINS], y[BINS];
} points;

/* Accuracy over mean confidence of each bin, in percent; NAN: empty bin. */
static void reliability(points *p, const calibration_bin bin[BINS])
{
    for (int k = 0; k < BINS; k++) {
        const double n = bin[k].examples > 0 ? (double)bin[k].examples : NAN;
        p->x[k] = 100 * bin[k].confidence / n;
        p->y[k] = 100 * (double)bin[k].right / n;
    }
}

/* Share of the examples over the middle of each bin, in percent. */
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
