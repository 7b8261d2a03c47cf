/* train_run.c - the functions for programs, and how a run fails. */
#include <stdarg.h>
#include <stdio.h>

#include "terminal.h"
#include "trainer.h"

/* ---- failures ---- */

static void vfail(tp_trainer *r, const char *fmt, va_list ap)
{
    if (r->why[0]) return;
    vsnprintf(r->why, sizeof r->why, fmt, ap);
    if (!r->why[0]) snprintf(r->why, sizeof r->why, "failed without a reason");
}

bool tp__run_fail(tp_trainer *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfail(r, fmt, ap);
    va_end(ap);
    return false;
}

bool tp__run_lost(tp_trainer *r, const char *why)
{
    static const char advice[] = "a lower --lr, a longer --warmup or a smaller --clip";
    r->lost = r->lost || !r->why[0];
    const char *search = r->o->check_finite ? "" : "; --check-finite names the op (slow)";
    if (r->saved < 0) return tp__run_fail(r, "%s; try %s%s", why, advice, search);
    return tp__run_fail(r,
                        "%s; %s still holds update %lld: start another run from it with --init and "
                        "%s%s",
                        why, r->folder.last, (long long)r->saved, advice, search);
}

static bool tape_fine(tp_trainer *r, const tp_tape *T)
{
    if (tp_code_of(T) == TP_E_NONFINITE) return tp__run_lost(r, tp_why(T));
    return tp_ok(T) || tp__run_fail(r, "%s", tp_why(T));
}

bool tp__run_fine(tp_trainer *r)
{
    const tp_run *R = &r->run;
    if (R->D && !tp_device_ok(R->D)) tp__run_fail(r, "%s", tp_device_why(R->D));
    if (R->P && !tp_params_ok(R->P)) tp__run_fail(r, "%s", tp_params_why(R->P));
    if (r->O && tp_optim_code(r->O) == TP_E_NONFINITE && !r->why[0]) {
        r->in_sums = true;
        tp__run_lost(r, tp_optim_why(r->O));
    }
    if (r->O && !tp_optim_ok(r->O)) tp__run_fail(r, "%s", tp_optim_why(r->O));
    if (r->ema && !tp_ema_ok(r->ema)) tp__run_fail(r, "%s", tp_ema_why(r->ema));
    if (R->T) tape_fine(r, R->T);
    if (R->E) tape_fine(r, R->E);
    return !r->why[0];
}

/* ---- for programs ---- */

void tp_run_fail(tp_run *R, const char *fmt, ...)
{
    if (!R) return;
    va_list ap;
    va_start(ap, fmt);
    vfail(tp__run_of(R), fmt, ap);
    va_end(ap);
}

bool tp_run_ok(tp_run *R)
{
    if (!R) return false;
    return tp__run_fine(tp__run_of(R));
}

bool tp_run_stopped(tp_run *R)
{
    if (!R) return false;
    tp_trainer *r = tp__run_of(R);
    const bool enough = r->calls > 0 && --r->calls == 0; /* ends a trial's validation */
    return enough || tp_stop_signal() || !tp_run_ok(R);
}

void tp_run_say(tp_run *R, const char *fmt, ...)
{
    if (!R) return;
    va_list ap;
    va_start(ap, fmt);
    tp__progress_say(&tp__run_of(R)->bar, fmt, ap);
    va_end(ap);
}

/* Other processes than rank 0 speak here, too, because each of them reads examples of its own. */
void tp_run_left_out(void *R, const char *name, const char *why)
{
    const tp_run *run = R;
    char text[8192];
    if (!run) return;
    if (run->rank == 0) {
        tp_run_say(R, "skipped: %s: %s", name, why);
        return;
    }
    snprintf(text, sizeof text, "rank %d skipped: %s: %s", run->rank, name, why);
    tp__print_plain(stdout, text);
    fputc('\n', stdout);
    fflush(stdout);
}

static void note(tp_run *R, const char *key, json_t *value)
{
    json_t *notes = tp__run_of(R)->notes;
    if (notes)
        json_object_set_new(notes, key, value);
    else
        json_decref(value);
}

void tp_run_note(tp_run *R, const char *key, double x)
{
    if (!R) return;
    note(R, key, tp__log_number(x));
}

void tp_run_note_int(tp_run *R, const char *key, int64_t x)
{
    if (!R) return;
    note(R, key, json_integer(x));
}

void tp_run_note_text(tp_run *R, const char *key, const char *text)
{
    if (!R) return;
    note(R, key, json_string(text));
}

char *tp_run_path(const tp_run *R, const char *name, char *buf, size_t size)
{
    if (!R) return NULL;
    const tp_trainer *r = (const tp_trainer *)(const void *)R;
    snprintf(buf, size, "%s/%s", r->folder.path, name);
    return buf;
}
