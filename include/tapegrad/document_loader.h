/* document_loader.h - batches of documents: shuffled, sorted by length, padded or packed. Part of
 * the data library. */
#ifndef TAPEGRAD_DOCUMENT_LOADER_H
#define TAPEGRAD_DOCUMENT_LOADER_H

#include <tapegrad/documents.h>
#include <tapegrad/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_document_loader_opts {
    int64_t batch; /* examples */
    uint64_t seed;
    /* endless: shuffled for each epoch, whole batches only. Otherwise one pass in order, whose last
     * batch may be smaller */
    bool train;
    bool whole; /* also drops a smaller last batch there, as for published figures */
    /* > 1: sorts the examples of each group of that many batches by length, divides them and, if
     * train, shuffles the batches. 0, 1: off */
    int64_t bucket;
    /* pads all documents to that many ids; 0: to the longest of the batch, the global one if
     * processes share it */
    int64_t length;
    int64_t multiple; /* the longest is rounded up to a multiple; 0: 1 */
    int64_t beyond;   /* ids on top of that multiple: 1 for n = 1 + k * window */
    /* concatenates documents, without padding; length, multiple and beyond are 0 */
    bool packed;
    int32_t pad; /* the id of padding; 1 in RoBERTa's vocabularies */
    /* in place of the shuffle, before `bucket` sorts; NULL: none. It must outlive the loader */
    const tp_example_sampler *sampler;
    tp_share share; /* the part of each batch that this process reads; zero: all of it */
} tp_document_loader_opts;

/* A batch in host memory, valid until the next call. Arrays have an entry for each document of an
 * example. */
typedef struct tp_document_batch {
    int64_t n;                  /* examples */
    int64_t epoch, step;        /* step: within the epoch */
    const int64_t *index;       /* [n]: the numbers of the examples */
    const int32_t *label;       /* [n] */
    int64_t length[2];          /* N, the padded length; packed: M, the number of ids */
    int64_t longest[2];         /* ids of the longest document; not of other processes */
    const int32_t *ids[2];      /* [n,N]; packed: [M] */
    const uint8_t *mask[2];     /* [n,N]: 1 where the id is not `pad`; packed: NULL */
    const int32_t *position[2]; /* packed: [M], the place in the document */
    const int32_t *offset[2];   /* packed: [n+1], where documents begin */
} tp_document_batch;

/* Batches of documents (loader.h), made by the caller's thread. A document of only padding fails
 * the loader, since attention to nothing has no value; so does one longer than `length`, and, if
 * packed, padding anywhere.
 *
 * They are fed into tp_document_loader_slots slots: for each document ids TP_I32 and mask TP_U8,
 * [n,N]; packed: ids, positions, offsets, all TP_I32. Then the labels, TP_I32 [n]. */
TP_API tp_loader *tp_document_loader_new(const tp_documents *X, const tp_document_loader_opts *o);
TP_API int tp_document_loader_slots(const tp_loader *L);

/* The next batch. False at the end (unless train) or on an error. */
TP_API bool tp_document_loader_next(tp_loader *L, tp_document_batch *b);

#ifdef __cplusplus
}
#endif
#endif
