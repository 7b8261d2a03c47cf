/* analyze.c - `imagenet analyze`: figures of a model's internals. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analyze.h"
#include "image_commands.h"
#include "image_settings.h"
#include "pictures/annotate.h"
#include "score.h"

enum { ALL, SIMILARITY, NORMS, LSLA, BIAS, SPAN, RESOLUTION };

typedef struct analyze_options {
    image_common c;
    tp_words beside;
    char *preset, *set, *out, *sizes;
    int what, format, layout, split, clock;
    int64_t images, size, image, block, query, window;
    double row, col, seconds;
    bool fresh, dry;
} analyze_options;

#define S analyze_options

static const tp_option table_of_flags[] = {
    TP_HEADING("MODEL AND IMAGES"),
    TP_ARGUMENTS(S, beside, "RUN ...",
                 "Folders of more runs to draw in the same picture, for comparison: in that of "
                 "similarity, and with --what lsla in lsla-runs.png."),
    TP_ROWS(tp_trained_options),
    OPTION_WEIGHTS(S),
    OPTIONS_IMAGES(S, c.data, 0, 0),
    OPTION_MAX_PIXELS(S, c.max_pixels, 0),
    TP_CHOICE("split", S, split, "train|valid|test", 0, "The part to choose images from."),
    TP_INT("images", S, images, 1, TP_BIG, 0, "Number of images to average over."),
    TP_INT("batch", S, c.batch, 1, 65536, 0, "Batch size, in images."),
    OPTION_TRAINED_SIZE(S),
    TP_HEADING("DRAWING"),
    TP_CHOICE("what", S, what, "all|similarity|norms|lsla|bias|span|resolution", 0,
              "The figure to draw, see FIGURES; all: every figure of a trained model."),
    TP_CHOICE("format", S, format, "png|svg", 0, "The kind of picture."),
    TP_STRING("out", S, out, "DIR", 0,
              "The folder to write to. If not given: 'analysis' in the run's folder, or in the "
              "current one if there is no run."),
    TP_INT("image", S, image, 0, 4095, 0, "span, lsla: number of the image, from 0."),
    TP_INT("block", S, block, -1, DEPTH_MAX, 0,
           "span, bias, lsla: number of the block, from 0; -1: all blocks, or the first for lsla."),
    TP_NUM("row", S, row, 0, 0.9999, 0,
           "span: vertical position of the query token, from 0 at the top to 1."),
    TP_NUM("col", S, col, 0, 0.9999, 0,
           "span: horizontal position of the query token, from 0 at the left to 1."),
    TP_INT("window", S, window, 0, TP_BIG, 0, "lsla: number of the window, from 0."),
    TP_INT("query", S, query, -1, TP_BIG, 0,
           "lsla: number of the query token in the window, from 0; -1: the eighth."),
    TP_FLAG("fresh", S, fresh, 0,
            "Use the model of --preset with its initial weights instead of a run."),
    TP_STRING(
        "preset", S, preset, "NAME,...", 0,
        "resolution: the models; 'imagenet train --help' lists them. --fresh, --weights: one."),
    OPTION_SET(S, set, 0),
    TP_INT("seed", S, c.seed, 0, TP_BIG, 0, "Seed of the choice of images and of --fresh weights."),
    TP_STRING("sizes", S, sizes, "N,...", 0, "resolution: image sizes, in pixels a side."),
    TP_NUM("seconds", S, seconds, 0.01, 3600, 0, "resolution: duration of each measurement."),
    TP_CHOICE("clock", S, clock, "wall|cpu", 0,
              "resolution: elapsed time, or CPU time, which other load on the machine affects "
              "less."),
    TP_FLAG("dry", S, dry, 0,
            "resolution: only count memory, without computing: for sizes that would take too long "
            "or more memory than there is."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const char manual_more[] =
    "FIGURES\n"
    "    similarity  similarity of the tokens of an image after each block: mean cosine of all\n"
    "                pairs, without class and global tokens (Zhu et al. 2021, Figure 6)\n"
    "    norms       models with long-short attention: mean norm of the window's keys and\n"
    "                values over that of the projected ones, without and with DualLN (Zhu et\n"
    "                al. 2021, Figure 2)\n"
    "    span        what a token attends to. One row per block: the window directly, the map\n"
    "                through the dynamic projection, both (means over heads), both per head\n"
    "    bias        relative position bias tables. One row per table, one column per head;\n"
    "                blue: positive, red: negative\n"
    "    lsla        ViT-LSLA, one query token of a window. Rows: dynamic scale, inner bias,\n"
    "                outer bias, weights before and after the outer bias. Columns: the mean\n"
    "                over heads, then each head (Hechen et al. 2022, Figures 3 and 4).\n"
    "                With further RUNs, also the weights of all models in one picture, as of\n"
    "                one trained without the outer bias (Figure 4b)\n"
    "    resolution  time and memory of forward passes and training steps of untrained models\n"
    "                by image size (Zhu et al. 2021, Figure 7)\n\n"
    "EXIT STATUS\n"
    "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
    "EXAMPLES\n"
    "    imagenet analyze --data imagenette2 --run-dir runs/cvt-ls runs/cvt\n"
    "    imagenet analyze --what lsla runs/lsla-inner --run-dir runs/lsla --query 7\n"
    "    imagenet analyze --what norms --fresh --preset cvt-ls-13 --out norms\n"
    "    imagenet analyze --what resolution --preset cvt-ls-small,cvt-small --sizes 64,128\n"
    "    imagenet analyze --what resolution --dry --preset cvt-star-13,cvt-ls-13 \\\n"
    "        --sizes 224,448,896,1792\n";

static const tp_command manual = {
    .name = "imagenet analyze",
    .summary = "draws the papers' figures of the inside of a model",
    .synopsis = "[RUN ...] [--run-dir DIR | --checkpoint FILE] [--what FIGURE] [flag ...]\n"
                "    imagenet analyze --preset NAME --weights FILE [--what FIGURE] [flag ...]",
    .about = "Runs the model of a checkpoint on some images, observes the results of its ops, and "
             "writes figures with their numbers as tab-separated tables (FILE.tsv). gnuplot draws "
             "them; docs/pictures.md explains them.",
    .table = table_of_flags,
    .more = manual_more,
};

/* ---- images ---- */

static bool open_images(analysis *a, const analyze_options *s)
{
    title_model(&a->f, s->fresh || s->c.weights ? s->preset : NULL, a->model, sizeof a->model);
    title_images(s->c.data, (tp_part)s->split, a->set, sizeof a->set);
    a->X = s->c.data ? tp_image_set_open(s->c.data, (tp_layout)s->layout, (tp_part)s->split)
                     : tp_image_set_shapes(s->images, a->f.cfg.size, (tp_part)s->split);
    if (!tp_image_set_ok(a->X)) return analysis_fail(a, "%s", tp_image_set_why(a->X));
    eval_warn("imagenet analyze", tp_image_set_note(a->X));
    const int64_t most = tp_image_set_count(a->X);
    a->n = s->images < most ? s->images : most;
    a->as_tested = image_file_pipeline(&a->f, 0);
    a->seed = (uint64_t)s->c.seed;
    if (s->image >= a->n)
        return analysis_fail(a, "--image: there are %lld images, numbered from 0", (long long)a->n);
    return analysis_choose(a, s->image);
}

/* ---- models ---- */

static bool open_fresh(analysis *a, const analyze_options *s)
{
    image_settings model = { .train = { .accumulation = 1 } };
    classifier_cfg cfg;
    char why[1024];
    bool done = image_preset(&model, s->preset, -1, why, sizeof why);
    if (s->size > 0) model.size = s->size;
    model.set = s->set;
    done = done && image_model(&model, 10, &cfg, why, sizeof why);
    free(model.preset);
    if (!done) return analysis_fail(a, "%s", why);
    return image_file_fresh(&a->f, &cfg, &s->c) || analysis_fail(a, "%s", a->f.t.why);
}

static bool open_run(analysis *a, const analyze_options *s, const char *run)
{
    image_common c = s->c;
    const bool first = run == s->c.t.run_dir;
    c.t.run_dir = (char *)(uintptr_t)run;
    c.preset = first ? s->preset : NULL;
    if (!first) c.t.checkpoint = c.weights = NULL;
    if (first && s->fresh) return open_fresh(a, s) && open_images(a, s);
    if (!image_file_open(&a->f, &c, s->size)) return analysis_fail(a, "%s", a->f.t.why);
    return open_images(a, s);
}

static void close_run(analysis *a)
{
    image_file_close(&a->f);
    tp_image_set_close(a->X);
    free(a->one);
    a->f = (image_file){ 0 };
    a->X = NULL;
    a->one = NULL;
    a->n = 0;
}

/* Opens run i in place of the open model; 0 is the first. */
static bool open_next(analysis *a, const analyze_options *s, int i)
{
    close_run(a);
    return open_run(a, s, i ? s->beside.at[i - 1] : s->c.t.run_dir);
}

/* Draws the weights of the open ViT-LSLA and of further runs, opened in turn. */
static bool draw_weights(analysis *a, const analyze_options *s)
{
    static lsla_weights w[ANALYSIS_RUNS];
    const int n = s->beside.n + 1;
    int i = 0;
    bool done = true;
    for (; i < n && done; i++) done = (i == 0 || open_next(a, s, i)) && lsla_weigh(a, &w[i]);
    done = done && lsla_draw_runs(a, w, n);
    while (i-- > 0) free(w[i].mean);
    return done;
}

/* Draws the curves of the open model and of further runs, opened in turn. */
static bool draw_similarity(analysis *a, const analyze_options *s)
{
    static depth d[ANALYSIS_RUNS];
    static char name[ANALYSIS_RUNS][sizeof a->model];
    curve c[ANALYSIS_RUNS];
    const int n = s->beside.n + 1;
    for (int i = 0; i < n; i++) {
        if (i > 0 && !open_next(a, s, i)) return false;
        if (!similarity_measure(a, &d[i]) || (i == 0 && !similarity_write(a, &d[i]))) return false;
        snprintf(name[i], sizeof name[i], "%s", a->model);
        c[i] = (curve){ name[i], (int)d[i].blocks, d[i].number, d[i].cosine };
    }
    const panel p = { .kind = PANEL_CURVES,
                      .across = "block",
                      .up = "mean cosine of two tokens",
                      .curves = { .n = n, .at = c, .whole = true } };
    a->model[0] = '\0'; /* the legend names them */
    analysis_draw(a,
                  (picture){ "Similarity of the tokens of an image by depth",
                             "After each block: 1, all tokens point in the same direction; 0, "
                             "unrelated ones.",
                             1, 1, &p },
                  OF_ALL_IMAGES, "similarity");
    return true;
}

static bool draw_model(analysis *a, const analyze_options *s)
{
    static const struct {
        int what;
        bool (*draw)(analysis *a);
    } figures[] = {
        { NORMS, norms_draw }, { LSLA, lsla_draw }, { BIAS, bias_draw }, { SPAN, span_draw }
    };
    if (s->beside.n >= ANALYSIS_RUNS)
        return analysis_fail(a, "at most %d further runs can be drawn", ANALYSIS_RUNS - 1);
    bool done = open_run(a, s, s->c.t.run_dir);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && done; i++)
        if (s->what == ALL || s->what == figures[i].what) done = figures[i].draw(a);
    if (s->what == LSLA && s->beside.n > 0) done = done && draw_weights(a, s);
    if (s->what == ALL || s->what == SIMILARITY) /* last, because it replaces the model */
        done = done && draw_similarity(a, s);
    return done;
}

static bool analyze(analysis *a, const analyze_options *s)
{
    char why[1200];
    char folder[4400];
    const bool of_run = s->what != RESOLUTION && !s->fresh;
    snprintf(folder, sizeof folder, of_run ? "%.4096s/analysis" : "analysis", s->c.t.run_dir);
    a->out = s->out ? s->out : folder;
    a->batch = s->c.batch;
    a->ending = s->format == 1 ? "svg" : "png";
    a->named = s->what != ALL;
    a->block = s->block;
    a->row = s->row;
    a->col = s->col;
    a->window = s->window;
    a->query = s->query;
    if (of_run && !s->c.t.checkpoint && access(s->c.t.run_dir, F_OK) != 0)
        return analysis_fail(a, "%s: there is no such run", s->c.t.run_dir);
    if (s->set && !s->fresh)
        return analysis_fail(
            a, "--set: it changes the model of --fresh; that of a run is as it was trained");
    if (s->dry && s->what != RESOLUTION)
        return analysis_fail(a, "--dry: only --what resolution can be drawn without computing");
    if (s->fresh && !s->preset) return analysis_fail(a, "--fresh: name the model with --preset");
    if (!tp_make_folders(a->out, why, sizeof why)) return analysis_fail(a, "%s", why);
    if (s->what != RESOLUTION) return draw_model(a, s);
    const char *presets = s->preset ? s->preset : "cvt-ls-small,cvt-small";
    return resolution_draw(
        a, &(resolution_opts){ presets, s->sizes, s->seconds, s->clock == 1, s->dry, &s->c });
}

static bool run(void *settings, char *why, size_t size)
{
    static analysis a;
    bool done = analyze(&a, settings);
    if (done && a.undrawn > 0)
        done = analysis_fail(&a, "%d pictures were not drawn; the tables are complete", a.undrawn);
    gnuplot_end(&a.plot);
    snprintf(why, size, "%s", a.why);
    close_run(&a);
    return done;
}

int analyze_main(int argc, char **argv)
{
    analyze_options s = {
        .c = { .t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/imagenet") },
               .batch = 16 },
        .sizes = strdup("32,64,128"),
        .split = TP_VALID,
        .images = 64,
        .block = -1,
        .query = -1,
        .row = 0.5,
        .col = 0.5,
        .seconds = 1,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
