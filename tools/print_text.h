/* print_text.h - names of files, and text from them. */
#ifndef PRINT_TEXT_H
#define PRINT_TEXT_H

/* Prints it so that it cannot command a terminal (tp_plain_at), and blanks up to a width. */
void print_text(const char *s, int width);

#endif
