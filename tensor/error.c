/* error.c - error codes, their names, and composing error texts. */
#include "tensor/error.h"

#include <stdio.h>
#include <string.h>

#include "tensor/backend.h"

#define TP_STR(x)  #x
#define TP_XSTR(x) TP_STR(x)

const char *tp_version(void)
{
    return TP_XSTR(TP_VERSION_MAJOR) "." TP_XSTR(TP_VERSION_MINOR) "." TP_XSTR(TP_VERSION_PATCH);
}

const char *tp_code_name(tp_code code)
{
    switch (code) {
#define X(name, text)                                                                              \
    case TP_##name: return "TP_" #name;
        TP_CODES(X)
#undef X
    }
    return "TP_E_?";
}

const char *tp_code_text(tp_code code)
{
    switch (code) {
#define X(name, text)                                                                              \
    case TP_##name: return text;
        TP_CODES(X)
#undef X
    }
    return "unknown code";
}

tp_code tp__verr(tp_err *e, tp_code code, const char *fmt, va_list ap)
{
#ifdef TAPEGRAD_ASSERTS
    if (code == TP_E_BUG) __builtin_trap();
#endif
    if (e->code != TP_OK) return code;
    e->code = code;
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    if (e->dev && e->dev->on_error) e->dev->on_error(e->dev->on_error_env, code, e->text);
    return code;
}

tp_code tp__err(tp_err *e, tp_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tp__verr(e, code, fmt, ap);
    va_end(ap);
    return code;
}

void tp__append(char *text, size_t size, const char *fmt, ...)
{
    const size_t n = strlen(text);
    if (n + 1 >= size) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + n, size - n, fmt, ap);
    va_end(ap);
}
