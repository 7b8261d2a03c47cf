/* picture_lists.c - layouts with lists of files: IP102, Food-101, Mini-ImageNet. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pictures_inner.h"

/* ---- IP102 ---- */

enum { IP102_CLASSES = 102 };

/* "12   rice leaf roller": numbers from 1, in order */
static bool ip102_class(tp_pictures *X, char *line, void *env)
{
    char *name;
    (void)env;
    const long number = strtol(line, &name, 10);
    while (*name == ' ' || *name == '\t') name++;
    for (size_t n = strlen(name); n && name[n - 1] == ' ';) name[--n] = '\0';
    if (number == X->classes + 1 && *name) return tp__pictures_class(X, name);
    return tp__pictures_fail(X, "classes.txt: '%s' is not class %d and its name", line,
                             X->classes + 1);
}

/* "00002.jpg 0" */
static bool ip102_line(tp_pictures *X, char *line, void *env)
{
    char path[PATH_MAX], *end;
    char *blank = strrchr(line, ' ');
    const long label = blank ? strtol(blank + 1, &end, 10) : -1;
    if (!blank || *end || label < 0 || label >= X->classes)
        return tp__pictures_fail(X, "'%s' is not a file and a label from 0 to %d", line,
                                 X->classes - 1);
    *blank = '\0';
    tp__join(path, sizeof path, env, line);
    return tp__pictures_item(X, tp__pictures_text(X, path), 0, (int32_t)label);
}

void tp__read_ip102(tp_pictures *X, const char *folder, tp_part part)
{
    static const char *const lists[] = { "train.txt", "val.txt", "test.txt" };
    char below[PATH_MAX], path[PATH_MAX], images[PATH_MAX], name[16];
    const char *top = folder;
    tp__join(below, sizeof below, folder, "ip102_v1.1");
    if (tp__is_folder(below)) folder = below;
    if (tp__is_file(tp__join(path, sizeof path, folder, "classes.txt")) ||
        tp__is_file(tp__join(path, sizeof path, top, "classes.txt"))) {
        tp__each_line(X, path, ip102_class, NULL);
    } else {
        for (int i = 0; i < IP102_CLASSES; i++) {
            snprintf(name, sizeof name, "class %d", i);
            tp__pictures_class(X, name);
        }
    }
    tp__join(images, sizeof images, folder, "images");
    if (!X->why[0])
        tp__each_line(X, tp__join(path, sizeof path, folder, lists[part]), ip102_line, images);
}

/* ---- Food-101 ---- */

static bool add_class(tp_pictures *X, char *line, void *env)
{
    (void)env;
    return tp__pictures_class(X, line);
}

static const char *sort_text;
static int by_name(const void *a, const void *b)
{
    return strcmp(sort_text + *(const size_t *)a, sort_text + *(const size_t *)b);
}

static bool food_line(tp_pictures *X, char *line, void *env)
{
    char path[PATH_MAX], name[PATH_MAX];
    char *slash = strchr(line, '/');
    snprintf(name, sizeof name, "%s.jpg", line);
    if (slash) *slash = '\0';
    const int32_t label = slash ? tp__pictures_label(X, line) : -1;
    if (label < 0) return tp__pictures_fail(X, "'%s' is not in a class of meta/classes.txt", name);
    tp__join(path, sizeof path, env, name);
    return tp__pictures_item(X, tp__pictures_text(X, path), 0, label);
}

void tp__read_food101(tp_pictures *X, const char *folder, tp_part part)
{
    char path[PATH_MAX], images[PATH_MAX];
    tp__join(images, sizeof images, folder, "images");
    if (!tp__each_line(X, tp__join(path, sizeof path, folder, "meta/classes.txt"), add_class, NULL))
        return;
    sort_text = X->text; /* labels are places among the sorted names, not lines of the list */
    qsort(X->class_at, (size_t)X->classes, sizeof *X->class_at, by_name);
    tp__join(path, sizeof path, folder, part == TP_TRAIN ? "meta/train.txt" : "meta/test.txt");
    tp__each_line(X, path, food_line, images);
}

/* ---- Mini-ImageNet ---- */

enum { MINI_CLASS = 600, MINI_TRAIN = 480 };

/* The new order of the 600 pictures of a class, the same for all: picture `shuffled[p]` comes to
 * place p (the re-split of the few-shot lists that supervised results are published for). */
/* clang-format off */
static const int16_t shuffled[MINI_CLASS] = {
    446, 404, 509, 455, 201, 23, 415, 548, 66, 165, 334, 329, 0, 531, 232, 200, 147, 473, 451,
    496, 13, 510, 268, 358, 289, 483, 429, 47, 223, 185, 430, 308, 120, 250, 111, 293, 65, 477,
    573, 449, 335, 207, 419, 132, 49, 315, 257, 458, 59, 423, 433, 162, 41, 553, 539, 588, 545,
    135, 62, 395, 495, 501, 90, 233, 197, 592, 17, 402, 558, 311, 406, 518, 92, 292, 465, 29, 374,
    85, 582, 442, 247, 173, 499, 591, 462, 559, 88, 285, 259, 172, 585, 237, 569, 160, 3, 439, 9,
    189, 373, 517, 502, 440, 195, 595, 107, 328, 218, 180, 350, 260, 69, 40, 396, 487, 119, 5,
    224, 159, 38, 192, 82, 568, 347, 544, 34, 67, 124, 39, 438, 414, 540, 351, 362, 388, 307, 523,
    31, 364, 95, 245, 277, 74, 258, 312, 61, 550, 214, 76, 437, 304, 546, 68, 472, 4, 187, 434,
    339, 179, 19, 555, 485, 117, 368, 78, 460, 57, 378, 42, 525, 295, 81, 133, 242, 464, 161, 532,
    566, 529, 261, 386, 241, 400, 286, 379, 314, 139, 157, 16, 574, 236, 394, 267, 102, 52, 345,
    564, 146, 255, 482, 467, 541, 128, 273, 547, 450, 110, 524, 323, 528, 346, 435, 360, 422, 142,
    565, 6, 284, 11, 306, 262, 370, 58, 521, 556, 474, 186, 203, 349, 475, 283, 2, 101, 520, 363,
    459, 104, 554, 361, 365, 225, 18, 168, 493, 567, 121, 421, 453, 506, 536, 403, 597, 291, 80,
    46, 445, 274, 93, 213, 410, 106, 115, 488, 426, 359, 36, 333, 204, 244, 221, 246, 342, 376,
    249, 122, 164, 512, 479, 239, 425, 484, 500, 70, 318, 98, 305, 551, 30, 375, 127, 1, 301, 27,
    89, 73, 447, 171, 355, 408, 480, 91, 427, 516, 125, 581, 12, 344, 599, 385, 238, 586, 452,
    441, 143, 341, 14, 563, 578, 208, 131, 174, 436, 191, 270, 123, 138, 51, 584, 112, 265, 382,
    272, 256, 486, 105, 300, 590, 411, 240, 230, 153, 326, 448, 392, 294, 150, 407, 163, 167, 492,
    206, 188, 507, 324, 145, 383, 226, 216, 481, 504, 298, 572, 417, 575, 457, 175, 538, 498, 229,
    579, 280, 409, 228, 100, 290, 533, 366, 53, 227, 577, 598, 154, 251, 275, 158, 271, 44, 589,
    113, 444, 211, 108, 320, 169, 79, 50, 84, 8, 32, 99, 109, 136, 330, 222, 28, 287, 522, 55,
    156, 526, 537, 310, 48, 83, 491, 33, 35, 331, 63, 413, 384, 530, 322, 372, 428, 234, 412, 596,
    343, 45, 424, 303, 527, 177, 219, 519, 296, 21, 248, 587, 420, 325, 309, 199, 137, 24, 399,
    443, 184, 205, 134, 299, 116, 212, 576, 594, 549, 463, 231, 405, 217, 56, 317, 183, 570, 511,
    340, 181, 97, 114, 397, 278, 432, 118, 20, 170, 401, 389, 552, 54, 176, 327, 194, 198, 470,
    494, 352, 182, 266, 354, 103, 220, 130, 353, 371, 338, 505, 489, 60, 94, 193, 140, 416, 148,
    476, 202, 152, 377, 391, 337, 380, 535, 10, 269, 96, 210, 593, 557, 332, 75, 77, 263, 149,
    514, 561, 469, 461, 253, 369, 321, 151, 302, 190, 348, 243, 87, 543, 418, 288, 166, 560, 155,
    356, 381, 279, 126, 22, 282, 471, 367, 25, 196, 64, 15, 466, 297, 336, 26, 43, 497, 515, 571,
    454, 387, 71, 542, 456, 431, 264, 209, 316, 513, 313, 534, 319, 7, 393, 141, 86, 478, 503,
    215, 580, 562, 398, 490, 252, 468, 357, 254, 276, 178, 281, 390, 508, 583, 129, 144, 72, 235,
    37,
};
/* clang-format on */

/* Rows of the lists while they are sorted into classes. */
typedef struct rows {
    size_t *file, *wnid; /* places in text, the latter's first use */
    int64_t n, room;
    int skip; /* columns before the file */
    bool header;
} rows;

/* "FILE,WNID", or in new lists ",FILE,WNID" */
static bool mini_line(tp_pictures *X, char *line, void *env)
{
    rows *r = env;
    if (r->header) {
        r->header = false;
        r->skip = line[0] == ',';
        return true;
    }
    char *file = r->skip ? strchr(line, ',') : line;
    file = file && r->skip ? file + 1 : file;
    char *comma = file ? strchr(file, ',') : NULL;
    if (!comma) return tp__pictures_fail(X, "'%s' is not a file and a class", line);
    *comma = '\0';
    if (r->n == r->room) {
        const int64_t room = r->room ? 2 * r->room : 4096;
        size_t *f = realloc(r->file, (size_t)room * sizeof *f);
        if (f) r->file = f;
        size_t *w = f ? realloc(r->wnid, (size_t)room * sizeof *w) : NULL;
        if (w) r->wnid = w;
        if (!f || !w) return tp__pictures_fail(X, "pictures: out of memory");
        r->room = room;
    }
    r->file[r->n] = tp__pictures_text(X, file);
    r->wnid[r->n++] = tp__pictures_text(X, comma + 1);
    return X->why[0] == '\0';
}

static bool read_list(tp_pictures *X, rows *r, const char *folder, const char *name)
{
    char path[PATH_MAX], packed[PATH_MAX + 4];
    r->header = true;
    tp__join(path, sizeof path, folder, name);
    snprintf(packed, sizeof packed, "%s.xz", path);
    return tp__each_line(X, tp__is_file(path) ? path : packed, mini_line, r);
}

/* The classes of all rows, sorted. */
static void classes_of(tp_pictures *X, const rows *r)
{
    for (int64_t i = 0; i < r->n; i++) { /* lists run class by class: few look-ups are long */
        bool known = false;
        for (int k = X->classes - 1; k >= 0 && !known; k--)
            known = strcmp(X->text + X->class_at[k], X->text + r->wnid[i]) == 0;
        if (known) continue;
        char name[512];
        snprintf(name, sizeof name, "%s", X->text + r->wnid[i]);
        if (!tp__pictures_class(X, name)) return;
    }
    sort_text = X->text;
    if (X->classes) qsort(X->class_at, (size_t)X->classes, sizeof *X->class_at, by_name);
}

static bool mini_item(tp_pictures *X, const rows *r, int64_t i, const char *images, int32_t label)
{
    char path[PATH_MAX];
    tp__join(path, sizeof path, images, X->text + r->file[i]);
    return tp__pictures_item(X, tp__pictures_text(X, path), 0, label);
}

/* Class by class, in the new order; only the part that is asked for. */
static void resplit(tp_pictures *X, const rows *r, const char *images, tp_part part)
{
    for (int32_t k = 0; k < X->classes && !X->why[0]; k++) {
        int64_t of_class[MINI_CLASS];
        int n = 0;
        for (int64_t i = 0; i < r->n; i++)
            if (strcmp(X->text + r->wnid[i], tp_pictures_class(X, k)) == 0 && n++ < MINI_CLASS)
                of_class[n - 1] = i;
        if (n != MINI_CLASS) {
            tp__pictures_fail(X, "class %s has %d pictures in the lists; Mini-ImageNet has %d",
                              tp_pictures_class(X, k), n, MINI_CLASS);
            return;
        }
        const int begin = part == TP_TRAIN ? 0 : MINI_TRAIN;
        const int end = part == TP_TRAIN ? MINI_TRAIN : MINI_CLASS;
        for (int p = begin; p < end; p++) mini_item(X, r, of_class[shuffled[p]], images, k);
    }
}

void tp__read_mini_imagenet(tp_pictures *X, const char *folder, tp_part part)
{
    char path[PATH_MAX], images[PATH_MAX];
    rows r = { 0 };
    tp__join(images, sizeof images, folder, "images");
    if (tp__is_file(tp__join(path, sizeof path, folder, "new_train.csv"))) {
        read_list(X, &r, folder, part == TP_TRAIN ? "new_train.csv" : "new_val.csv");
        classes_of(X, &r);
        for (int64_t i = 0; i < r.n && !X->why[0]; i++)
            mini_item(X, &r, i, images, tp__pictures_label(X, X->text + r.wnid[i]));
    } else if (read_list(X, &r, folder, "train.csv") && read_list(X, &r, folder, "val.csv") &&
               read_list(X, &r, folder, "test.csv")) {
        classes_of(X, &r);
        resplit(X, &r, images, part);
    }
    free(r.file);
    free(r.wnid);
}
