/* error.h - the first error of an object: code and full text, passed to its device's callback. */
#ifndef TP_ERROR_H
#define TP_ERROR_H

#include <stdarg.h>
#include <tapegrad/base.h>

#define TP_TEXT 2048

typedef struct tp_err {
    tp_code code; /* TP_OK while nothing has failed */
    char text[TP_TEXT];
    const tp_device *dev; /* its callback is called (tp_device_on_error); NULL: none */
} tp_err;

/* Sets *e unless it is set already, and calls the callback of its device. Returns code. */
tp_code tp__err(tp_err *e, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);
tp_code tp__verr(tp_err *e, tp_code code, const char *fmt, va_list ap) TP_PRINTF(3, 0);

/* Appends to a text, truncating at the given size. */
void tp__append(char *text, size_t size, const char *fmt, ...) TP_PRINTF(3, 4);

#endif
