/* panels.c - the pictures of `imagenet analyze`: grids of panels, and the images that models see. */
#include <math.h>
#include <stdlib.h>
#include <tapegrad/options.h>

#include "analyze.h"
#include "image_settings.h"

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

bool analysis_photo(analysis *a, int64_t i, tp_image *photo)
{
    const int64_t side = a->f.cfg.size, each = side * side * 3;
    const tp_augment as_seen = image_eval_pipeline(side, 1);
    if (!tp_image_new(photo, side, side)) return analysis_fail(a, "%s", photo->why);
    for (int64_t k = 0; k < each; k++) {
        const float value = a->x[i * each + k] * as_seen.std[k % 3] + as_seen.mean[k % 3];
        photo->rgb[k] = (uint8_t)lrintf(255 * fminf(fmaxf(value, 0), 1));
    }
    return true;
}
