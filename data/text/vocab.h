/* vocab.h - the rule of text8's parts, which the dictionary and the text share. */
#ifndef TP_VOCAB_H
#define TP_VOCAB_H

#include <stdint.h>

/* Moves *text and *n past leading and trailing blanks, which are not part of a text8 split. */
void tp__strip_blanks(const uint8_t **text, int64_t *n);

#endif
