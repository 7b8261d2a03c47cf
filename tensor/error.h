/* error.h - an object's first error: code and text, also passed to its device's callback. */
#ifndef TP_ERROR_H
#define TP_ERROR_H

#include <stdarg.h>
#include <tapegrad/base.h>

#define TP_TEXT 2048

typedef struct tp_err {
    tp_code code; /* TP_OK while nothing has failed */
    char text[TP_TEXT];
    const tp_device *dev; /* whose callback is called (tp_device_on_error); or NULL */
} tp_err;

/* Sets *e unless already set, and calls its device's callback. Returns code. */
tp_code tp__err(tp_err *e, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);
tp_code tp__verr(tp_err *e, tp_code code, const char *fmt, va_list ap) TP_PRINTF(3, 0);

/* Appends to a text of `size` bytes; truncates it. */
void tp__append(char *text, size_t size, const char *fmt, ...) TP_PRINTF(3, 4);

#endif
