/* labelled_texts.h - texts with labels, tokenised by byte-pair encoding: folders of classes, CSV,
 * JSON lines. Part of the data library.
 *
 * An example is one document, <s> text </s>, of a set of documents (documents.h). Batches are those
 * of all such sets (document_loader.h): set `pad` to the id of <pad>, and `multiple` and `beyond`
 * to the lengths that the model takes. */
#ifndef TAPEGRAD_LABELLED_TEXTS_H
#define TAPEGRAD_LABELLED_TEXTS_H

#include <tapegrad/bpe.h>
#include <tapegrad/document_loader.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_labelled_opts {
    int64_t longest;         /* ids kept of a text, including <s> and </s>; 0: 512. At least 3 */
    int64_t tail;            /* ids of a longer text from its end; the others are from its start */
    int64_t hold_back_every; /* n >= 2: every n-th training example goes to TP_VALID */
    int64_t limit;   /* keeps at most this many texts; 0: all. Folders: equally many per class */
    bool unlabelled; /* labels need not exist and are not read: all are -1 */
    /* The columns of CSV or members of JSON lines that hold text and label; NULL: "text" and
     * "label". */
    const char *text, *label;
    /* The names of a model's classes, in the order of its labels. 0: the labels that occur in the
     * training part. */
    const char *const *name;
    int classes;
} tp_labelled_opts;

/* Reads labelled texts:
 *
 *     DIR/PART/CLASS/NAME.txt       PART: train, valid, test; DIR may be a plain or packed tar file
 *     DIR/CLASS/NAME.txt            the same without parts
 *     DIR/PART.csv, DIR/PART.jsonl  also compressed (.csv.gz ...); not in a tar file
 *     FILE.csv, FILE.jsonl          also .tsv, .json, .ndjson; one file without parts
 *
 * CSV follows RFC 4180: a heading, cells separated by commas, quoted cells with doubled quotes,
 * commas and line ends inside. The same with tabs is .tsv, where quotes inside an unquoted cell are
 * text. The name looked for must not occur twice. JSON lines have an object on each line; a label
 * is a string, a whole number, true or false. Whole numbers with and without a fraction, "1" and
 * "1.0", are one class. A file has UTF-8 text, with or without a byte order mark; UTF-16, UTF-32
 * and zero bytes are refused. Folders named "unsup" hold texts without labels and are skipped
 * unless o->unlabelled. Hidden files and companions of other systems (._NAME, __MACOSX) are
 * ignored.
 *
 * Classes are sorted: by value if all labels are integers, otherwise by the bytes of their names.
 * Those of TP_VALID and TP_TEST are the classes of the training part, which is read for them,
 * unless o->name gives them; any other label fails the set. Examples of folders are sorted by class
 * and name, those of files have the order of their lines.
 *
 * TP_VALID is what o->hold_back_every holds back. If it is 0, TP_VALID is the part "valid", or
 * "test" if there is none, as in the published results on IMDb; without such a part every tenth
 * example is held back. TP_TEST is the part "test", or "valid" if there is none; without both, the
 * same as TP_VALID. If o->hold_back_every is below 0, nothing is held back: without parts, all
 * texts are read whatever `part` is.
 *
 * o->unlabelled reads a part in the same way, without holding texts back unless o->hold_back_every
 * is set. It also takes a single .txt file, and folders of such files, below PART or not, at any
 * depth.
 *
 * White space around a text is removed. A text may be empty. X needs <s>, </s> and <pad>, has at
 * most 65536 ids and is not needed after the call. Never NULL: a failed set names the file and the
 * line. tp_documents_note counts the texts that were cut and the ids that are <unk>. o may be
 * NULL. */
TP_API tp_documents *tp_documents_labelled_texts(const char *path, tp_part part, const tp_bpe *X,
                                                 const tp_labelled_opts *o);

/* Adds one text of n bytes to a set of one document per example, in the same way, such as a line of
 * standard input. label: -1 for none. name: for tp_documents_name, copied, or NULL. Only o's
 * longest and tail are used. */
TP_API void tp_documents_add_text(tp_documents *S, tp_bpe_coder *coder, int32_t label,
                                  const char *name, const char *text, size_t n,
                                  const tp_labelled_opts *o);

#ifdef __cplusplus
}
#endif
#endif
