/* loader.h - the loader of image batches, as its files share it. */
#ifndef TP_LOADER_H
#define TP_LOADER_H

#include <pthread.h>
#include <stdatomic.h>

#include <tapegrad/image_set.h>

/* One batch of the ring. */
typedef struct tp_loader_slot {
    int64_t epoch, step, n;
    int64_t given, done;    /* images that workers have taken, and finished     */
    int64_t *index, *place; /* [batch]: number of the image, place in the epoch */
    float *x, *target;
    int32_t *label;
    bool *bad; /* [batch]: the image could not be read */
} tp_loader_slot;

/* Images that could not be read and are not reported to the caller yet. */
typedef struct tp_loader_note {
    int64_t image;
    char why[512];
} tp_loader_note;
typedef struct tp_loader_notes {
    tp_loader_note *at;
    int n, room;
} tp_loader_notes;

struct tp_loader {
    const tp_image_set *X;
    tp_loader_opts o;
    tp_augment augment;
    int64_t pixels;           /* floats of an image */
    int64_t length;           /* examples per epoch */
    int64_t epoch, step;      /* of the batch that is scheduled next */
    int64_t *order, order_of; /* [length]: the order of epoch order_of */
    tp_loader_slot *ring;
    int64_t scheduled, taken;      /* batches since the start or the last seek      */
    bool holds;                    /* the caller is reading batch `taken`           */
    int64_t next_epoch, next_step; /* of the batch that tp_loader_next returns next */
    bool *broken;                  /* [count]: the image could not be read          */
    tp_loader_notes notes;
    _Atomic int64_t skipped;
    double waited;
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    pthread_t *thread;
    int threads;        /* running */
    atomic_bool failed; /* why is complete */
    char why[1024];     /* workers write it: read it only once L has failed */
};

/* loader.c: the first failure counts. The caller holds L->lock, or no worker runs. */
void tp__loader_fail(tp_loader *L, const char *format, ...) TP_PRINTF(2, 3);

/* loader_order.c: fills the next slot of the ring. False: the last epoch has ended. */
bool tp__loader_schedule(tp_loader *L);

/* loader_work.c: prepares images until L->stop; env is the loader. */
void *tp__loader_worker(void *env);

#endif
