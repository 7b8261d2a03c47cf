/* lsla_picture.c - the pictures of light self-limited attention for one query: maps of its window beside
 * the image, and curves over its keys. */
#include <math.h>

#include "analyze.h"

enum { MAPS = 5, SIDE = 120 };
static const struct {
    int kind;
    const char *name, *unit;
} map[MAPS] = {
    { LSLA_SCALE, "dynamic scale", "factor of q k" },
    { LSLA_INNER, "inner bias", "added to logits" },
    { LSLA_OUTER, "outer bias", "added to weights" },
    { LSLA_BEFORE, "before outer bias", "weight" },
    { LSLA_AFTER, "after outer bias", "weight" },
};

/* The magnitude of the darkest colour: the largest distance from `zero` in a row of maps, which for the
 * weights is that of both rows. */
static double limit_of(const lsla_query *q, int kind, double zero)
{
    const bool weights = kind == LSLA_BEFORE || kind == LSLA_AFTER;
    double most = 0;
    for (int64_t i = 0; i < q->heads * q->n; i++) {
        if (weights) most = fmax(most, fmax(q->v[LSLA_BEFORE][i], fabs(q->v[LSLA_AFTER][i])));
        most = fmax(most, fabs(q->v[kind][i] - zero));
    }
    return most;
}

/* A row of maps: the mean over the heads, then each head. All heads have one scale. */
static void put_row(panels *p, const lsla_query *q, int row, const double *mean,
                    const panel_mark *query)
{
    const int kind = map[row].kind, heads = kind == LSLA_SCALE ? 0 : (int)q->heads;
    const double zero = kind == LSLA_SCALE ? q->fixed : 0, limit = limit_of(q, kind, zero);
    char title[80];
    for (int h = -1; h < heads; h++) {
        snprintf(title, sizeof title, "head %d", h);
        if (h < 0) snprintf(title, sizeof title, heads ? "mean of heads" : "all heads");
        panels_put(p, row, 2 + h,
                   (panel){ .kind = PANEL_HEAT,
                            .width = SIDE,
                            .height = SIDE,
                            .marks = query,
                            .nmarks = 1,
                            .heat = { .rows = q->side,
                                      .cols = q->side,
                                      .v = h < 0 ? mean + kind * q->n : q->v[kind] + h * q->n,
                                      .diverging = true,
                                      .least = zero - limit,
                                      .most = zero + limit,
                                      .no_bar = h >= 0,
                                      .unit = map[row].unit } },
                   title, h < 0 ? map[row].name : "");
    }
}

static void put_photo(panels *p, int row, const tp_image *photo, const panel_mark *m,
                      const char *title)
{
    panels_put(p, row, 0,
               (panel){ .kind = PANEL_IMAGE,
                        .width = SIDE,
                        .height = SIDE,
                        .marks = m,
                        .nmarks = 1,
                        .image = { photo } },
               title, "");
}

static void draw_maps(analysis *a, const lsla_query *q, const double *mean, const tp_image *photo,
                      const tp_image *window)
{
    static const char note[] =
        "One query of one window (orange frames) and the tokens of that window. White is the fixed "
        "scale 1/\u221aD for the dynamic one, 0 for the others; blue is more, red less. Each row has "
        "one range of colours, both kinds of weights the same.";
    const double token = (double)q->pixels / (double)q->side, pixels = (double)q->pixels;
    const double row = (double)(q->query / q->side), col = (double)(q->query % q->side);
    const panel_mark in_map = { row, col, 1, 1 };
    const panel_mark in_window = { row * token, col * token, token, token };
    const panel_mark in_photo = { (double)q->pixel[0], (double)q->pixel[1], pixels, pixels };
    char title[120];
    panels p;
    if (panels_new(&p, a, MAPS, 2 + (int)q->heads)) {
        put_photo(&p, 0, photo, &in_photo, "window");
        put_photo(&p, 1, window, &in_window, "query in it");
        for (int r = 0; r < MAPS; r++) put_row(&p, q, r, mean, &in_map);
        snprintf(title, sizeof title, "Light self-limited attention in block %lld, window %lld",
                 (long long)(a->block < 0 ? 0 : a->block), (long long)a->window);
        analysis_draw(a, (picture){ title, note, p.down, p.across, p.at }, OF_ONE_IMAGE, "lsla");
    }
    panels_free(&p);
}

static void draw_curves(analysis *a, const lsla_query *q, const double *mean, const double *key)
{
    const int n = (int)q->n;
    const curve biases[] = { { "dynamic scale", n, key, mean + LSLA_SCALE * q->n },
                             { "inner bias", n, key, mean + LSLA_INNER * q->n },
                             { "outer bias", n, key, mean + LSLA_OUTER * q->n } };
    const curve weights[] = { { "before the outer bias", n, key, mean + LSLA_BEFORE * q->n },
                              { "after it", n, key, mean + LSLA_AFTER * q->n } };
    panel p = { .kind = PANEL_CURVES,
                .across = "key: token of the window, row by row",
                .up = "mean over heads",
                .curves = { .n = 3, .at = biases, .whole = true } };
    char note[120];
    snprintf(note, sizeof note, "Block %lld, window %lld, query %lld.",
             (long long)(a->block < 0 ? 0 : a->block), (long long)a->window, (long long)q->query);
    analysis_draw(a, (picture){ "Scale and biases of the keys of a query", note, 1, 1, &p },
                  OF_ONE_IMAGE, "lsla-bias");
    p.up = "weight, mean over heads";
    p.curves.n = 2;
    p.curves.at = weights;
    analysis_draw(a, (picture){ "Weights of the keys of a query", note, 1, 1, &p }, OF_ONE_IMAGE,
                  "lsla-weights");
}

/* The image, and the part of it that the window sees. */
bool lsla_picture(analysis *a, const lsla_query *q, const double *mean, const double *key)
{
    tp_image photo = { 0 }, window = { 0 };
    const tp_box box = { q->pixel[1], q->pixel[0], q->pixels, q->pixels };
    bool done = analysis_photo(a, a->image, &photo);
    if (done && !tp_image_crop(&window, &photo, box, NULL))
        done = analysis_fail(a, "%s", window.why);
    if (done) {
        draw_maps(a, q, mean, &photo, &window);
        draw_curves(a, q, mean, key);
    }
    tp_image_free(&photo);
    tp_image_free(&window);
    return done;
}
