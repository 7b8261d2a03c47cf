/* set_shards.c - sets of shards (tar files of images): the shards of a part, and the classes. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files.h"
#include "set.h"

/* The shards of a set and the parts they name. */
typedef struct shards {
    char **path;
    int *part; /* [n]: tp_part, or TP_NO_PART */
    int n;
    size_t path_room, part_room;
    bool has[3];   /* some shard names the part    */
    bool unnamed;  /* some shard names none        */
    bool in_parts; /* folders of parts have shards */
} shards;

/* ---- finding shards ---- */

static bool add_shard(tp_image_set *X, shards *s, const char *path, int part)
{
    const size_t n = (size_t)s->n;
    const bool fits = tp_reserve(&s->path, &s->path_room, n, 1, sizeof(char *)) &&
                      tp_reserve(&s->part, &s->part_room, n, 1, sizeof *s->part);
    if (!fits || !(s->path[n] = strdup(path))) return tp__fail(X, "images: out of memory");
    s->part[s->n++] = part;
    if (part >= 0) s->has[part] = true;
    if (part < 0) s->unnamed = true;
    return true;
}

/* Adds the shards in a folder; part: named by the folder, or TP_NO_PART. */
static void list_folder(tp_image_set *X, shards *s, const char *folder, int part)
{
    char path[PATH_MAX];
    char **names;
    const int n = tp__entries(X, folder, false, &names);
    for (int i = 0; i < n && !X->why[0]; i++) {
        if (tp__is_packed(names[i]))
            tp__image_set_left(X, TP_LEFT_PACKED, "%s", names[i]);
        else if (tp__is_shard(names[i]))
            add_shard(X, s, tp__join(path, sizeof path, folder, names[i]),
                      part >= 0 ? part : tp__part_of_file(names[i]));
    }
    if (n >= 0) tp__names_free(names, n);
}

/* Adds the shards in the folders of parts and in the folder itself. */
static void list(tp_image_set *X, shards *s, const char *folder)
{
    char path[PATH_MAX];
    char **names;
    const int n = tp__entries(X, folder, true, &names);
    for (int i = 0; i < n && !X->why[0]; i++) {
        const int part = tp__part_of_word(names[i], strlen(names[i]));
        if (part >= 0) list_folder(X, s, tp__join(path, sizeof path, folder, names[i]), part);
    }
    if (n >= 0) tp__names_free(names, n);
    s->in_parts = s->n > 0;
    list_folder(X, s, folder, TP_NO_PART);
}

static void forget(shards *s)
{
    for (int i = 0; i < s->n; i++) free(s->path[i]);
    free(s->path);
    free(s->part);
}

/* Training folders beside a shard mean that it has been unpacked. */
static bool is_unpacked(tp_image_set *X, const char *folder)
{
    char path[PATH_MAX];
    char **names;
    const int n = tp__entries(X, tp__join(path, sizeof path, folder, "train"), true, &names);
    if (n >= 0) tp__names_free(names, n);
    return n > 0;
}

static bool has_shards(tp_image_set *X, const char *folder)
{
    const tp_left packed = X->left[TP_LEFT_PACKED];
    shards s = { 0 };
    list(X, &s, folder);
    const bool found = s.in_parts || (s.n > 0 && !is_unpacked(X, folder));
    X->left[TP_LEFT_PACKED] = packed; /* reading counts them */
    forget(&s);
    return found;
}

/* ---- parts ---- */

/* Takes unnamed shards for training if no others are; otherwise leaves them out. */
static void assign_unnamed(tp_image_set *X, shards *s)
{
    if (!s->unnamed || !(s->has[TP_TRAIN] || s->has[TP_VALID] || s->has[TP_TEST])) return;
    const bool train = !s->has[TP_TRAIN];
    for (int i = 0; i < s->n; i++) {
        if (s->part[i] != TP_NO_PART) continue;
        if (train)
            s->part[i] = TP_TRAIN;
        else
            tp__image_set_left(X, TP_LEFT_NO_PART, "%s", strrchr(s->path[i], '/') + 1);
    }
    s->has[TP_TRAIN] = true;
}

/* Returns the existing part to read for `part`; TP_NO_PART: none. */
static int source_of(const bool has[3], tp_part part)
{
    if (part == TP_TRAIN) return has[TP_TRAIN] ? TP_TRAIN : TP_NO_PART;
    if (part == TP_TEST && has[TP_TEST]) return TP_TEST;
    return has[TP_VALID] ? TP_VALID : has[TP_TEST] ? TP_TEST : TP_NO_PART;
}

typedef struct place {
    dev_t device;
    ino_t number;
    int shard;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    return x->number != y->number ? (x->number < y->number ? -1 : 1) : x->shard - y->shard;
}

/* No file may be a shard of both training and, through a link, another part. */
static bool are_apart(tp_image_set *X, const shards *s)
{
    place *at = malloc(((size_t)s->n + 1) * sizeof *at);
    struct stat st;
    int n = 0;
    if (!at) return tp__fail(X, "images: out of memory");
    for (int i = 0; i < s->n; i++)
        if (stat(s->path[i], &st) == 0) at[n++] = (place){ st.st_dev, st.st_ino, i };
    qsort(at, (size_t)n, sizeof *at, by_place);
    for (int i = 1; i < n; i++) {
        const int a = at[i - 1].shard, b = at[i].shard;
        if (at[i].device == at[i - 1].device && at[i].number == at[i - 1].number &&
            (s->part[a] == TP_TRAIN) != (s->part[b] == TP_TRAIN))
            tp__image_set_shared(X, s->path[a], s->path[b], "file");
    }
    free(at);
    return !X->why[0];
}

/* ---- dividing the images of all shards ---- */

/* Keeps the images whose folders in the shards name the part. */
static bool keep_named(tp_shard_reader *r, const bool has[3], tp_part part)
{
    tp_image_set *X = r->X;
    const int source = part == TP_TRAIN ? TP_TRAIN : source_of(has, part);
    int64_t n = 0;
    for (int64_t i = 0; i < X->count; i++) {
        const int named = r->part[i] == TP_SHARD_NO_PART && !has[TP_TRAIN] ? TP_TRAIN : r->part[i];
        if (named == TP_SHARD_NO_PART)
            tp__image_set_left(X, TP_LEFT_NO_PART, "byte %lld of %s", (long long)X->item[i].offset,
                               X->text + X->item[i].path);
        if (named == TP_TRAIN && !r->labelled[0][0] && !tp__shard_trained(r, X->item[i].label))
            return false;
        if (named == source) X->item[n++] = X->item[i];
    }
    X->count = n;
    return true;
}

/* Gives every tenth key of a class to validation. */
static bool keep_tenths(tp_shard_reader *r, tp_part part)
{
    tp_image_set *X = r->X;
    const size_t classes = r->largest >= X->classes ? (size_t)r->largest + 1 : (size_t)X->classes;
    int64_t *seen = calloc(classes + 1, sizeof *seen), n = 0;
    bool held = false;
    if (!seen) return tp__fail(X, "images: out of memory");
    X->held_back = true;
    X->of_both = X->count;
    for (int64_t i = 0; r->next && i < X->count; i++) {
        if (!r->next[i]) held = seen[X->item[i].label]++ % TP_HELD_OUT == TP_HELD_OUT - 1;
        if (held == (part != TP_TRAIN)) X->item[n++] = X->item[i];
    }
    X->count = n;
    free(seen);
    return true;
}

/* Divides the images if the shards' names do not. */
static bool divide(tp_shard_reader *r, tp_part part)
{
    bool has[3] = { false };
    for (int64_t i = 0; r->part && i < r->X->count; i++)
        if (r->part[i] != TP_SHARD_NO_PART) has[r->part[i]] = true;
    return has[TP_VALID] || has[TP_TEST] ? keep_named(r, has, part) : keep_tenths(r, part);
}

/* ---- classes ---- */

/* Are all images labelled in the same way? */
static bool is_one_way(const tp_shard_reader *r)
{
    static const char *const how[] = { "a number", "a name", "its folder" };
    int first = -1;
    for (int k = 0; k < 3; k++) {
        if (!r->labelled[k][0]) continue;
        if (first >= 0)
            return tp__fail(r->X, "%s has %s as label, %s %s: use one way for all images",
                            r->labelled[first], how[first], r->labelled[k], how[k]);
        first = k;
    }
    return true;
}

static void name_numbers(tp_image_set *X, int32_t largest)
{
    char name[32];
    X->classes = 0;
    for (int32_t k = 0; k <= largest && !X->why[0]; k++) {
        snprintf(name, sizeof name, "class %d", k);
        tp__image_set_class(X, name);
    }
}

/* Sorts the classes and renumbers the labels. If r->trained, drops classes absent from training. */
static void sort_classes(tp_shard_reader *r)
{
    tp_image_set *X = r->X;
    const int n = X->classes;
    size_t *former = malloc(((size_t)n + 1) * sizeof *former);
    int32_t *now = malloc(((size_t)n + 1) * sizeof *now);
    bool done = former && now;
    if (!done) tp__fail(X, "images: out of memory");
    if (done) memcpy(former, X->class_at, (size_t)n * sizeof *former);
    for (int k = X->classes = 0; done && k < n; k++)
        if (!r->trained || (k < r->trained_n && r->trained[k]))
            X->class_at[X->classes++] = former[k];
    done = done && tp__image_set_sort(X);
    for (int k = 0; done && k < n; k++) now[k] = tp__image_set_label(X, X->text + former[k]);
    for (int64_t i = 0; done && i < X->count; i++) {
        tp_image_item *it = &X->item[i];
        if (now[it->label] < 0)
            done = tp__fail(X, "%s, byte %lld: the training images have no class '%s'",
                            X->text + it->path, (long long)it->offset, X->text + former[it->label]);
        it->label = now[it->label];
    }
    free(former);
    free(now);
}

/* ---- the set ---- */

static void walk_part(tp_shard_reader *r, const shards *s, int part)
{
    for (int i = 0; i < s->n && !r->X->why[0]; i++)
        if (part == TP_NO_PART || s->part[i] == part) tp__shard_walk(r, s->path[i]);
}

/* Reads the shards of a part or, if none is named, the images for it in all shards. */
static void read_part(tp_shard_reader *r, const shards *s, const char *folder, tp_part part)
{
    tp_image_set *X = r->X;
    const int source = source_of(s->has, part);
    if (!s->has[TP_VALID] && !s->has[TP_TEST]) {
        walk_part(r, s, s->has[TP_TRAIN] ? TP_TRAIN : TP_NO_PART);
        if (!X->why[0] && is_one_way(r)) divide(r, part);
        return;
    }
    if (source == TP_NO_PART) {
        tp__fail(X, "%s: all shards are named as validation or test, none for training", folder);
        return;
    }
    walk_part(r, s, source);
    if (part == TP_TRAIN || !s->has[TP_TRAIN] || r->labelled[0][0]) return;
    tp_left left[TP_NLEFT];
    memcpy(left, X->left, sizeof left);
    r->names_only = true; /* the classes are those of training */
    walk_part(r, s, TP_TRAIN);
    memcpy(X->left, left, sizeof left); /* that walk left out nothing of this part */
}

static void read_shards(tp_image_set *X, const char *folder, tp_part part)
{
    shards s = { 0 };
    tp_shard_reader r = { .X = X, .largest = -1 };
    list(X, &s, folder);
    assign_unnamed(X, &s);
    if (!X->why[0] && are_apart(X, &s)) read_part(&r, &s, folder, part);
    if (!X->why[0] && is_one_way(&r)) {
        if (r.labelled[0][0])
            name_numbers(X, r.largest);
        else if (X->classes)
            sort_classes(&r);
    }
    forget(&s);
    free(r.part);
    free(r.next);
    free(r.slot);
    free(r.trained);
}

static bool prepare(const tp_image_set *X, int64_t i, const tp_augment *a, tp_augment_work *w,
                    tp_example e, float *out)
{
    const tp_image_item *it = &X->item[i];
    size_t n;
    void *bytes = tp__shard_entry(X->text + it->path, it->offset, &n, w->why, sizeof w->why);
    const int error = errno;
    const bool ok = bytes && tp_augment_bytes(a, w, bytes, n, e, out);
    free(bytes);
    errno = error;
    return ok;
}

const tp_layout_kind tp__layout_shards = {
    .read = read_shards, .seen = has_shards, .rank = 5, .prepare = prepare
};
