/* documents.h - labelled sets of documents, the tasks of Long Range Arena among them. Part of the
 * data library.
 *
 * An example has a label and one document, or two (retrieval). A document is a sequence of ids; id
 * 0 is padding. Images as documents may hold zeros, which count as padding there, too. */
#ifndef TAPEGRAD_DOCUMENTS_H
#define TAPEGRAD_DOCUMENTS_H

#include <tapegrad/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a set ---- */

/* Examples in memory, two bytes for each id. Immutable once filled, so threads may share it. Never
 * NULL: tp_documents_why says what is wrong. */
typedef struct tp_documents tp_documents;

/* An empty set for tp_documents_add; documents: of an example, 1 or 2. */
TP_API tp_documents *tp_documents_new(int documents, int classes);
TP_API void tp_documents_close(tp_documents *X);
TP_API bool tp_documents_ok(const tp_documents *X);
TP_API const char *tp_documents_why(const tp_documents *X);

/* Adds an example: document k has length[k] >= 1 ids. Label -1 means none; any other that is not a
 * class fails the set. */
TP_API void tp_documents_add(tp_documents *X, int32_t label, const uint16_t *const ids[],
                             const int64_t length[]);

TP_API int64_t tp_documents_count(const tp_documents *X); /* examples; 0 if X has failed */
TP_API int tp_documents_per_example(const tp_documents *X);
TP_API int tp_documents_classes(const tp_documents *X);
TP_API int64_t tp_documents_longest(const tp_documents *X); /* ids of the longest document */
TP_API int32_t tp_documents_label(const tp_documents *X, int64_t i);
/* All labels, [count], until X changes: for tp_balanced and tp_split_opts. NULL: X has failed. */
TP_API const int32_t *tp_documents_labels(const tp_documents *X);
/* The ids of document k of example i. */
TP_API const uint16_t *tp_documents_ids(const tp_documents *X, int64_t i, int k, int64_t *n);
/* The name of a class, if the files have names for them, or NULL. */
TP_API const char *tp_documents_class(const tp_documents *X, int label);
/* Where example i comes from: a file, relative to the folder or archive that was read, or a file
 * without its folder and a line ("reviews.csv:12"). NULL: not known. */
TP_API const char *tp_documents_name(const tp_documents *X, int64_t i);
/* A hash of all labels and ids, from which a resumed run detects that they have changed. */
TP_API uint64_t tp_documents_hash(const tp_documents *X);

/* ---- reading ---- */

/* Whether ListOps' closing bracket is an id. Long Range Arena's first tokeniser, that of the
 * published figures, drops it. */
typedef enum tp_brackets { TP_BRACKETS_DROP, TP_BRACKETS_KEEP } tp_brackets;

/* Damage to the documents of a test set (Table 2), before they are cut: see tp_insert_marks and
 * tp_delete_marks. The sample is the number of the example in the set. */
typedef enum tp_damage { TP_DAMAGE_NONE, TP_DAMAGE_INSERT, TP_DAMAGE_DELETE } tp_damage;

typedef struct tp_documents_opts {
    int64_t longest;      /* ids kept of a document; 0: the task's number */
    int64_t limit;        /* reads at most that many examples; 0: all */
    tp_brackets brackets; /* ListOps */
    bool unchecked;       /* ListOps: answers are not verified and may be wrong */
    tp_damage damage;     /* reviews and pairs, except in training */
    bool whole;           /* marks are inserted only between characters of UTF-8 */
    int pixel_offset;     /* images: added to each pixel. 0: black is padding, as published */
    const char *level;    /* Pathfinder; NULL: "curv_contour_length_14" */
    uint64_t split;       /* Pathfinder: the seed of the split */
} tp_documents_opts;

/* These read files in a folder, at any depth, or in a tar file, plain or packed. A failed set names
 * the file and the line or byte. o may be NULL. Texts have ids 1 to 256, a byte plus one; an empty
 * text becomes one blank. Images have a pixel's value as id. */

/* ListOps: basic_train.tsv, basic_val.tsv and basic_test.tsv, or one .tsv file, which is then read
 * whatever the part. First line "Source<TAB>Target", then an expression and its answer on each
 * line, in the released bracketing "( ( ( [MED 1 ) 2 ) ] )" or plain, "[MED 1 2 ]". At most 2000
 * ids; see listops.h. */
TP_API tp_documents *tp_documents_listops(const char *path, tp_part part,
                                          const tp_documents_opts *o);

/* Text: reviews of IMDb, train/neg/NAME.txt, train/pos/NAME.txt and the same below test, sorted by
 * name, first those of neg (label 0), then those of pos (1); limit takes half of each. The
 * validation part is the test part, as published. At most 4000 ids. */
TP_API tp_documents *tp_documents_reviews(const char *path, tp_part part,
                                          const tp_documents_opts *o);

/* Retrieval: new_aan_pairs.train.tsv, .eval.tsv and .test.tsv, or one .tsv file, which is then read
 * whatever the part. Five cells without quoting: the label (0.0 or 1.0), two names, two texts. Two
 * documents of at most 4096 ids. */
TP_API tp_documents *tp_documents_pairs(const char *path, tp_part part, const tp_documents_opts *o);

/* Image: the binary version of CIFAR-10 (data_batch_1.bin ... and test_batch.bin) as 1024 grey
 * values with the bits of TensorFlow's conversion. Validation has the last tenth of the training
 * images. */
TP_API tp_documents *tp_documents_cifar10(const char *path, tp_part part,
                                          const tp_documents_opts *o);

/* Pathfinder: LEVEL/metadata/NUMBER.npy, which are texts ("imgs/0 sample_0.png 0 1 ..." with the
 * label in fourth place), and the grey images LEVEL/imgs/...; or the folder of a level itself.
 * Shuffled by o->split and then divided: 8 tenths to train, 1 to validate, 1 to test. Empty files
 * are skipped; see tp_documents_note. */
TP_API tp_documents *tp_documents_pathfinder(const char *path, tp_part part,
                                             const tp_documents_opts *o);

/* What was skipped while reading, as a sentence to print, or "". */
TP_API const char *tp_documents_note(const tp_documents *X);

/* Images of 32 x 32 in the manner of Pathfinder, for experiments without data; they are our own,
 * not those of the data set. Two dashed curves and shorter ones, and two discs: at both ends of one
 * curve (label 1), or at one end of either (label 0). Image i of a part depends only on (seed,
 * part, i). */
TP_API tp_documents *tp_documents_drawn_paths(int64_t count, tp_part part, uint64_t seed,
                                              const tp_documents_opts *o);

/* The tasks of Long Range Arena. */
typedef struct tp_task {
    const char *name; /* listops, text, retrieval, image, pathfinder */
    int documents;    /* of an example */
    int classes;
    int ids;         /* one more than the largest id */
    int64_t longest; /* ids kept of a document */
    int64_t padded;  /* padded length in the published tables */
    tp_documents *(*open)(const char *path, tp_part part, const tp_documents_opts *o);
} tp_task;
TP_API const tp_task *tp_task_at(int i);              /* NULL after the last one */
TP_API const tp_task *tp_task_find(const char *name); /* NULL if there is none */

/* ---- damage to texts ---- */

/* Inserts ten punctuation marks at ten places, determined by (sample, document), into n bytes of
 * text; out has n + 10 bytes. whole: only between the characters of UTF-8 text, all equally likely;
 * otherwise between any two bytes. Returns n + 10. */
TP_API size_t tp_insert_marks(const uint8_t *text, size_t n, int64_t sample, int document,
                              bool whole, uint8_t *out);
/* Copies the text without the 32 punctuation marks of ASCII to out, which has n bytes and may be
 * the text. Returns the number of bytes that remain, possibly 0. */
TP_API size_t tp_delete_marks(const uint8_t *text, size_t n, uint8_t *out);

#ifdef __cplusplus
}
#endif
#endif
