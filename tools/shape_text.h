/* shape_text.h - a shape as text, for tp-inspect and tp-models. */
#ifndef SHAPE_TEXT_H
#define SHAPE_TEXT_H

#include <stddef.h>
#include <tapegrad/base.h>

/* Writes "[1,2048,512]" to text and returns it. */
const char *shape_text(const tp_shape *s, char *text, size_t size);

#endif
