/* resolution.c - time and memory of untrained models by image size, on noise (Zhu et al. 2021,
 * Figure 7). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "probe.h"

enum { MODELS = 12, SIZES = 32 };

typedef struct measured {
    char name[64];
    int n;
    double side[SIZES], forward[SIZES], step[SIZES]; /* pixels; ms per image */
    double bytes[SIZES];                             /* MB per training step */
} measured;

/* Splits at commas and returns the number of words; -1 if a word is empty or exceeds 63 bytes, or
 * if there are more than `most`. */
static int split(const char *list, char word[][64], int most)
{
    int n = 0;
    while (*list) {
        const size_t length = strcspn(list, ",");
        if (length == 0 || length > 63 || n == most) return -1;
        memcpy(word[n], list, length);
        word[n++][length] = '\0';
        list += length + (list[length] == ',');
    }
    return n;
}

static bool read_sizes(analysis *a, const char *list, int64_t size[SIZES], int *n)
{
    char word[SIZES][64];
    *n = split(list, word, SIZES);
    for (int i = 0; i < *n; i++) {
        char *end;
        errno = 0;
        size[i] = strtoll(word[i], &end, 10);
        if (*end || errno || size[i] < 8 || size[i] > 4096)
            return analysis_fail(a, "--sizes: '%s' is not a size from 8 to 4096", word[i]);
    }
    return *n > 0 || analysis_fail(a, "--sizes: '%s' is not a list like 64,128,256", list);
}

static bool open_model(probe *b, const char *preset, int64_t size, const resolution_opts *o,
                       char *why, size_t room)
{
    const image_common *c = o->c;
    image_settings s = { .train = tp_train_defaults(NULL) };
    classifier_cfg cfg;
    bool done = image_preset(&s, preset, -1, why, room);
    s.size = size;
    s.train.machine = c->t.machine;
    s.train.batch = c->batch;
    done =
        done && image_model(&s, 10, &cfg, why, room) && probe_open(b, &cfg, &s, o->dry, why, room);
    free(s.preset);
    return done;
}

static bool measure(analysis *a, measured *m, const resolution_opts *o, int64_t size, FILE *f)
{
    char why[4096];
    probe b = { 0 };
    probe_time forward = { 0 }, step = { 0 };
    bool done = open_model(&b, m->name, size, o, why, sizeof why);
    if (!done) analysis_fail(a, "%s at %lld pixels: %s", m->name, (long long)size, why);
    b.cpu_time = o->cpu_time;
    if (done) forward = probe_measure(&b, false, o->seconds);
    if (forward.steps) step = probe_measure(&b, true, o->seconds);
    if (done && step.steps == 0)
        done = analysis_fail(a, "%s at %lld pixels: %s", m->name, (long long)size, tp_why(b.T));
    probe_close(&b);
    if (!done) return false;
    const double n = (double)o->c->batch;
    m->side[m->n] = (double)size;
    m->forward[m->n] = 1e3 * forward.seconds / n;
    m->step[m->n] = 1e3 * step.seconds / n;
    m->bytes[m->n++] = step.bytes / 1e6;
    fprintf(f, "%s\t%lld\t%lld\t%.6g\t%.6g\t%.6g\t%.6g\n", m->name, (long long)size,
            (long long)o->c->batch, 1e3 * forward.seconds / n, forward.bytes / 1e6,
            1e3 * step.seconds / n, step.bytes / 1e6);
    return true;
}

/* what: a member's offset in `measured`. */
static void draw(analysis *a, const measured *m, int n, size_t what, const char *title,
                 const char *up, const char *name)
{
    curve c[MODELS];
    for (int i = 0; i < n; i++)
        c[i] = (curve){ m[i].name, m[i].n, m[i].side,
                        (const double *)(const void *)((const char *)&m[i] + what) };
    const panel p = { .kind = PANEL_CURVES,
                      .across = "side of the image, pixels",
                      .up = up,
                      .curves = { .n = n, .at = c, .logarithmic = true } };
    analysis_draw(a, (picture){ title, "Both axes are logarithmic.", 1, 1, &p }, OF_NOISE, name);
}

bool resolution_draw(analysis *a, const resolution_opts *o)
{
    static char name[MODELS][64];
    static measured m[MODELS];
    int64_t size[SIZES] = { 0 };
    int sizes = 0;
    const int n = split(o->presets, name, MODELS);
    tsv t;
    if (n < 1)
        return analysis_fail(a, "--preset: '%s' is not a list of 1 to %d presets", o->presets,
                             MODELS);
    if (!read_sizes(a, o->sizes, size, &sizes) ||
        !tsv_begin(&t, a, "preset\tsize\tbatch\tforward_ms\tforward_mb\tstep_ms\tstep_mb"))
        return false;
    bool done = true;
    for (int i = 0; i < n && done; i++) {
        memcpy(m[i].name, name[i], sizeof m[i].name);
        for (int k = 0; k < sizes && done; k++) done = measure(a, &m[i], o, size[k], t.f);
    }
    if (!tsv_end(&t, a, "resolution.tsv")) return false;
    int drawn = 0;
    while (drawn < n && m[drawn].n > 0) drawn++;
    if (drawn == 0) return done;
    const char *clock = o->cpu_time ? "CPU time" : "time";
    snprintf(a->model, sizeof a->model, "Untrained models on noise, %s%s, batch of %lld",
             o->c->t.machine.device, o->dry ? " (not computed)" : "", (long long)o->c->batch);
    char up[80];
    snprintf(up, sizeof up, "%s per image, ms", clock);
    if (!o->dry)
        draw(a, m, drawn, offsetof(measured, forward), "Forward pass by image size", up,
             "resolution-forward");
    if (!o->dry)
        draw(a, m, drawn, offsetof(measured, step), "Training step by image size", up,
             "resolution-step");
    draw(a, m, drawn, offsetof(measured, bytes), "Peak memory of a training step by image size",
         "memory, MB", "resolution-memory");
    return done;
}
