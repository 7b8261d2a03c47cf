/* enwik8.h - the program enwik8 on a small synthetic text. */
#ifndef TP_SUPPORT_ENWIK8_H
#define TP_SUPPORT_ENWIK8_H

#include "support/program.h"

/* A model whose updates take about a millisecond. */
#define SMALL                                                                                      \
    "--threads 1 --layers 2 --dim 32 --hidden 48 --heads 2 --chunk 8 --window 16 --tokens 32 "     \
    "--mem-len 32 --batch 2 --warmup 4 --eval-tokens 200 "

/* Writes a file of this size: lines of words of a few syllables. */
void make_text(const char *name, int bytes);

void enwik8_begin(void); /* makes the folder and `text`; program_end removes it */

double bpc_printed(int64_t *tokens); /* printed by eval, with the number of tokens */

#endif
