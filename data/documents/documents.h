/* documents.h - a set of documents, as its readers fill it. */
#ifndef TP_DOCUMENTS_INNER_H
#define TP_DOCUMENTS_INNER_H

#include <tapegrad/documents.h>

enum { TP_DOCUMENTS_WHY = 1024, TP_BLANK = 33 /* the id of a blank in texts of bytes */ };

struct tp_documents {
    int documents, classes;
    int64_t count, room, longest;
    int32_t *label; /* [count]                                            */
    int64_t *end;   /* [count,documents]: one past the ids of a document  */
    uint16_t *ids;  /* [used]                                             */
    int64_t used, ids_room;
    int open; /* documents of the example that is being added       */
    uint64_t hash;
    char why[TP_DOCUMENTS_WHY];
};

/* Fails X unless it has failed before. Returns false. */
bool tp__documents_fail(tp_documents *X, const char *fmt, ...) TP_PRINTF(2, 3);

/* An example is added in steps: for each document its ids are written to the memory that
 * tp__documents_room returns, and then counted; the label comes last. NULL, false: X has failed. */
uint16_t *tp__documents_room(tp_documents *X, int64_t n);
bool tp__documents_end(tp_documents *X, int64_t n);
bool tp__documents_label(tp_documents *X, int32_t label);

#endif
