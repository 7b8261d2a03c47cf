/* tools.c - runs the model under observation; writes and draws figures. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/options.h>

#include "analyze.h"
#include "image_settings.h"

bool analysis_fail(analysis *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(a->why, sizeof a->why, fmt, ap);
    va_end(ap);
    return false;
}

bool analysis_none(analysis *a, const char *figure, const char *what)
{
    if (!a->named) return true;
    if (a->block < 0) return analysis_fail(a, "%s: no block of the model has %s", figure, what);
    return analysis_fail(a, "%s: block %lld of the model has no %s", figure, (long long)a->block,
                         what);
}

/* ---- running ---- */

bool analysis_ends_block(const tp_seen *s)
{
    return strcmp(s->op->name, "dropout_add") == 0 || strcmp(s->op->name, "relu") == 0;
}

int64_t analysis_front(const classifier_cfg *c, int64_t block)
{
    const tp_vil_cfg *vil = classifier_cfg_as(c, &tp_model_vil);
    const tp_cvt_cfg *cvt = classifier_cfg_as(c, &tp_model_cvt);
    if (vil) {
        int k = 0;
        while (k < vil->stages - 1 && block >= vil->stage[k].blocks)
            block -= vil->stage[k++].blocks;
        return vil->stage[k].global;
    }
    if (!cvt || cvt->mean_pool) return 0;
    return block >= cvt->blocks[0] + cvt->blocks[1];
}

typedef struct watch {
    analysis *a;
    tp_observer see;
    void *env;
} watch;

static void forward_op(void *env, tp_tape *T, const tp_seen *s)
{
    watch *w = env;
    w->see(w->env, T, s);
    w->a->at += analysis_ends_block(s);
}

/* Runs the images x [count,size,size,3]. */
static bool run_batch(analysis *a, const float *x, int64_t count, tp_observer see, void *env)
{
    tp_tape *T = a->f.t.T;
    watch w = { a, see, env };
    a->at = 0;
    tp_reset(T);
    const tp_tensor in = classifier_input(T, a->f.m, x, count);
    tp_observe(T, forward_op, &w);
    classifier_forward(T, a->f.m, in);
    tp_observe(T, NULL, NULL);
    return tp_ok(T) || analysis_fail(a, "%s", tp_why(T));
}

/* ---- images: read each time, as there may be more than fit into memory ---- */

static int64_t image_numel(const analysis *a)
{
    return a->f.cfg.size * a->f.cfg.size * 3;
}

/* .train shuffles the images, to sample all classes. */
tp_loader *analysis_loader(const analysis *a)
{
    return tp_image_loader_new(
        a->X, &(tp_image_loader_opts){
                  .augment = &a->as_tested, .batch = 1, .seed = a->seed, .train = true });
}

bool analysis_read(analysis *a, tp_loader *L, float *x, int64_t count)
{
    const int64_t each = image_numel(a);
    tp_image_batch b;
    for (int64_t i = 0; i < count; i++) {
        if (!tp_image_loader_next(L, &b)) return analysis_fail(a, "%s", tp_loader_why(L));
        memcpy(x + i * each, b.x, (size_t)each * sizeof *x);
    }
    return true;
}

bool analysis_choose(analysis *a, int64_t image)
{
    tp_loader *L = analysis_loader(a);
    free(a->one);
    a->image = image;
    a->one = malloc((size_t)image_numel(a) * sizeof *a->one);
    if (a->one) tp_loader_seek(L, 0, image);
    const bool done = a->one ? analysis_read(a, L, a->one, 1) : analysis_fail(a, "out of memory");
    tp_loader_free(L);
    return done;
}

bool analysis_run(analysis *a, tp_observer see, void *env)
{
    const int64_t batch = a->n < a->batch ? a->n : a->batch;
    float *x = malloc((size_t)(batch * image_numel(a)) * sizeof *x);
    tp_loader *L = analysis_loader(a);
    bool done = x != NULL;
    if (!x) analysis_fail(a, "out of memory");
    for (int64_t i = 0; i < a->n && done; i += batch) {
        const int64_t count = a->n - i < batch ? a->n - i : batch;
        done = analysis_read(a, L, x, count) && run_batch(a, x, count, see, env);
    }
    tp_loader_free(L);
    free(x);
    return done;
}

bool analysis_run_one(analysis *a, tp_observer see, void *env)
{
    return run_batch(a, a->one, 1, see, env);
}

/* ---- files ---- */

void analysis_path(const analysis *a, const char *name, char path[4400])
{
    snprintf(path, 4400, "%.4200s/%.100s", a->out, name);
}

bool tsv_begin(tsv *t, analysis *a, const char *columns)
{
    *t = (tsv){ 0 };
    t->f = open_memstream(&t->text, &t->size);
    if (!t->f) return analysis_fail(a, "out of memory");
    fprintf(t->f, "%s\n", columns);
    return true;
}

bool tsv_end(tsv *t, analysis *a, const char *name)
{
    char path[4400], why[4500];
    analysis_path(a, name, path);
    const bool whole = !ferror(t->f);
    if (fclose(t->f) != 0 || !whole) {
        free(t->text);
        return analysis_fail(a, "%s: out of memory", path);
    }
    const bool done = tp_file_replace(path, t->text, t->size, why, sizeof why);
    free(t->text);
    if (done) printf("%s\n", path);
    return done || analysis_fail(a, "%s", why);
}

double analysis_mean(const double *v, int64_t heads, int64_t n, int64_t i)
{
    double sum = 0;
    for (int64_t h = 0; h < heads; h++) sum += v[h * n + i];
    return sum / (double)heads;
}

/* ---- pictures: grids of panels, and model inputs as images ---- */

bool panels_new(panels *s, analysis *a, int down, int across)
{
    const size_t n = (size_t)down * (size_t)across;
    *s = (panels){ down, across, calloc(n, sizeof *s->at), calloc(n, sizeof *s->text) };
    return (s->at && s->text) || analysis_fail(a, "out of memory");
}

void panels_free(panels *s)
{
    free(s->at);
    free(s->text);
    *s = (panels){ 0 };
}

void panels_put(panels *s, int row, int col, panel p, const char *title, const char *up)
{
    const int i = row * s->across + col;
    snprintf(s->text[i][0], sizeof s->text[i][0], "%s", title);
    snprintf(s->text[i][1], sizeof s->text[i][1], "%s", up);
    p.title = *title ? s->text[i][0] : NULL;
    p.up = *up ? s->text[i][1] : NULL;
    s->at[i] = p;
}

void analysis_draw(analysis *a, picture p, shown what, const char *name)
{
    char path[4400], file[120], images[500] = "", note[2800], why[2400];
    snprintf(file, sizeof file, "%.100s.%s", name, a->ending);
    analysis_path(a, file, path);
    if (what == OF_ONE_IMAGE)
        snprintf(images, sizeof images, "image %lld of %s", (long long)a->image, a->set);
    if (what == OF_ALL_IMAGES)
        snprintf(images, sizeof images, "%lld images of %s", (long long)a->n, a->set);
    snprintf(note, sizeof note, "%s%s%s\n%s", a->model, a->model[0] && images[0] ? ", " : "",
             images, p.note);
    p.note = note;
    if (picture_draw(&a->plot, &p, path, why, sizeof why)) {
        printf("%s\n", path);
        return;
    }
    tp_command_complain("imagenet analyze", why);
    a->undrawn++;
}

bool analysis_photo(analysis *a, tp_image *photo)
{
    const int64_t side = a->f.cfg.size, each = side * side * 3;
    const tp_augment as_seen = image_eval_pipeline(side, 1);
    if (!tp_image_new(photo, side, side)) return analysis_fail(a, "%s", photo->why);
    for (int64_t k = 0; k < each; k++) {
        const float value = a->one[k] * as_seen.std[k % 3] + as_seen.mean[k % 3];
        photo->rgb[k] = (uint8_t)lrintf(255 * fminf(fmaxf(value, 0), 1));
    }
    return true;
}
