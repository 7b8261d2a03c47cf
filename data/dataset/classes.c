/* classes.c - numbers the distinct texts of a field: a table of texts while rows are read, sorted
 * at the end. */
#include <stdlib.h>
#include <string.h>

#include "dataset/dataset.h"
#include "files.h"
#include <tapegrad/random.h>

/* Texts in the order in which they were met, and a table of them by hash. */
typedef struct texts {
    const char *field;
    tp_classes *K;
    size_t names_room;
    int32_t *slot; /* [slots]: -1 or the number of a text; slots is a power of 2 */
    size_t slots;
    int64_t row;
    bool starved;
} texts;

/* The slot of a text: its own, or a free one. */
static int32_t *slot_of(const texts *t, const char *text)
{
    size_t at = (size_t)tp_hash_text(TP_HASH, text) & (t->slots - 1);
    while (t->slot[at] >= 0 && strcmp(t->K->name[t->slot[at]], text) != 0)
        at = (at + 1) & (t->slots - 1);
    return &t->slot[at];
}

static bool grow(texts *t)
{
    const size_t slots = t->slots ? 2 * t->slots : 64;
    int32_t *slot = malloc(slots * sizeof *slot);
    if (!slot) return false;
    for (size_t i = 0; i < slots; i++) slot[i] = -1;
    free(t->slot);
    t->slot = slot;
    t->slots = slots;
    for (int32_t k = 0; k < t->K->n; k++) *slot_of(t, t->K->name[k]) = k;
    return true;
}

static bool note(void *env, tp_row *r)
{
    texts *t = env;
    tp_classes *K = t->K;
    const char *text = tp_row_text(r, t->field);
    if (r->state != TP_EXAMPLE_MADE) return false;
    t->starved = (size_t)K->n * 2 >= t->slots && !grow(t);
    if (t->starved) return tp_row_fail(r, "out of memory for %d classes", (int)K->n);
    int32_t *slot = slot_of(t, text);
    if (*slot < 0) {
        char *copy = strdup(text);
        t->starved =
            !copy || !tp_reserve(&K->name, &t->names_room, (size_t)K->n, 1, sizeof *K->name);
        if (t->starved) {
            free(copy);
            return tp_row_fail(r, "out of memory for %d classes", (int)K->n);
        }
        *slot = K->n;
        K->name[K->n++] = copy;
    }
    K->label[t->row++] = *slot;
    return true;
}

/* ---- their order ---- */

typedef struct named {
    const char *name;
    int32_t old;
} named;

static bool sort(tp_classes *K, int64_t rows)
{
    named *order = malloc((size_t)K->n * sizeof *order);
    int32_t *new = malloc((size_t)K->n * sizeof *new);
    bool integers = true;
    const bool fits = order && new;
    for (int32_t k = 0; fits && k < K->n; k++) {
        order[k] = (named){ .name = K->name[k], .old = k };
        integers = integers && tp__is_whole(K->name[k]);
    }
    if (fits) qsort(order, (size_t)K->n, sizeof *order, integers ? tp__by_value : tp__by_bytes);
    for (int32_t k = 0; fits && k < K->n; k++) new[order[k].old] = k;
    for (int64_t i = 0; fits && i < rows; i++) K->label[i] = new[K->label[i]];
    for (int32_t k = 0; fits && k < K->n; k++) K->name[k] = (char *)(uintptr_t)order[k].name;
    free(order);
    free(new);
    return fits;
}

int32_t tp_dataset_classes(tp_dataset *X, const char *field)
{
    char why[TP_WHY];
    if (!tp_dataset_ok(X) || !field) return 0;
    for (size_t i = 0; i < X->nclasses; i++)
        if (strcmp(X->classes[i].field, field) == 0) return X->classes[i].n;
    if (X->whole) {
        tp__dataset_fail(X, TP_E_STATE,
                         "dataset %s: a part has the classes of its whole, where field '%.150s' "
                         "has none; call tp_dataset_classes for the whole before it is divided",
                         X->name, field);
        return 0;
    }
    if (!tp_reserve(&X->classes, &X->classes_room, X->nclasses, 1, sizeof *X->classes)) {
        tp__dataset_fail(X, TP_E_MEMORY, "dataset %s: out of memory for classes", X->name);
        return 0;
    }
    tp_classes *K = &X->classes[X->nclasses++];
    *K = (tp_classes){ .field = strdup(field),
                       .label = malloc((size_t)X->count * sizeof *K->label) };
    texts t = { .field = field, .K = K, .starved = !K->field || !K->label };
    if (t.starved) snprintf(why, sizeof why, "%s: out of memory for classes", X->name);
    const bool read = !t.starved && tp_dataset_each(X, note, &t, why, sizeof why);
    free(t.slot);
    if (!read)
        tp__dataset_fail(X, t.starved ? TP_E_MEMORY : TP_E_IO, "dataset %s", why);
    else if (!sort(K, X->count))
        tp__dataset_fail(X, TP_E_MEMORY, "dataset %s: out of memory to sort %d classes", X->name,
                         (int)K->n);
    return tp_dataset_ok(X) ? K->n : 0;
}
