/* documents.h - the members of a set of documents, and what its readers share. */
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
    char *names; /* of examples, zero-terminated, from offset 1 on */
    size_t names_used, names_room;
    char **class_name; /* [classes] or NULL */
    int open;          /* number of documents in the unfinished example */
    uint64_t hash;
    char from[512]; /* the file or folder, for messages; "": none */
    char note[256], why[TP_WHY];
};

/* Notes where the examples come from. */
void tp__documents_from(tp_documents *X, const char *path);

/* Adds an example in steps: for each document write its ids to the memory that tp__documents_room
 * returns, then count them; the label comes last. NULL, false: X has failed. */
uint16_t *tp__documents_room(tp_documents *X, int64_t n);
bool tp__documents_end(tp_documents *X, int64_t n);
bool tp__documents_label(tp_documents *X, int32_t label);
/* Names the last added example. */
bool tp__documents_name(tp_documents *X, const char *name);

/* Adds the bytes of a text as document k of the unfinished example: damaged according to *o, cut to
 * `longest` ids, and one blank if nothing remains. */
bool tp__documents_text(tp_documents *X, int k, const uint8_t *text, size_t n, int64_t longest,
                        const tp_documents_opts *o);

/* Fails X if damage is requested for a training part. */
bool tp__documents_damage(tp_documents *X, tp_part part, const tp_documents_opts *o);

/* Adds an image: n pixels, each plus the offset, and a label. */
bool tp__documents_pixels(tp_documents *X, const uint8_t *pixels, int64_t n, int32_t label,
                          const tp_documents_opts *o);

/* ---- tables.c: rows of text in a folder or in a tar archive ---- */

/* Reads one file: `path` itself if it is named like a table (.tsv, also compressed), else the first
 * file below it whose path is NAME or ends in /NAME. f gets the path, for messages. False: X has
 * failed; a missing file is an error too. */
bool tp__table_visit(tp_documents *X, const char *path, const char *name,
                     void (*f)(tp_documents *X, const char *where, const char *bytes, size_t n,
                               void *env),
                     void *env);

/* The non-empty lines of a text, without their line ends (LF or CRLF). */
typedef struct tp_lines {
    const char *next, *end; /* the unread rest             */
    const char *at;         /* the line                    */
    size_t n;               /* its bytes                   */
    int64_t number;         /* its number, from 1          */
} tp_lines;
bool tp__next_line(tp_lines *L);

/* Returns the next cell, up to a tab or the line's end. Begin with *at = L->at. False: no more. */
bool tp__next_cell(const tp_lines *L, const char **at, const char **cell, size_t *n);

#endif
