/* documents.h - labelled sets of documents, the tasks of Long Range Arena among them. Part of the data
 * library.
 *
 * An example has a label and one document, or two (retrieval). A document is a sequence of ids; id 0 is
 * padding. Images as documents may hold zeros, which count as padding there, too. */
#ifndef TAPEGRAD_DOCUMENTS_H
#define TAPEGRAD_DOCUMENTS_H

#include <tapegrad/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a set ---- */

/* Examples in memory, two bytes for each id. Immutable once filled, so threads may share it. Never NULL:
 * tp_documents_why says what is wrong. */
typedef struct tp_documents tp_documents;

/* An empty set for tp_documents_add; documents: of an example, 1 or 2. */
TP_API tp_documents *tp_documents_new(int documents, int classes);
TP_API void tp_documents_close(tp_documents *X);
TP_API bool tp_documents_ok(const tp_documents *X);
TP_API const char *tp_documents_why(const tp_documents *X);

/* Adds an example: document k has length[k] >= 1 ids. A label beyond the classes fails the set. */
TP_API void tp_documents_add(tp_documents *X, int32_t label, const uint16_t *const ids[],
                             const int64_t length[]);

TP_API int64_t tp_documents_count(const tp_documents *X); /* examples; 0 if X has failed */
TP_API int tp_documents_per_example(const tp_documents *X);
TP_API int tp_documents_classes(const tp_documents *X);
TP_API int64_t tp_documents_longest(const tp_documents *X); /* ids of the longest document */
TP_API int32_t tp_documents_label(const tp_documents *X, int64_t i);
/* The ids of document k of example i. */
TP_API const uint16_t *tp_documents_ids(const tp_documents *X, int64_t i, int k, int64_t *n);
/* A hash of all labels and ids, from which a resumed run detects that they have changed. */
TP_API uint64_t tp_documents_hash(const tp_documents *X);

/* ---- reading ---- */

/* Is the closing bracket of ListOps an id? Long Range Arena's first tokeniser drops it; the published
 * figures are of that. */
typedef enum tp_brackets { TP_BRACKETS_DROP, TP_BRACKETS_KEEP } tp_brackets;

typedef struct tp_documents_opts {
    int64_t longest;      /* ids that are kept of a document; 0: the task's number           */
    int64_t limit;        /* reads at most that many examples; 0: all                       */
    tp_brackets brackets; /* ListOps                                                        */
    bool unchecked;       /* ListOps: answers are not computed again, so they may be wrong */
} tp_documents_opts;

/* ListOps: basic_train.tsv, basic_val.tsv and basic_test.tsv, in a folder at any depth or in a tar file,
 * plain or packed; or one .tsv file, which is then read whatever the part. First line
 * "Source<TAB>Target", then an expression and its answer on each line, in the released bracketing
 * "( ( ( [MED 1 ) 2 ) ] )" or plain, "[MED 1 2 ]". At most 2000 ids. o may be NULL. */
TP_API tp_documents *tp_documents_listops(const char *path, tp_part part,
                                          const tp_documents_opts *o);

/* ---- damage to test documents (Table 2) ---- */

/* Inserts ten punctuation marks at ten places, which (sample, document) alone determine, into n bytes of
 * text; out has n + 10 bytes. whole: only between the characters of UTF-8 text, all such places being
 * equally likely; otherwise between any two bytes. Returns n + 10. */
TP_API size_t tp_insert_marks(const uint8_t *text, size_t n, int64_t sample, int document,
                              bool whole, uint8_t *out);
/* Copies the text without the 32 punctuation marks of ASCII to out, which has n bytes and may be the text.
 * Returns the number of bytes that remain, possibly 0. */
TP_API size_t tp_delete_marks(const uint8_t *text, size_t n, uint8_t *out);

#ifdef __cplusplus
}
#endif
#endif
