/* train_events.c - what a run writes for TensorBoard (--tensorboard), at the steps of its log:
 *
 *     scalars      each number of the log's line, under the same name
 *     images       the PNG files of the run's folder that a validation wrote
 *     histograms   with --histograms: weights/NAME after a validation, gradients/NAME of the update
 *                  before it, unclipped
 *
 * Event files are not part of the run: one that cannot be opened ends it before it begins, one that
 * cannot be written any more costs a warning. A resumed run cannot shorten one that TensorBoard may
 * be reading: it opens another, whose first event (SessionLog START) makes readers drop the steps
 * that the run repeats. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/events.h>
#include <unistd.h>

#include "trainer.h"

enum { WEIGHTS = 1, GRADIENTS = 2 }; /* bits of --histograms */

/* ---- opening ---- */

bool tp__events_check(tp_trainer *r)
{
    const tp_train_settings *o = r->o;
    if (!o->tensorboard && (o->tensorboard_dir || o->histograms))
        return tp__run_fail(r, "--%s needs --tensorboard",
                            o->histograms ? "histograms" : "tensorboard-dir");
    return !(o->histograms & GRADIENTS) || !o->shard_optimizer || !r->peers ||
           tp__run_fail(r, "--histograms of gradients needs all of them in one process: leave out "
                           "--shard-optimizer");
}

static int64_t changed(const struct stat *s)
{
    return (int64_t)s->st_mtim.tv_sec * 1000000000 + s->st_mtim.tv_nsec;
}

static void add_png(tp_trainer *r, const char *name)
{
    enum { MOST = 64 << 20 };
    char path[TP_PATH + 300];
    const char *kind;
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/%s", r->folder.path, name);
    const int fd = tp_open_regular(path, &n, &kind);
    unsigned char *png = fd >= 0 && n > 0 && n <= MOST ? malloc((size_t)n) : NULL;
    if (png && tp_read_bytes(fd, 0, png, (size_t)n) == (size_t)n)
        tp_events_png(r->events, name, r->run.update, png, (size_t)n);
    free(png);
    if (fd >= 0) close(fd);
}

/* Notes the times of the folder's pictures and, if `add`, adds those that have changed. Links are
 * not followed, as in the page of a run. */
static void pictures(tp_trainer *r, bool add)
{
    struct stat s;
    DIR *folder = opendir(r->folder.path);
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        const bool picture = e->d_name[0] != '.' && tp_ends_in(e->d_name, ".png") &&
                             fstatat(dirfd(folder), e->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 &&
                             S_ISREG(s.st_mode);
        const json_t *known = picture ? json_object_get(r->pictures, e->d_name) : NULL;
        if (!picture || (known && json_integer_value(known) == changed(&s))) continue;
        json_object_set_new(r->pictures, e->d_name, json_integer(changed(&s)));
        if (add) add_png(r, e->d_name);
    }
    if (folder) closedir(folder);
}

bool tp__events_open(tp_trainer *r, int64_t keep)
{
    const tp_train_settings *o = r->o;
    if (!o->tensorboard) return true;
    const char *folder = o->tensorboard_dir ? o->tensorboard_dir : r->folder.path;
    r->events = tp_events_open(folder, o->resume ? keep + 1 : 0);
    r->pictures = json_object();
    pictures(r, false);
    return tp_events_ok(r->events) || tp__run_fail(r, "%s", tp_events_why(r->events));
}

void tp__events_close(tp_trainer *r)
{
    tp_events_close(r->events);
    json_decref(r->pictures);
    r->events = NULL;
    r->pictures = NULL;
}

tp_events *tp_run_events(tp_run *R)
{
    return R ? tp__run_of(R)->events : NULL;
}

/* Warns once and ends the events, if they have failed. */
static void check(tp_trainer *r)
{
    if (!r->events || tp_events_ok(r->events)) return;
    tp_run_say(&r->run, "warning: no more events for TensorBoard: %s", tp_events_why(r->events));
    tp__events_close(r);
}

/* ---- writing ---- */

void tp__events_report(tp_trainer *r, const json_t *line)
{
    const char *key;
    json_t *value;
    if (!r->events) return;
    /* jansson's loop takes an object that it could change */
    json_object_foreach((json_t *)(uintptr_t)line, key, value)
    {
        if (json_is_number(value) && strcmp(key, "step") != 0)
            tp_events_scalar(r->events, key, r->run.update, json_number_value(value));
    }
    check(r);
}

/* One histogram of each parameter, of its values or its gradient times `scale`. */
static void histograms(tp_trainer *r, const char *what, bool gradient, double scale, int64_t step)
{
    float *x = NULL;
    size_t room = 0;
    tp_params *P = r->run.P;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        char tag[600];
        const int64_t numel = tp_numel(it.tensor);
        const size_t n = (size_t)numel;
        if (it.buffer || it.alias_of || (gradient && !it.has_grad)) continue;
        if (!tp_reserve(&x, &room, 0, n, sizeof *x)) {
            tp__run_fail(r, "out of memory in --histograms");
            break;
        }
        if (!(gradient ? tp_param_get_grad(P, it.tensor, TP_F32, x, n * sizeof *x)
                       : tp_param_get(P, it.tensor, TP_F32, x, n * sizeof *x))) {
            tp__run_fail(r, "%s", tp_params_why(P));
            break;
        }
        for (size_t i = 0; scale != 1.0 && i < n; i++) x[i] *= (float)scale;
        snprintf(tag, sizeof tag, "%s/%s", what, it.name);
        tp_events_histogram(r->events, tag, step, x, n);
    }
    free(x);
    check(r);
}

bool tp__events_want_gradients(const tp_trainer *r)
{
    return r->events && r->o->histograms & GRADIENTS;
}

void tp__events_gradients(tp_trainer *r)
{
    const int64_t update = r->run.update + 1;
    if (tp__events_want_gradients(r) && (update >= r->last || tp__run_validates(r, update)))
        histograms(r, "gradients", true, r->mean, update);
}

void tp__events_validated(tp_trainer *r)
{
    if (!r->events) return;
    pictures(r, true);
    if (r->o->histograms & WEIGHTS) histograms(r, "weights", false, 1.0, r->run.update);
    check(r);
}
