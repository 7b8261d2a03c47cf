/* norms_report.c - prints and draws norms by layer. */
#include "norms_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "reports/json_lines.h"

bool norms_of_noise(norms *s, tp_tape *T, const tp_net *N, int64_t batch, uint64_t seed)
{
    enum { SPECIAL = 2 }; /* the first ids, among which is padding */
    const int64_t vocab = tp_model_get(tp_net_cfg(N)).vocab;
    const tp_shape shape = tp_model_input_shape(tp_net_cfg(N), batch, 0);
    tp_random r = tp_random_stream(seed, "norms", 0, 0);
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; i++) n *= shape.dim[i];
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    tp_reset(T);
    if (!ids) tp_raise(T, TP_E_MEMORY, "out of memory");
    for (int64_t i = 0; ids && i < n; i++)
        ids[i] = (int32_t)(SPECIAL + tp_random_below(&r, vocab - SPECIAL));
    tp_observe(T, norms_see, s);
    if (ids) tp_net_forward(T, N, NULL, tp_from(T, TP_I32, shape, ids));
    tp_observe(T, NULL, NULL);
    free(ids);
    return tp_ok(T);
}

/* One line of text or JSON. False: out of memory. */
static bool print(const norms_settings *o, int64_t layer, bool dual, const double x[2][2])
{
    if (o->format == 1)
        return print_json_line(
            stdout,
            json_pack("{s:I,s:b,s:o,s:o,s:o,s:o,s:o,s:o}", "layer", (json_int_t)layer, "dual_ln",
                      (int)dual, "keys", number_as_json(x[0][0]), "projected_keys",
                      number_as_json(x[0][1]), "key_ratio", number_as_json(x[0][0] / x[0][1]),
                      "values", number_as_json(x[1][0]), "projected_values",
                      number_as_json(x[1][1]), "value_ratio", number_as_json(x[1][0] / x[1][1])));
    printf("%5lld %-8s %9.4g %9.4g %7.3f %9.4g %9.4g %7.3f\n", (long long)layer,
           dual ? "with" : "without", x[0][0], x[0][1], x[0][0] / x[0][1], x[1][0], x[1][1],
           x[1][0] / x[1][1]);
    return true;
}

static bool print_all(const norm_ratios *r, const norms_settings *o)
{
    bool done = true;
    if (o->format == 0)
        printf("%5s %-8s %9s %9s %7s %9s %9s %7s\n", "layer", "DualLN", "keys", "projected",
               "ratio", "values", "projected", "ratio");
    for (int64_t i = 0; i < r->layers && done; i++) {
        if (r->has[i]) done = print(o, i, false, r->without[i]);
        if (r->dual[i]) done = done && print(o, i, true, r->with[i]);
    }
    return done;
}

bool norms_report(norms *s, const norms_settings *o, const char *model, const char *inputs,
                  char *why, size_t size)
{
    static norm_curves c;
    char note[1600];
    if (!norms_end(s)) {
        snprintf(why, size,
                 "no layer of the model has long-short attention: a window and a dynamic "
                 "projection in one softmax");
        return false;
    }
    if (!print_all(s->r, o)) {
        snprintf(why, size, "out of memory");
        return false;
    }
    if (fflush(stdout) != 0) {
        snprintf(why, size, "standard output: %s", strerror(errno));
        return false;
    }
    const panel p = { .kind = PANEL_CURVES,
                      .across = "layer",
                      .up = NORMS_UP,
                      .curves = { .n = norms_curves(s->r, &c), .at = c.at, .whole = true } };
    snprintf(note, sizeof note, "%.700s, %.300s\n" NORMS_NOTE, model, inputs);
    const picture all = { NORMS_TITLE, note, 1, 1, &p };
    return !o->picture || picture_draw(NULL, &all, o->picture, why, size);
}
