/* trained.c - finds and opens a trained model, for commands that use one. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/train.h>
#include <unistd.h>

const tp_option tp_trained_options[] = {
    TP_STRING("checkpoint", tp_trained_settings, checkpoint, "FILE", 0,
              "The checkpoint to load. If not given: best.safetensors of --run-dir, "
              "or last.safetensors if there is none."),
    TP_STRING("run-dir", tp_trained_settings, run_dir, "DIR", 0, "The run's folder."),
    { 0 },
};

tp_trained tp_trained_find(const tp_trained_settings *o)
{
    if (!o) return (tp_trained){ 0 };
    tp_trained t = { 0 };
    if (o->checkpoint) {
        snprintf(t.path, sizeof t.path, "%.4096s", o->checkpoint);
        return t;
    }
    snprintf(t.path, sizeof t.path, "%.4096s/best.safetensors", o->run_dir);
    if (access(t.path, F_OK) != 0 && errno == ENOENT) /* else opening it reports why */
        snprintf(t.path, sizeof t.path, "%.4096s/last.safetensors", o->run_dir);
    return t;
}

void tp_trained_open(tp_trained *t, const tp_machine_settings *o, uint64_t seed, bool blank)
{
    if (!t) return;
    const tp_dtype dtype = (tp_dtype)o->dtype;
    t->D = tp_device_open(o->device, &(tp_device_opts){ .threads = (int)o->threads });
    t->P = tp_params_new(t->D, &(tp_params_opts){ .seed = seed,
                                                  .dtype = dtype == TP_F64 ? TP_F64 : TP_F32,
                                                  .blank = blank });
    t->T = tp_tape_new(t->D, &(tp_tape_opts){ .compute = dtype });
    tp_record(t->T, false);
}

bool tp_trained_fail(tp_trained *t, const char *fmt, ...)
{
    if (!t) return false;
    va_list ap;
    va_start(ap, fmt);
    if (!t->why[0]) vsnprintf(t->why, sizeof t->why, fmt, ap);
    va_end(ap);
    return false;
}

bool tp_trained_ok(tp_trained *t)
{
    if (!t) return false;
    if (t->P && !tp_params_ok(t->P)) tp_trained_fail(t, "%s", tp_params_why(t->P));
    if (t->T && !tp_ok(t->T)) tp_trained_fail(t, "%s", tp_why(t->T));
    return !t->why[0];
}

bool tp_trained_printed(tp_trained *t)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return true;
    return tp_trained_fail(t, "standard output: %s", strerror(errno));
}

void tp_trained_close(tp_trained *t)
{
    if (!t) return;
    tp_tape_free(t->T);
    tp_params_free(t->P);
    tp_device_close(t->D);
}
