/* analysis.c - a model for tests of `imagenet analyze`. */
#include "support/analysis.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "image_settings.h"

enum { IMAGES = 3, SIDE = 32 };

void analysis_begin_as(analysis *a, const char *preset, bool raw_kv)
{
    image_settings s = { .train = { .accumulation = 1 } };
    char why[256] = "";
    *a = (analysis){ .n = IMAGES, .batch = 2, .block = -1, .query = -1 };
    cr_assert(image_preset(&s, preset, -1, why, sizeof why), "%s", why);
    s.size = SIDE;
    cr_assert(image_model(&s, 4, &a->f.cfg, why, sizeof why), "%s", why);
    free(s.preset);
    if (raw_kv) ((tp_cvt_cfg *)&a->f.cfg.of.at)->raw_kv = true;
    a->f.t.D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    a->f.t.P = tp_params_new(a->f.t.D, &(tp_params_opts){ .seed = 5, .dtype = TP_F64 });
    a->f.t.T = tp_tape_new(a->f.t.D, &(tp_tape_opts){ .compute = TP_F64 });
    a->f.m = calloc(1, sizeof *a->f.m);
    classifier_init(a->f.t.P, a->f.m, &a->f.cfg);
    tp_record(a->f.t.T, false);
    a->X = tp_image_set_shapes(IMAGES, SIDE, TP_VALID);
    a->as_tested = image_eval_pipeline(SIDE, 1);
    cr_assert(analysis_choose(a, 0), "%s", a->why);
}

void analysis_begin(analysis *a, const char *preset)
{
    analysis_begin_as(a, preset, false);
}

void analysis_end(analysis *a)
{
    free(a->one);
    tp_image_set_close(a->X);
    image_file_close(&a->f);
}

tp_tensor analysis_images(analysis *a)
{
    static float x[IMAGES * SIDE * SIDE * 3];
    tp_tape *T = a->f.t.T;
    tp_loader *L = analysis_loader(a);
    cr_assert(analysis_read(a, L, x, IMAGES), "%s", a->why);
    tp_loader_free(L);
    tp_reset(T);
    return tp_cast(T, tp_from(T, TP_F32, TP_SHAPE(IMAGES, SIDE, SIDE, 3), x), TP_F64);
}
