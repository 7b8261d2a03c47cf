/* image_file.c - see the header. */
#include "image_file.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool image_file_fail(image_file *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->why, sizeof f->why, fmt, ap);
    va_end(ap);
    return false;
}

static bool read_header(image_file *f, tp_file *F)
{
    char why[2048];
    const char *names = tp_file_meta(F, "class_names");
    if (!classifier_read(&f->cfg, F, why, sizeof why)) return image_file_fail(f, "%s", why);
    f->crop_ratio = 0.875;
    if (!tp_file_num(F, "eval_crop_ratio", &f->crop_ratio))
        return image_file_fail(f, "%s", tp_file_why(F));
    f->names = names ? strdup(names) : NULL;
    return !names || f->names || image_file_fail(f, "out of memory");
}

/* blank: weights are loaded next. */
static bool build(image_file *f, const image_common *c, bool blank)
{
    const tp_dtype dtype = (tp_dtype)c->machine.dtype;
    f->D =
        tp_device_open(c->machine.device, &(tp_device_opts){ .threads = (int)c->machine.threads });
    f->P = tp_params_new(f->D, &(tp_params_opts){ .seed = (uint64_t)c->seed,
                                                  .dtype = dtype == TP_F64 ? TP_F64 : TP_F32,
                                                  .blank = blank });
    f->T = tp_tape_new(f->D, &(tp_tape_opts){ .compute = dtype });
    f->m = calloc(1, sizeof *f->m);
    if (!f->m) return image_file_fail(f, "out of memory");
    tp_record(f->T, false);
    classifier_init(f->P, f->m, &f->cfg);
    return true;
}

static bool load(image_file *f, tp_file *F, const image_common *c, bool resized)
{
    if (!build(f, c, true)) return false;
    if (!(resized ? classifier_load_resized(f->P, f->m, F) : classifier_weights(f->P, F)))
        return image_file_fail(f, "%s", tp_params_why(f->P));
    return tp_ok(f->T) || image_file_fail(f, "%s", tp_why(f->T));
}

bool image_file_fresh(image_file *f, const classifier_cfg *cfg, const image_common *c)
{
    *f = (image_file){ .cfg = *cfg, .crop_ratio = 0.875 };
    if (!build(f, c, false)) return false;
    if (!tp_params_ok(f->P)) return image_file_fail(f, "%s", tp_params_why(f->P));
    return tp_ok(f->T) || image_file_fail(f, "%s", tp_why(f->T));
}

bool image_file_open(image_file *f, const char *checkpoint, const image_common *c, int64_t size)
{
    *f = (image_file){ 0 };
    if (checkpoint) {
        snprintf(f->path, sizeof f->path, "%.4096s", checkpoint);
    } else {
        snprintf(f->path, sizeof f->path, "%.4096s/best.safetensors", c->run_dir);
        if (access(f->path, F_OK) != 0)
            snprintf(f->path, sizeof f->path, "%.4096s/last.safetensors", c->run_dir);
    }
    tp_file *F = tp_file_open(f->path);
    bool done = read_header(f, F);
    const bool resized = done && size > 0 && size != f->cfg.size;
    if (resized) {
        char why[1024];
        classifier_fit(&f->cfg, size, f->cfg.classes);
        if (!classifier_check(&f->cfg, why, sizeof why))
            done = image_file_fail(f, "--size %lld: %s", (long long)size, why);
        else if (!classifier_resizes_all(&f->cfg))
            done = image_file_fail(f,
                                   "--size %lld: Linformer mixes the tokens of one size; train at "
                                   "this one with --init %s --resize",
                                   (long long)size, f->path);
    }
    done = done && load(f, F, c, resized);
    tp_file_close(F);
    return done;
}

void image_file_close(image_file *f)
{
    tp_tape_free(f->T);
    tp_params_free(f->P);
    tp_device_close(f->D);
    classifier_free(f->m);
    free(f->names);
}
