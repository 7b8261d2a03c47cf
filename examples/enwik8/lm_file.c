/* lm_file.c - a trained model out of a checkpoint. */
#include "lm_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static bool fail(lm_file *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(lm_file *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->why, sizeof f->why, fmt, ap);
    va_end(ap);
    return false;
}

static bool read_header(lm_file *f, tp_file *F)
{
    char why[2048];
    const char *vocab = tp_file_meta(F, "vocab");
    if (!lm_cfg_read(&f->cfg, F, why, sizeof why)) return fail(f, "%s", why);
    if (!vocab || !tp_vocab_parse(&f->vocab, vocab))
        return fail(f, "%s: the dictionary ('vocab') is %s", f->path,
                    vocab ? "malformed" : "missing");
    const tp_model_opts o = tp_model_get(&f->cfg);
    if (f->vocab.size != o.outputs)
        return fail(f, "%s: the dictionary has %lld entries, the model %lld", f->path,
                    (long long)f->vocab.size, (long long)o.outputs);
    f->segment = o.cache;
    if (!tp_file_int(F, "segment", &f->segment)) return fail(f, "%s", tp_file_why(F));
    if (f->segment < 1 || f->segment > 1 << 24)
        return fail(f, "%s: a segment of %lld tokens", f->path, (long long)f->segment);
    return true;
}

bool lm_file_open(lm_file *f, const char *checkpoint, const char *run_dir)
{
    *f = (lm_file){ 0 };
    if (checkpoint) {
        snprintf(f->path, sizeof f->path, "%.4096s", checkpoint);
    } else {
        snprintf(f->path, sizeof f->path, "%.4096s/best.safetensors", run_dir);
        if (access(f->path, F_OK) != 0)
            snprintf(f->path, sizeof f->path, "%.4096s/last.safetensors", run_dir);
    }
    tp_file *F = tp_file_open(f->path);
    const bool done = read_header(f, F);
    tp_file_close(F);
    return done;
}

bool lm_file_load(lm_file *f, const tp_machine_opts *o)
{
    char why[512];
    const tp_dtype dtype = (tp_dtype)o->dtype;
    if (tp_model_check(&f->cfg, why, sizeof why)) return fail(f, "impossible model: %s", why);
    f->D = tp_device_open(o->device, &(tp_device_opts){ .threads = (int)o->threads });
    f->P = tp_params_new(
        f->D, &(tp_params_opts){ .dtype = dtype == TP_F64 ? TP_F64 : TP_F32, .blank = true });
    f->T = tp_tape_new(f->D, &(tp_tape_opts){ .compute = dtype });
    tp_record(f->T, false);
    f->m = tp_net_new(f->P, "", &f->cfg);
    tp_file *F = tp_file_open(f->path);
    bool done = tp_file_ok(F) || fail(f, "%s", tp_file_why(F));
    if (done && !tp_net_load(f->P, f->m, F, false)) done = fail(f, "%s", tp_params_why(f->P));
    tp_file_close(F);
    return done && (tp_ok(f->T) || fail(f, "%s", tp_why(f->T)));
}

void lm_file_close(lm_file *f)
{
    tp_tape_free(f->T);
    tp_net_free(f->m);
    tp_params_free(f->P);
    tp_device_close(f->D);
}
