/* image_set.h - sets of labelled images as they are published, and batches of them prepared by
 * worker threads. Part of the data library. */
#ifndef TAPEGRAD_IMAGES_H
#define TAPEGRAD_IMAGES_H

#include <tapegrad/augment.h>
#include <tapegrad/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sets ---- */

/* How files lie below a folder. Labels count from 0; classes are in the order of their names as
 * bytes, unless a list says otherwise.
 *
 *     folder         CLASS/PICTURE, or train/CLASS/PICTURE beside val, valid, validation or test.
 *                    Without such folders every tenth image of a class is for validation
 *     imagenet       train/WNID/PICTURE; val/WNID/PICTURE, or val/PICTURE with the list
 *                    imagenet_2012_validation_synset_labels.txt (a WNID a line) beside val
 *     ip102          train.txt, val.txt, test.txt ("FILE LABEL" a line), images/FILE
 *     food101        meta/train.txt, meta/test.txt ("CLASS/NAME" a line), images/CLASS/NAME.jpg
 *     miniimagenet   train.csv, val.csv, test.csv ("FILE,WNID" a line; .xz too), images/FILE: of
 *                    the 600 images of each class 480 to train, 120 to test; or new_train.csv,
 *                    new_val.csv
 *     cifar10        data_batch_1.bin ..., test_batch.bin: the binary version
 *     shards         *.tar (in train/ and val/ where these exist): KEY.jpg with the label in
 *                    KEY.cls, or CLASS/PICTURE; all of them in the same way
 */
typedef enum tp_layout {
    TP_LAYOUT_AUTO, /* what it looks like */
    TP_LAYOUT_FOLDER,
    TP_LAYOUT_IMAGENET,
    TP_LAYOUT_IP102,
    TP_LAYOUT_FOOD101,
    TP_LAYOUT_MINI_IMAGENET,
    TP_LAYOUT_CIFAR10,
    TP_LAYOUT_SHARDS
} tp_layout;
TP_API const char *tp_layout_name(tp_layout l);
TP_API bool tp_layout_find(const char *name, tp_layout *l); /* false: none is called so */

/* Immutable once open: threads may share it. */
typedef struct tp_image_set tp_image_set;

/* The images of one part; sets with two parts give their second for TP_VALID and TP_TEST alike.
 * Never NULL: tp_image_set_why says what is wrong (an empty folder, one class, another layout ...).
 * Images themselves are not opened. */
TP_API tp_image_set *tp_image_set_open(const char *folder, tp_layout layout, tp_part part);

/* Images that a function makes: draw fills p for example i, or leaves it empty with p->why set;
 * it is called by several threads. names has `classes` entries, label `count`; both are copied. */
typedef struct tp_image_source {
    int64_t count;
    int classes;
    const char *const *names;
    const int32_t *label;
    void (*draw)(void *env, int64_t i, tp_image *p);
    void *env;
} tp_image_source;
TP_API tp_image_set *tp_image_set_from(const tp_image_source *s);

/* As many of each of ten kinds of shapes and textures, at random places, sizes, angles and colours:
 * something to classify where there are no data. Image i of a part is always the same one; side:
 * pixels. */
TP_API tp_image_set *tp_image_set_shapes(int64_t count, int64_t side, tp_part part);

TP_API void tp_image_set_close(tp_image_set *X);
TP_API bool tp_image_set_ok(const tp_image_set *X);
TP_API const char *tp_image_set_why(const tp_image_set *X);
TP_API tp_layout tp_image_set_layout(const tp_image_set *X);
TP_API int64_t tp_image_set_count(const tp_image_set *X);
TP_API int tp_image_set_classes(const tp_image_set *X);
TP_API const char *tp_image_set_class(const tp_image_set *X, int label); /* its name */
TP_API int32_t tp_image_set_label(const tp_image_set *X, int64_t i);
/* Of the names without their folders, and the labels: a run that goes on with other images can
 * tell. */
TP_API uint64_t tp_image_set_hash(const tp_image_set *X);
/* The file of image i, for messages; in buf where the name is made up. */
TP_API const char *tp_image_set_name(const tp_image_set *X, int64_t i, char *buf, size_t size);

/* Image i through a pipeline: out [size,size,3]. False with the reason in w->why, and w->shortage
 * where another time may do better. */
TP_API bool tp_image_set_prepare(const tp_image_set *X, int64_t i, const tp_augment *a,
                                 tp_augment_work *w, tp_example e, float *out);

/* ---- batches ---- */

typedef struct tp_loader_opts {
    const tp_augment *augment; /* copied */
    int64_t batch;
    uint64_t seed;
    int threads; /* workers; 0: 2                                                             */
    int ahead;   /* batches prepared in advance; 0: 4                                         */
    int repeats; /* > 1: repeated augmentation, each image so many times in a row, in epochs as
                    long as without (rounded down to 256 examples); 0: 1                       */
    bool train;  /* shuffled each epoch, whole batches only, mixed, without end; else in order and
                    once, the last batch smaller                                              */
    bool strict; /* an image that cannot be read is an error; else it is skipped: in training the
                    next one takes its place. Too many open files, no memory to read it, or a disk
                    that fails are an error                                                   */
    /* Told of each image that cannot be read, once, on the thread of tp_loader_next. */
    void (*bad)(void *env, const char *name, const char *why);
    void *env;
} tp_loader_opts;

/* Batches do not depend on threads or ahead. */
typedef struct tp_loader tp_loader;
TP_API tp_loader *tp_loader_new(const tp_image_set *X, const tp_loader_opts *o); /* never NULL */
TP_API void tp_loader_free(tp_loader *L);
TP_API bool tp_loader_ok(const tp_loader *L);
TP_API const char *tp_loader_why(const tp_loader *L);
TP_API int64_t tp_loader_steps(const tp_loader *L); /* batches an epoch */

/* In host memory, until the next call. */
typedef struct tp_batch {
    int64_t n;            /* images: batch, or fewer at the end                              */
    int64_t epoch, step;  /* step counts in the epoch                                          */
    const float *x;       /* [n,size,size,3]                                                   */
    const int32_t *label; /* [n], before mixing                                                */
    const float *target;  /* [n,classes]: smoothed, mixed                                      */
    const int64_t *index; /* [n]: which images                                               */
} tp_batch;

/* The next batch; waits until it is ready. False: at the end (not train), or an error. */
TP_API bool tp_loader_next(tp_loader *L, tp_batch *b);
/* Continues with that batch of that epoch: what a resumed run needs. Costs nothing where that batch
 * is the next one anyway. */
TP_API void tp_loader_seek(tp_loader *L, int64_t epoch, int64_t step);
/* Both, into slots of T (tp_feed): slot[0] images [n,size,size,3], slot[1] targets [n,classes],
 * f32. Returns n; 0 at the end (not train), or with T failed. */
TP_API int64_t tp_loader_feed(tp_loader *L, tp_tape *T, int64_t epoch, int64_t step,
                              tp_tensor slot[2]);
/* Seconds spent waiting in tp_loader_next since the start. */
TP_API double tp_loader_waited(const tp_loader *L);
TP_API int64_t tp_loader_skipped(const tp_loader *L); /* images that could not be read */

#ifdef __cplusplus
}
#endif
#endif
