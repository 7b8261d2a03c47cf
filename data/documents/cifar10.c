/* cifar10.c - CIFAR-10 in grey. Its records: a label and the planes of red, green and blue.
 *
 *     grey = trunc((0.2989 R + 0.5870 G + 0.1140 B) 255.5)        R, G, B in [0, 1], all in float32
 *
 * The library is compiled without contraction, so every operation is rounded separately. */
#include <stdlib.h>
#include <string.h>

#include "documents.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, RECORD = 1 + 3 * PLANE, BATCHES = 5, CLASSES = 10 };
static const size_t largest = (size_t)RECORD << 17;

typedef struct reader {
    tp_documents *X;
    const char *path;
    bool test;
    uint8_t *batch[BATCHES]; /* [count,1+PLANE]: labels and grey values */
    int64_t count[BATCHES];
} reader;

static uint8_t grey(const uint8_t *rgb)
{
    const float scale = 1.0f / 255;
    const float r = (float)rgb[0] * scale, g = (float)rgb[PLANE] * scale,
                b = (float)rgb[2 * PLANE] * scale;
    return (uint8_t)((0.2989f * r + 0.5870f * g + 0.1140f * b) * 255.5f);
}

/* Returns 0 ... 4 for data_batch_1.bin ..., 0 for test_batch.bin, -1 for unwanted files. */
static int batch_of(const reader *r, const char *name)
{
    char file[] = "data_batch_1.bin";
    if (r->test) return tp__tail(name, "test_batch.bin") ? 0 : -1;
    for (int k = 0; k < BATCHES; k++, file[11]++)
        if (tp__tail(name, file)) return k;
    return -1;
}

static bool wants(void *env, const char *name)
{
    return batch_of(env, name) >= 0;
}

static bool take(void *env, const char *name, const uint8_t *bytes, size_t n)
{
    reader *r = env;
    const int k = batch_of(r, name);
    const size_t count = n / RECORD;
    if (r->batch[k]) return true; /* a second copy */
    if (n == 0 || n % RECORD)
        return tp__fail(r->X, "%.400s: %.300s has %zu bytes, not records of %d", r->path, name, n,
                        RECORD);
    r->batch[k] = malloc(count * (1 + PLANE));
    if (!r->batch[k]) return tp__fail(r->X, "%.700s: out of memory", r->path);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *from = bytes + i * RECORD;
        uint8_t *to = r->batch[k] + i * (1 + PLANE);
        if (from[0] >= CLASSES)
            return tp__fail(r->X, "%.400s: %.300s has the label %d at byte %zu, not 0 to 9",
                            r->path, name, from[0], i * RECORD);
        to[0] = from[0];
        for (int p = 0; p < PLANE; p++) to[1 + p] = grey(from + 1 + p);
    }
    r->count[k] = (int64_t)count;
    return true;
}

static void add_part(reader *r, tp_part part, const tp_documents_opts *o)
{
    int64_t total = 0, i = 0;
    for (int k = 0; k < BATCHES; k++) total += r->count[k];
    const int64_t cut = total * 9 / 10, first = part == TP_VALID ? cut : 0,
                  last = part == TP_TRAIN ? cut : total;
    for (int k = 0; k < BATCHES; k++)
        for (int64_t j = 0; j < r->count[k]; j++, i++) {
            const uint8_t *image = r->batch[k] + j * (1 + PLANE);
            if (i < first || i >= last || (o->limit > 0 && r->X->count >= o->limit)) continue;
            if (!tp__documents_pixels(r->X, image + 1, PLANE, image[0], o)) return;
        }
    if (r->X->count == 0)
        tp__fail(r->X, "%.600s contains no images of this part: %s is wanted", r->path,
                 r->test ? "test_batch.bin" : "data_batch_1.bin ... data_batch_5.bin");
}

tp_documents *tp_documents_cifar10(const char *path, tp_part part, const tp_documents_opts *o)
{
    if (!path) path = "";
    static const tp_documents_opts defaults = { 0 };
    tp_documents *X = tp_documents_new(1, CLASSES);
    reader r = { .X = X, .path = path, .test = part == TP_TEST };
    const tp_tree tree = { .wants = wants,
                           .take = take,
                           .env = &r,
                           .most = largest,
                           .why = X->why,
                           .size = sizeof X->why };
    tp__documents_from(X, path);
    if (!o) o = &defaults;
    if (o->damage != TP_DAMAGE_NONE) tp__fail(X, "documents: images cannot be damaged");
    if (tp_documents_ok(X) && tp__tree_visit(path, &tree)) add_part(&r, part, o);
    for (int k = 0; k < BATCHES; k++) free(r.batch[k]);
    return X;
}
