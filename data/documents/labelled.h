/* labelled.h - the reader of labelled texts: the tokenised texts and the classes so far. */
#ifndef TP_LABELLED_H
#define TP_LABELLED_H

#include <limits.h>
#include <tapegrad/labelled_texts.h>

#include "documents.h"

enum { TP_LABEL_BYTES = 255, TP_MOST_CLASSES = 1 << 16, TP_TEXT_PARTS = 3 };

/* A label that occurs. */
typedef struct tp_text_class {
    char *name;    /* first: tp__by_value reads it */
    int32_t index; /* its number */
    uint8_t parts; /* of folders: bits of the parts that contain it; bit 3: outside parts */
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
    char table[TP_TEXT_PARTS][PATH_MAX]; /* DIR/PART.csv ...; "": none */
    bool has[TP_TEXT_PARTS];             /* there are files DIR/PART/CLASS/NAME.txt */
    bool archive;                        /* path is a tar file, so there is no table */
    char packed[256];                    /* ... a table in it, which is not read */
    int source;                          /* the part to read; -1: all texts */
    bool names_only;                     /* collect labels without reading texts */
    bool closed;                         /* no further classes */
    tp_text_class **class;               /* [classes], sorted by name */
    int classes, class_room;
    tp_text_item *item;
    size_t count, room;
    int64_t cut, unknown; /* number of cut texts; <unk> ids in all texts */
    uint16_t *ids;
    size_t used, ids_room;
    char *names;
    size_t names_used, names_room;
} tp_text_reader;

/* labelled_items.c. These return false if r->X has failed. */

/* Finds or creates the class of a name of n bytes; where: for messages. NULL: r->X has failed. */
tp_text_class *tp__text_class(tp_text_reader *r, const char *where, const char *name, size_t n);
/* The same for a value in a table: a whole number has one class in every notation, "1" or "1.0". */
tp_text_class *tp__text_value(tp_text_reader *r, const char *where, const char *name, size_t n);
/* Drops classes that occur only outside `parts` (bits; 0: all parts), and numbers the rest. */
void tp__text_classes_end(tp_text_reader *r, uint8_t parts);
/* Adds a text; class NULL: no label. */
bool tp__text_add(tp_text_reader *r, const char *name, tp_text_class *class, const char *text,
                  size_t n);
/* Tokenises a text; `to` has room for o->longest ids. Returns their number; -1: out of memory. */
int64_t tp__text_ids(tp_bpe_coder *C, const tp_labelled_opts *o, const char *text, size_t n,
                     uint16_t *to, bool *cut);

/* records.c: reads a CSV, TSV or JSON lines file; at most r->o.limit records. */
bool tp__read_records(tp_text_reader *r, const char *path);
/* Is a file named like one of these? */
bool tp__are_records(const char *path);

#endif
