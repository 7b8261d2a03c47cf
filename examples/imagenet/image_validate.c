/* image_validate.c - the validation of `imagenet train`: centre crops of all validation images. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "image_run.h"
#include "pictures/annotate.h"
#include "pictures/confusion.h"

static bool go_on(void *env, const score *so_far)
{
    (void)so_far;
    return !tp_run_stopped(env);
}

/* Reports an unreadable image only in its first validation. */
static void report_once(void *env, const char *name, const char *why)
{
    tp_run *R = env;
    image_run *t = R->state;
    const uint64_t hash = tp_hash_text(TP_HASH, name);
    size_t at = 0, to = t->unreads;
    while (at < to) {
        const size_t middle = at + (to - at) / 2;
        if (t->unread[middle] < hash)
            at = middle + 1;
        else
            to = middle;
    }
    if (at < t->unreads && t->unread[at] == hash) return;
    tp_run_left_out(R, name, why);
    uint64_t *more = realloc(t->unread, (t->unreads + 1) * sizeof *more);
    if (!more) return; /* is reported again */
    memmove(more + at + 1, more + at, (t->unreads - at) * sizeof *more);
    more[at] = hash;
    t->unread = more;
    t->unreads++;
}

/* Adds the number of scored images, if some were skipped. */
static void note_images(tp_run *R, const score *v, char *text, size_t size)
{
    const size_t n = strlen(text);
    if (v->skipped == 0) return;
    tp_run_note_int(R, "test_images", v->count);
    snprintf(text + n, size - n, "  on %lld of %lld images", (long long)v->count,
             (long long)(v->count + v->skipped));
}

double image_validate(tp_run *R, char *text, size_t size)
{
    const image_settings *s = R->settings;
    image_run *t = R->state;
    tp_augment a = image_eval_pipeline(s->size, s->eval_crop_ratio);
    a.filter = (tp_filter)s->filter;
    a.decode.max_pixels = s->max_pixels;
    if (R->trial) return 0; /* needs less memory than training */
    score_free(&t->score);
    if (!score_run(&t->score, R->E, t->m, t->V,
                   &(score_opts){ .augment = &a,
                                  .batch = s->train.batch,
                                  .workers = (int)s->workers,
                                  .strict = s->strict,
                                  .bad = report_once,
                                  .go_on = go_on,
                                  .env = R,
                                  .share = tp_run_share(R) }))
        tp_run_fail(R, "%s", t->score.why);
    score_total(&t->score, t->cfg.classes, R);
    if (t->score.count == 0) {
        snprintf(text, size, "without a score: none of the images can be read");
        return (double)NAN;
    }
    const double n = (double)t->score.count, top1 = 100.0 * (double)t->score.top1 / n;
    const double top5 = 100.0 * (double)t->score.top5 / n, loss = t->score.loss / n;
    snprintf(text, size, "loss %.4f  top-1 %.2f %%  top-5 %.2f %%", loss, top1, top5);
    note_images(R, &t->score, text, size);
    tp_run_note(R, "test_loss", loss);
    tp_run_note(R, "top1", top1);
    tp_run_note(R, "top5", top5);
    return top1;
}

/* If gnuplot is missing or fails, reports it once; the run continues. */
void image_draw_best(tp_run *R)
{
    const image_settings *s = R->settings;
    image_run *t = R->state;
    class_names names = { 0 };
    char path[4200], name[300], images[400], what[1000], why[2048];
    char *stored = class_names_of(t->X);
    tp_run_path(R, "confusion.png", path, sizeof path);
    title_images(s->data, image_validation(s), images, sizeof images);
    snprintf(what, sizeof what, "%.300s, update %lld, %s",
             title_name(s->train.run_dir, name, sizeof name), (long long)R->update, images);
    const bool done =
        class_names_find(&names, NULL, stored, t->cfg.classes, why, sizeof why) &&
        confusion_draw(&t->score, t->cfg.classes, &names, what, path, why, sizeof why);
    if (!done && !t->undrawn) tp_run_say(R, "%s", why);
    t->undrawn = !done;
    class_names_free(&names);
    free(stored);
}
