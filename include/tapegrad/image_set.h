/* image_set.h - published sets of labelled images, and batches of them prepared by worker threads.
 * Part of the data library. */
#ifndef TAPEGRAD_IMAGES_H
#define TAPEGRAD_IMAGES_H

#include <tapegrad/augment.h>
#include <tapegrad/layouts.h>
#include <tapegrad/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sets ---- */

/* The layouts of files in a folder. Labels count from 0. Classes are sorted by the bytes of their
 * names, or by value if all of them are numbers, unless a list defines the order; those of
 * validation are the classes of training.
 *
 *     folder         CLASS/PICTURE, or train/CLASS/PICTURE next to val/CLASS/PICTURE
 *     imagenet       train/WNID/PICTURE; val/WNID/PICTURE, or val/PICTURE with the list
 *                    imagenet_2012_validation_synset_labels.txt (one WNID per line) next to val
 *     ip102          train.txt, val.txt, test.txt ("FILE LABEL" per line), images/FILE
 *     food101        meta/train.txt, meta/test.txt ("CLASS/NAME" per line), images/CLASS/NAME.jpg
 *     miniimagenet   train.csv, val.csv, test.csv ("FILE,WNID" per line; .xz too), images/FILE: of
 *                    the 600 images of each class 480 to train, 120 to test; or new_train.csv,
 *                    new_val.csv
 *     cifar10        data_batch_1.bin ..., test_batch.bin: the binary version
 *     test           CLASS/PICTURE: all pictures are for validation, none for training
 *     shards         *.tar (WebDataset), whose names or folders may name the part:
 *                    set-train-000.tar, val/0.tar. A key is a name up to its first dot. KEY.jpg,
 *                    .jpeg or .png has its label in KEY.cls or, as the member "label", "cls" or
 *                    "class", in KEY.json: a number or the name of a class. Or CLASS/PICTURE,
 *                    also below train/ and val/. All shards use the same way
 *
 * Training and validation never share an example. Parts are called train, training; val, valid,
 * validation, dev; test, testing, eval, in any case. TP_VALID is a set's val, or test if it has no
 * val; TP_TEST is test, or else val. If nothing distinguishes the parts of folders or shards, every
 * tenth example of a class is for validation. Lists that put a file in both parts are refused.
 *
 * Files that systems and tools leave next to images (._NAME, __MACOSX, Thumbs.db, @eaDir, hidden
 * files) are skipped. Anything else that is left out, such as files of other formats and folders
 * without images, which are no classes, is counted and named in tp_image_set_note.
 *
 * TP_LAYOUTS and the numbers are generated from the layouts' constants (data/images/set_*.c). A new
 * layout changes the numbers, so store names. */
typedef enum tp_layout {
    TP_LAYOUT_AUTO, /* detected from the files */
#define TP_LAYOUT_ENUM(name, word) TP_LAYOUT_##name,
    TP_LAYOUTS(TP_LAYOUT_ENUM)
#undef TP_LAYOUT_ENUM
        TP_NLAYOUTS
} tp_layout;
/* Their names, for an option: "auto|folder|imagenet ...". */
#define TP_LAYOUT_WORD(name, word) "|" #word
#define TP_LAYOUT_WORDS            "auto" TP_LAYOUTS(TP_LAYOUT_WORD)
TP_API const char *tp_layout_name(tp_layout l);
TP_API bool tp_layout_find(const char *name, tp_layout *l); /* false: unknown name */

/* Immutable once open (and thinned), so threads may share it. */
typedef struct tp_image_set tp_image_set;

/* Opens one part of a set. Never NULL: tp_image_set_why says what is wrong (an empty folder, one
 * class, another layout ...). The images themselves are not opened. */
TP_API tp_image_set *tp_image_set_open(const char *folder, tp_layout layout, tp_part part);

/* Generated images: draw fills p for example i, or leaves it empty with the reason in p->why;
 * several threads call it. names has `classes` entries, label has `count`; both are copied. */
typedef struct tp_image_source {
    int64_t count;
    int classes;
    const char *const *names;
    const int32_t *label;
    void (*draw)(void *env, int64_t i, tp_image *p);
    void *env;
} tp_image_source;
TP_API tp_image_set *tp_image_set_from(const tp_image_source *s);

/* Synthetic images of ten classes of shapes and textures, equally many of each, at random places,
 * sizes, angles and colours, for experiments without data. Image i of a part is always the same;
 * side is in pixels. */
TP_API tp_image_set *tp_image_set_shapes(int64_t count, int64_t side, tp_part part);

/* If the set has more than `most` images in files, keeps `most` of them, evenly spread over the
 * set. Call it before other threads use the set. Sets of generated images do not change. */
TP_API void tp_image_set_thin(tp_image_set *X, int64_t most);

/* Closing, errors, and what a set contains. */
TP_API void tp_image_set_close(tp_image_set *X);
TP_API bool tp_image_set_ok(const tp_image_set *X);
TP_API const char *tp_image_set_why(const tp_image_set *X);
/* What was left out when the set was opened, as a sentence to print, or "". */
TP_API const char *tp_image_set_note(const tp_image_set *X);
TP_API tp_layout tp_image_set_layout(const tp_image_set *X);
TP_API int64_t tp_image_set_count(const tp_image_set *X);
TP_API int tp_image_set_classes(const tp_image_set *X);
TP_API const char *tp_image_set_class(const tp_image_set *X, int label); /* a class's name */
TP_API int32_t tp_image_set_label(const tp_image_set *X, int64_t i);
/* A hash of the labels and of the names without their folders, from which a resumed run detects
 * that the images have changed. */
TP_API uint64_t tp_image_set_hash(const tp_image_set *X);
/* The file of image i, for messages; buf is used for names that must be composed. */
TP_API const char *tp_image_set_name(const tp_image_set *X, int64_t i, char *buf, size_t size);

/* Runs image i through a pipeline: out [size,size,3]. False with the reason in w->why; w->shortage
 * is set if trying again later may succeed. */
TP_API bool tp_image_set_prepare(const tp_image_set *X, int64_t i, const tp_augment *a,
                                 tp_augment_work *w, tp_example e, float *out);

/* ---- batches ---- */

typedef struct tp_image_loader_opts {
    const tp_augment *augment; /* copied */
    int64_t batch;
    uint64_t seed;
    int threads; /* workers; 0: 2 */
    int ahead;   /* batches prepared in advance; 0: 4 */
    /* > 1: repeated augmentation, each image that many times in a row, with epochs of the usual
     * length (rounded down to a multiple of 256 examples); 0: 1 */
    int repeats;
    /* endless: shuffled each epoch, whole batches only, mixed. Otherwise one pass in order; the
     * last batch may be smaller */
    bool train;
    /* An unreadable image is an error. Otherwise it is skipped. In training the image with the next
     * number replaces it, or, with a sampler, another image of the batch. Too many open files, lack
     * of memory and a failing disk are always errors. */
    bool strict;
    /* Called once for each image that cannot be read, on the thread that asks for a batch. May be
     * NULL. */
    void (*bad)(void *env, const char *name, const char *why);
    void *env;
    /* Gives the order of each epoch in place of the shuffle; `repeats` then applies to that order.
     * NULL: the usual order. It must outlive the loader. */
    const tp_example_sampler *sampler;
    tp_share share; /* the part of each batch that this process reads; zero: all of it */
} tp_image_loader_opts;

/* Prepares batches of images (loader.h). They are fed into two slots, f32: images [n,size,size,3],
 * targets [n,classes]. Processes that share a batch mix images within their own rows, with one draw
 * for all, so a mixed batch depends on the number of processes. */
TP_API tp_loader *tp_image_loader_new(const tp_image_set *X, const tp_image_loader_opts *o);

/* A batch in host memory, valid until the next call. */
typedef struct tp_image_batch {
    int64_t n;            /* images: batch, or fewer at the end */
    int64_t epoch, step;  /* step: within the epoch */
    const float *x;       /* [n,size,size,3] */
    const int32_t *label; /* [n], before mixing */
    const float *target;  /* [n,classes], smoothed and mixed */
    const int64_t *index; /* [n], the numbers of the images */
} tp_image_batch;

/* Waits for the next batch. False at the end (unless train) or on an error. */
TP_API bool tp_image_loader_next(tp_loader *L, tp_image_batch *b);

#ifdef __cplusplus
}
#endif
#endif
