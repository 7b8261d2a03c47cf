/* fail.c - a tape's sticky error: recorded with its place in the program, and reported. */
#include <stdio.h>

#include "autograd/nodes.h"
#include "autograd/tape.h"

tp_tape tp__no_tape_memory = {
    .err = { TP_E_MEMORY, "tape: out of memory for the tape object itself", NULL },
    .born_failed = true,
};

static tp_tape no_tape = {
    .err = { TP_E_STATE, "tape: NULL was given in place of a tape; make one with tp_tape_new",
             NULL },
    .born_failed = true,
};

tp_tape *tp__some(const tp_tape *T)
{
    return T ? (tp_tape *)(uintptr_t)T : &no_tape;
}

bool tp__is_none(const tp_tape *T)
{
    return T == &tp__no_tape_memory || T == &no_tape || !T || T->freed;
}

/* Appends "\n  at file:line, in path, op n". */
static void where(const tp_tape *T, char *text, size_t size)
{
    if (T->file)
        tp__append(text, size, "\n  at %s:%d", T->file, T->line);
    else
        tp__append(text, size, "\n  at an unknown place");
    for (size_t i = 0; i < T->nscopes; i++)
        if (T->scopes[i].path && *T->scopes[i].path)
            tp__append(text, size, "%s%s", i == 0 ? ", in " : " > ", T->scopes[i].path);
    tp__append(text, size, ", op %lld of this tape", (long long)T->ops);
}

tp_tensor tp__fail(tp_tape *T, tp_code code, const char *fmt, ...)
{
    if (T->err.code != TP_OK) return TP_FAILED;
    char text[TP_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    where(T, text, sizeof text);
    tp__err(&T->err, code, "%s", text);
    return TP_FAILED;
}

tp_tensor tp_raise(tp_tape *T, tp_code code, const char *fmt, ...)
{
    if (tp__some(T)->err.code == TP_OK) {
        va_list ap;
        va_start(ap, fmt);
        tp__verr(&T->err, code == TP_OK ? TP_E_BUG : code, fmt, ap);
        va_end(ap);
    }
    return TP_FAILED;
}

tp_tensor tp_raise_here(tp_tape *T, tp_code code, const char *fmt, ...)
{
    char text[TP_TEXT];
    va_list ap;
    if (tp__some(T)->err.code != TP_OK) return TP_FAILED;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return tp__fail(T, code == TP_OK ? TP_E_BUG : code, "%s", text);
}

bool tp_ok(const tp_tape *T)
{
    return tp__some(T)->err.code == TP_OK;
}
const char *tp_why(const tp_tape *T)
{
    return tp__some(T)->err.text;
}
tp_code tp_code_of(const tp_tape *T)
{
    return tp__some(T)->err.code;
}

void tp_clear(tp_tape *T)
{
    if (!tp__some(T)->born_failed) T->err = (tp_err){ .dev = T->dev };
}

tp_tape *tp_at(tp_tape *T, const char *file, int line)
{
    if (tp__is_none(T)) return tp__some(T);
    T->file = file;
    T->line = line;
    return T;
}

/* ---- errors of other objects ---- */

void tp__no_host_memory(tp_tape *T)
{
    tp__fail(T, TP_E_MEMORY, "tape: out of host memory for its bookkeeping");
}

tp_code tp__device_failed(tp_tape *T)
{
    tp__fail(T, T->dev->err.code, "%s", T->dev->err.text);
    return T->dev->err.code;
}

tp_code tp__device_failed_at(tp_tape *T, const char *name, bool backward)
{
    tp__fail(T, T->dev->err.code, "%s; seen by %s%s", T->dev->err.text, name,
             backward ? " (backward)" : "");
    return T->dev->err.code;
}
