/* documents.h - a set of documents, as its readers fill it. */
#ifndef TP_DOCUMENTS_INNER_H
#define TP_DOCUMENTS_INNER_H

#include <tapegrad/documents.h>

#include "kit.h"
#include "tree.h"

enum { TP_BLANK = 33 /* the id of a blank in texts of bytes */ };

struct tp_documents {
    int documents, classes;
    int64_t count, longest;
    size_t label_room, end_room, name_room, ids_room;
    int32_t *label; /* [count]                                            */
    size_t *name;   /* [count]: offsets into names; 0: none               */
    int64_t *end;   /* [count,documents]: one past the ids of a document  */
    uint16_t *ids;  /* [used]                                             */
    int64_t used;
    char *names; /* of examples, each with its zero, from offset 1 on  */
    size_t names_used, names_room;
    char **class_name; /* [classes] or NULL */
    int open;          /* documents of the example that is being added       */
    uint64_t hash;
    char from[512]; /* the file or folder, for messages; "": none */
    char note[256], why[TP_WHY];
};

/* Fails X unless it has failed before. Returns false. */

/* Notes where the examples come from. */
void tp__documents_from(tp_documents *X, const char *path);

/* An example is added in steps: for each document its ids are written to the memory that
 * tp__documents_room returns, and then counted; the label comes last. NULL, false: X has failed. */
uint16_t *tp__documents_room(tp_documents *X, int64_t n);
bool tp__documents_end(tp_documents *X, int64_t n);
bool tp__documents_label(tp_documents *X, int32_t label);
/* Names the example that was added last. */
bool tp__documents_name(tp_documents *X, const char *name);

/* Adds a text of bytes as document k of the example that is being added: damaged as *o wants it, cut, and one
 * blank if nothing remains. At most `longest` ids. */
bool tp__documents_text(tp_documents *X, int k, const uint8_t *text, size_t n, int64_t longest,
                        const tp_documents_opts *o);

/* Fails X if damage is wanted of a part for training, or of images. */
bool tp__documents_damage(tp_documents *X, tp_part part, const tp_documents_opts *o);

/* Adds an image: n pixels, each plus the offset, and a label. */
bool tp__documents_pixels(tp_documents *X, const uint8_t *pixels, int64_t n, int32_t label,
                          const tp_documents_opts *o);

/* ---- tables.c: rows of text in a folder or in a tar archive ---- */

/* Reads one file: `path` itself if it is named like a table (.tsv, also packed), else the first file below
 * it whose name ends in /NAME or is NAME. f gets the path for messages. False: X has failed, also if there
 * is no such file. */
bool tp__table_visit(tp_documents *X, const char *path, const char *name,
                     void (*f)(tp_documents *X, const char *where, const char *bytes, size_t n,
                               void *env),
                     void *env);

/* The lines of a text that are not empty, without their ends (LF or CRLF). */
typedef struct tp_lines {
    const char *next, *end; /* what has not been read yet  */
    const char *at;         /* the line                    */
    size_t n;               /* its bytes                   */
    int64_t number;         /* its number, from 1          */
} tp_lines;
bool tp__next_line(tp_lines *L);

/* The next cell of a line, up to a tab or the end; begin with *at = L->at. False: there is none. */
bool tp__next_cell(const tp_lines *L, const char **at, const char **cell, size_t *n);

#endif
