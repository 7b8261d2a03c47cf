/* model_inner.h - what the descriptions of models share: configurations as checkpoint metadata.
 *
 * A table says which member of a configuration has which key; writing and reading walk it. */
#ifndef TP_MODEL_INNER_H
#define TP_MODEL_INNER_H

#include <tapegrad/model.h>

typedef enum tp__member_kind {
    MEMBER_INT64,
    MEMBER_INT,
    MEMBER_REAL,   /* double, round trip exact                               */
    MEMBER_FLAG,   /* bool as 0 or 1                                         */
    MEMBER_NOT,    /* bool as its opposite                                   */
    MEMBER_WORD,   /* enum that counts from 0, as one of `words`             */
    MEMBER_CHOICE, /* bool as words[0] (false) or words[1]                   */
    MEMBER_INTS,   /* int [count] as "1,2,3"                                 */
    MEMBER_INT64S, /* int64_t [count]                                        */
    MEMBER_SIDES   /* int64_t [2], height and width of an image, as "32,48"  */
} tp__member_kind;

typedef struct tp__member {
    const char *key;
    tp__member_kind kind;
    size_t at;                /* of the member in the configuration                         */
    const char *const *words; /* NULL at the end                                            */
    int count;                /* of a list                                                  */
    size_t length;            /* where an int says how many of `count` are used; 0: all are */
    const char *older;        /* another key that earlier versions wrote; may be NULL       */
    bool optional;            /* without its key the member stays as it is                  */
} tp__member;

/* m: a table that ends with a NULL key. The metadata "model" is the caller's. */
void tp__members_write(const tp__member *m, const void *cfg, tp_writer *W);

/* Reads all of m into cfg, if F holds the model of that name. False with the reason in why, without
 * the file's name. */
bool tp__members_read(const tp__member *m, const char *model, void *cfg, tp_file *F, char *why,
                      size_t size);

/* The model that a file holds, or NULL: metadata "model", or "classifier" in earlier checkpoints of
 * a model that wrote no other. */
const char *tp__model_of(tp_file *F);

#endif
