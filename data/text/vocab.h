/* vocab.h - the parts of a dictionary, and the rule of text8's parts, which dictionary and text share. */
#ifndef TP_VOCAB_H
#define TP_VOCAB_H

#include <tapegrad/data.h>

/* Moves *text and *n past leading and trailing blanks, which are not part of a text8 split. */
void tp__strip_blanks(const uint8_t **text, int64_t *n);

/* A dictionary without symbols, the next symbol, and the fillers. add: false if the byte has an id. */
void tp__vocab_start(tp_vocab *v, tp_text_style style);
bool tp__vocab_add(tp_vocab *v, int byte);
void tp__vocab_finish(tp_vocab *v);

#endif
