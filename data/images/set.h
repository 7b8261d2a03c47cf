/* set.h - the members of a set of images, and what the readers of the layouts share. */
#ifndef TP_IMAGES_INNER_H
#define TP_IMAGES_INNER_H

#include <tapegrad/image_set.h>

#include "files.h"
#include "kit.h"

/* An image is a file, or begins at an offset of one (a tar header, a CIFAR record). */
typedef struct tp_image_item {
    size_t path; /* offset into text */
    int64_t offset;
    int32_t label;
} tp_image_item;

/* The shapes that shapes.c draws. */
typedef struct tp_shapes {
    int64_t side; /* pixels                            */
    tp_part part; /* each part has different images    */
} tp_shapes;

/* Kinds of what a set leaves out. */
typedef enum tp_left_kind {
    TP_LEFT_FILE,    /* a file of another format                               */
    TP_LEFT_EMPTY,   /* a folder without images                                */
    TP_LEFT_LOOSE,   /* an image in no folder of a class                       */
    TP_LEFT_DEEP,    /* a folder inside a class                                */
    TP_LEFT_LINK,    /* a link to a folder that contains it                    */
    TP_LEFT_BESIDE,  /* a folder beside train and val                          */
    TP_LEFT_PACKED,  /* .tar.gz ...                                            */
    TP_LEFT_NO_PART, /* a shard not named as a part, if others are             */
    TP_LEFT_SECOND,  /* a second image of a key                                */
    TP_LEFT_KEY,     /* a key without images                                   */
    TP_LEFT_LINKED,  /* a link in a shard                                      */
    TP_NLEFT
} tp_left_kind;
typedef struct tp_left {
    int64_t count;
    char names[480]; /* of the first ones */
} tp_left;

struct tp_image_set {
    tp_layout layout;
    tp_image_item *item;
    int64_t count;
    size_t room;
    char *text; /* all names, NUL-terminated */
    size_t used, text_room;
    size_t *class_at; /* offsets into text */
    int classes;
    size_t class_room;
    bool numbers;    /* all classes are numbers, sorted by value                 */
    bool held_back;  /* every tenth image of a class is for validation           */
    int64_t of_both; /* ... and the two parts have this many images together     */
    tp_left left[TP_NLEFT];
    tp_image_source source; /* draw is NULL for files */
    tp_shapes shapes;       /* env of the source of tp_image_set_shapes */
    char note[2048], why[TP_WHY];
};

/* Every tenth image is for validation if nothing separates the parts. */
enum { TP_HELD_OUT = 10 };

/* ---- set_items.c: functions that layouts call; they return false if the set has failed ---- */

tp_image_set *tp__image_set_new(void);                     /* empty, or failed if out of memory */
size_t tp__image_set_text(tp_image_set *X, const char *s); /* copies s; returns its offset */
bool tp__image_set_class(tp_image_set *X, const char *name);
bool tp__image_set_item(tp_image_set *X, size_t path, int64_t offset, int32_t label);
/* Sorts the classes, by value if all are numbers, and drops duplicates; labels do not change. */
bool tp__image_set_sort(tp_image_set *X);
/* Returns the label of a class, or -1. The classes must be sorted. */
int32_t tp__image_set_label(const tp_image_set *X, const char *name);

/* Counts something left out; the name is relative to the folder of the set. */
void tp__image_set_left(tp_image_set *X, tp_left_kind kind, const char *fmt, ...) TP_PRINTF(3, 4);
void tp__image_set_note(tp_image_set *X); /* writes X->note */

/* ---- set_files.c ---- */

/* Writes FOLDER/NAME to buf and returns it. */
const char *tp__join(char *buf, size_t size, const char *folder, const char *name);
/* Does a folder or file exist? X fails if the file system reports an error. */
bool tp__is_folder(tp_image_set *X, const char *path);
bool tp__is_file(tp_image_set *X, const char *path);
/* Does a folder contain this name, which may be a path? */
bool tp__has(tp_image_set *X, const char *folder, const char *name);
bool tp__is_image(const char *name);  /* .jpg, .jpeg, .png      */
bool tp__is_shard(const char *name);  /* .tar                   */
bool tp__is_packed(const char *name); /* .tar.gz, .tgz, ...     */
/* Is the path a link to a folder that contains it? */
bool tp__leads_back(const char *path);

/* Lists the folders or files in a folder, sorted by bytes, without companions (files.h). Free the
 * list with tp__names_free. -1: the folder cannot be read; X fails unless the folder does not
 * exist. */
int tp__entries(tp_image_set *X, const char *path, bool folders, char ***names);
bool tp__has_images(tp_image_set *X, const char *path); /* Does the folder contain images? */

/* Adds a class named by a line (for tp__each_line). */
bool tp__class_line(tp_image_set *X, char *line, void *env);
/* Fails X: paths of training and of another part lead to the same file or folder. */
bool tp__image_set_shared(tp_image_set *X, const char *a, const char *b, const char *what);

/* Calls f for each non-empty line of a text file (possibly compressed), without byte order mark and
 * line end, until f returns false. */
bool tp__each_line(tp_image_set *X, const char *path,
                   bool (*f)(tp_image_set *X, char *line, void *env), void *env);

/* ---- set_folders.c, set_lists.c, ...: one constant tp__layout_NAME for each layout ---- */

typedef struct tp_layout_kind {
    /* Lists the classes and the images of a part. */
    void (*read)(tp_image_set *X, const char *folder, tp_part part);
    /* Does a folder look like this layout? NULL: it must be named. */
    bool (*seen)(tp_image_set *X, const char *folder);
    /* Order of that question, 1 to TP_NLAYOUTS - 1: the most specific layouts come first. */
    int rank;
    /* Runs image i, which begins at an offset of a file, through a pipeline. On failure sets errno,
     * and w->shortage if memory runs out. NULL: images are files. */
    bool (*prepare)(const tp_image_set *X, int64_t i, const tp_augment *a, tp_augment_work *w,
                    tp_example e, float *out);
} tp_layout_kind;
#define TP_LAYOUT_KIND(name, word) extern const tp_layout_kind tp__layout_##word;
TP_LAYOUTS(TP_LAYOUT_KIND)
#undef TP_LAYOUT_KIND

/* ---- set.c ---- */

/* NULL: the images are drawn. */
const tp_layout_kind *tp__layout_of(const tp_image_set *X);

/* ---- set_tar.c: what is in a shard ---- */

/* The state while a set of shards is read. */
typedef struct tp_shard_reader {
    tp_image_set *X;
    bool names_only; /* add classes, but no images                                   */
    uint8_t *part;   /* [X->count]: part named by a folder in the shard, or NO_PART  */
    bool *next;      /* [X->count]: the image before it has the same key             */
    size_t part_room, next_room;
    int *slot; /* [slots]: classes by the hash of their names, from 1; 0: free       */
    size_t slots;
    bool *trained; /* [trained_n]: the class occurs in training; NULL: all do         */
    size_t trained_room;
    int trained_n;
    int32_t largest;       /* largest label that is a number, or -1                    */
    char labelled[3][700]; /* the first key labelled by a number, a name, a folder; "" */
} tp_shard_reader;
enum { TP_SHARD_NO_PART = 3 };

/* Reads all headers and labels of a tar file. */
void tp__shard_walk(tp_shard_reader *r, const char *path);
/* Notes that a class occurs in training. */
bool tp__shard_trained(tp_shard_reader *r, int32_t class);

/* Returns the bytes of the entry whose header is at an offset of a tar file; free them. NULL on
 * failure, with the reason in why. */
void *tp__shard_entry(const char *path, int64_t offset, size_t *n, char *why, size_t size);

#endif
