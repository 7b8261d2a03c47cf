/* wire.h - gradients on their way: which stretches make up a bucket, and one bucket in flight.
 *
 * In flight, a bucket passes two stages: each process sends piece k to process k and adds the
 * pieces that it got, in the order of the ranks; then it sends its sums to all others. A piece that
 * is one stretch of host memory travels from and to the gradient itself, others through a host
 * buffer. Sums by the GPUs' own library take neither stage: direct.h. */
#ifndef TP_WIRE_H
#define TP_WIRE_H

#include "train/peers/cuts.h"
#include "train/peers/inner.h"

/* The part of a bucket that one process sums. */
typedef struct tp_piece {
    int first, n;        /* cuts of tp_wire.at */
    int64_t from, numel; /* elements within the bucket */
} tp_piece;

typedef struct tp_wire {
    tp_params *P;
    tp_peers *G;
    int rank, ranks;
    bool bf16, shard;
    tp_cuts cuts;       /* by bucket, then by owner */
    tp_piece *pieces;   /* [buckets * ranks] */
    int *begins, *ends; /* by entry: its buckets; none: begins > ends */
    bool *touched,
        *reached; /* by entry: in this update, has a bucket with it left? had it a gradient? */
    bool failed;  /* in this update: without memory, or the device failed */
    float *error; /* what rounding to bf16 has taken, like the block of values; NULL: none */
    double bytes; /* sent so far */
} tp_wire;

/* Cuts w->P, for which all but the first five members are zero, into buckets of about `bytes`.
 * shards: has the owners, if they own whole parameters. False: out of memory. */
bool tp__wire_open(tp_wire *w, size_t bytes, const tp_cuts *shards);
void tp__wire_close(tp_wire *w);

static inline tp_piece *tp__piece(const tp_wire *w, int bucket, int rank)
{
    return &w->pieces[bucket * w->ranks + rank];
}

/* A bucket in flight. */
typedef struct tp_flight {
    int bucket; /* -1: none */
    int tag;    /* and the next one */
    bool summed;
    bool *asked;    /* by rank: its sums have been asked for */
    tp_message *m;  /* four a rank */
    tp_buf **held;  /* gradients, by cut */
    char **at;      /* by rank: its piece, and later its sums */
    char *staged;   /* the bucket */
    char *got;      /* own piece of all others */
    uint16_t *half; /* the bucket in bf16 */
} tp_flight;

/* Host memory of one flight. */
size_t tp__flight_bytes(const tp_wire *w);
/* False: out of memory; f can be closed. */
bool tp__flight_open(tp_flight *f, const tp_wire *w);
void tp__flight_close(tp_flight *f);

/* flight.c. Errors are on w->G. */
void tp__flight_begin(tp_flight *f, tp_wire *w, int bucket, int tag);
/* Takes the next steps that messages allow. True: the bucket has landed, and f is free. */
bool tp__flight_landed(tp_flight *f, tp_wire *w);
/* A process that is waited for; -1: none. */
int tp__flight_waits(const tp_flight *f, const tp_wire *w);

/* pack.c */
/* The gradient of an entry, which the caller holds; zeros in place of one that was not reached.
 * NULL: out of memory, with w->failed. */
tp_buf *tp__gradient(tp_wire *w, int entry);
/* Gives the parameters of the bucket gradients, holds them, and packs the pieces. */
void tp__pack(tp_flight *f, tp_wire *w);
/* Replaces the own piece by the sum over all. */
void tp__sum(const tp_flight *f, const tp_wire *w);
/* Writes sums to gradients, and lets go of these. */
void tp__unpack(tp_flight *f, tp_wire *w);

/* Bytes of an element on the way to its owner. */
static inline size_t tp__wire_size(const tp_wire *w)
{
    return w->bf16 ? sizeof(uint16_t) : tp_dtype_size(w->P->dtype);
}

#endif
