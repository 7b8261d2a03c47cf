/* print_text.h - names of files, text from them, and shapes, as tools print them. */
#ifndef PRINT_TEXT_H
#define PRINT_TEXT_H

#include <stddef.h>
#include <tapegrad/base.h>

/* Prints it so that it cannot command a terminal (tp_plain_at), and blanks up to a width. */
void print_text(const char *s, int width);

/* Writes "[1,2048,512]" to text and returns it. */
const char *shape_text(const tp_shape *s, char *text, size_t size);

#endif
