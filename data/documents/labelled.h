/* labelled.h - labelled texts while they are read: the texts, tokenised, and the classes so far. */
#ifndef TP_LABELLED_H
#define TP_LABELLED_H

#include <limits.h>
#include <tapegrad/labelled_texts.h>

#include "documents.h"

enum { TP_LABEL_BYTES = 255, TP_MOST_CLASSES = 1 << 16, TP_TEXT_PARTS = 3 };

/* A label that occurs. */
typedef struct tp_text_class {
    char *name;
    int32_t index; /* its number                                                          */
    uint8_t parts; /* of folders: bits of the parts in which it occurs; bit 3: outside them */
} tp_text_class;

/* A text: its name, its class or NULL, and its ids. */
typedef struct tp_text_item {
    size_t name;
    tp_text_class *class;
    size_t at;
    int64_t n;
} tp_text_item;

typedef struct tp_text_reader {
    tp_documents *X;
    const tp_bpe *vocabulary;
    tp_bpe_coder *coder;
    tp_labelled_opts o;
    const char *path;
    char table[TP_TEXT_PARTS][PATH_MAX]; /* DIR/PART.csv ...; "": there is none       */
    bool has[TP_TEXT_PARTS];             /* a folder has files DIR/PART/CLASS/NAME.txt */
    bool archive;                        /* path is a tar file, so there is no table   */
    char packed[256];                    /* ... and this one in it is not read          */
    int source;                          /* the part that is read; -1: all texts      */
    bool names_only;                     /* labels are collected, texts are not read   */
    bool closed;                         /* no further classes                          */
    tp_text_class **class;               /* [classes], sorted by name */
    int classes, class_room;
    tp_text_item *item;
    size_t count, room;
    int64_t cut, unknown; /* texts that were cut; ids <unk> of all texts */
    uint16_t *ids;
    size_t used, ids_room;
    char *names;
    size_t names_used, names_room;
} tp_text_reader;

/* labelled_items.c. All return false if r->X has failed. */

/* The class of a name of n bytes, which is created if it is new; where: for messages. NULL: r->X has failed. */
tp_text_class *tp__text_class(tp_text_reader *r, const char *where, const char *name, size_t n);
/* The same for a cell or member of a table: whole numbers have one class however they are written, "1" and "1.0". */
tp_text_class *tp__text_value(tp_text_reader *r, const char *where, const char *name, size_t n);
/* Ends the collection of classes: drops those that occur in other parts only (parts: bits, 0: all), numbers them. */
void tp__text_classes_end(tp_text_reader *r, uint8_t parts);
/* Adds a text; class NULL: it has no label. */
bool tp__text_add(tp_text_reader *r, const char *name, tp_text_class *class, const char *text,
                  size_t n);
/* Tokenises a text as the options say: `to` has o->longest ids. Returns their number, -1: out of memory. */
int64_t tp__text_ids(tp_bpe_coder *C, const tp_labelled_opts *o, const char *text, size_t n,
                     uint16_t *to, bool *cut);

/* records.c: reads a CSV, TSV or JSON lines file; at most r->o.limit records. */
bool tp__read_records(tp_text_reader *r, const char *path);
/* Is a file named like one? */
bool tp__are_records(const char *path);

#endif
