/* print_text.h - text from a file, for tp-inspect. */
#ifndef PRINT_TEXT_H
#define PRINT_TEXT_H

/* Prints it so that it cannot command a terminal (tp_plain_at), and blanks up to a width. */
void print_text(const char *s, int width);

#endif
