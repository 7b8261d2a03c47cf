/* test_loader.c - batches of images are the same for any number of threads and resume anywhere;
 * unreadable images. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/image_set.h>

#include "support/folder.h"
#include "support/image_sets.h"

TestSuite(loader, .init = make_folder, .fini = remove_folder);

enum { SIZE = 16, PIXELS = SIZE * SIZE * 3 };

typedef struct trace {
    int64_t n, epoch[40], step[40], index[200];
    double sum;
    int bad;
    char name[256];
} trace;

static void note_bad(void *env, const char *name, const char *why)
{
    trace *t = env;
    (void)why;
    t->bad++;
    snprintf(t->name, sizeof t->name, "%s", name);
}

/* Runs `steps` batches (0: to the end) from (epoch, step). */
static trace run(const tp_image_set *X, tp_image_loader_opts o, int64_t epoch, int64_t step,
                 int steps)
{
    trace t = { 0 };
    tp_augment a;
    tp_image_batch b;
    cr_assert(tp_augment_recipe(&a, o.train ? "lsla" : "eval", SIZE));
    o.augment = &a;
    o.bad = note_bad;
    o.env = &t;
    tp_loader *L = tp_image_loader_new(X, &o);
    cr_assert(tp_loader_ok(L), "%s", tp_loader_why(L));
    if (epoch || step) tp_loader_seek(L, epoch, step);
    for (int i = 0; (steps == 0 || i < steps) && tp_image_loader_next(L, &b); i++) {
        t.epoch[i] = b.epoch;
        t.step[i] = b.step;
        for (int64_t k = 0; k < b.n; k++) {
            t.index[t.n++] = b.index[k];
            for (int64_t e = 0; e < PIXELS; e++)
                t.sum += (double)(1 + (t.n + e) % 7) * (double)b.x[k * PIXELS + e];
            for (int c = 0; c < tp_image_set_classes(X); c++)
                t.sum += c * (double)b.target[k * tp_image_set_classes(X) + c];
        }
    }
    cr_expect(tp_loader_ok(L) || o.strict, "%s", tp_loader_why(L));
    cr_expect_eq(tp_loader_skipped(L), t.bad);
    tp_loader_free(L);
    return t;
}

Test(loader, batches_do_not_depend_on_threads)
{
    make_classes("plain", 11, 0);
    tp_image_set *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    tp_image_loader_opts o = { .batch = 4, .train = true, .seed = 3, .threads = 1, .ahead = 1 };
    const trace a = run(X, o, 0, 0, 13);
    o.threads = 3;
    o.ahead = 5;
    const trace b = run(X, o, 0, 0, 13);
    cr_expect_eq(a.n, 52);
    cr_expect_eq(a.epoch[12], 2, "five batches an epoch, the rest is dropped");
    cr_expect(memcmp(a.index, b.index, sizeof a.index) == 0, "the same order on 3 threads");
    cr_expect_eq(a.sum, b.sum);
    const trace c = run(X, o, 1, 2, 6); /* the run's batch 7 */
    cr_expect(memcmp(c.index, a.index + 28, 24 * sizeof *c.index) == 0);
    cr_expect(memcmp(a.index, a.index + 20, 20 * sizeof *a.index) != 0,
              "each epoch is shuffled differently");
    tp_image_set_close(X);
}

/* Seeking to the current position keeps prepared batches; feeding finds any batch. */
Test(loader, batches_are_fed_in_any_order)
{
    tp_augment a;
    make_classes("plain", 11, 0);
    cr_assert(tp_augment_recipe(&a, "small", SIZE));
    tp_image_set *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    const tp_image_loader_opts o = { .augment = &a, .batch = 4, .train = true, .seed = 3 };
    tp_loader *L = tp_image_loader_new(X, &o), *M = tp_image_loader_new(X, &o);
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor slot[2] = { TP_NONE, TP_NONE };
    static const int order[] = { 0, 1, 2, 3, 4, 5, 6, 11, 12, 3, 4, 0 };
    for (int i = 0; i < 12; i++) {
        float x[4 * PIXELS], y[4 * 2];
        tp_image_batch b;
        const int64_t epoch = order[i] / 5, step = order[i] % 5;
        tp_loader_seek(M, epoch, step);
        cr_assert(tp_image_loader_next(M, &b) && b.epoch == epoch && b.step == step, "%d", i);
        cr_assert_eq(tp_loader_feed(L, T, epoch, step, slot), 4, "%s", tp_why(T));
        cr_assert(tp_read(T, slot[0], x, sizeof x) && tp_read(T, slot[1], y, sizeof y));
        cr_expect(memcmp(x, b.x, sizeof x) == 0 && memcmp(y, b.target, sizeof y) == 0, "%d", i);
    }
    tp_loader_free(L);
    tp_loader_free(M);
    L = tp_image_loader_new(X, &(tp_image_loader_opts){ .augment = &a, .batch = 16 });
    cr_expect_eq(tp_loader_feed(L, T, 0, 0, slot), 16);
    cr_expect_eq(tp_loader_feed(L, T, 0, 1, slot), 4);
    cr_expect_eq(tp_loader_feed(L, T, 0, 2, slot), 0);
    cr_expect(tp_ok(T), "reaching the end is not an error");
    tp_loader_free(L);
    L = tp_image_loader_new(X,
                            &(tp_image_loader_opts){ .augment = &a, .batch = 64, .train = true });
    cr_expect_eq(tp_loader_feed(L, T, 0, 0, slot), 0);
    cr_expect(strstr(tp_why(T), "do not fill a batch of 64"), "%s", tp_why(T));
    tp_loader_free(L);
    tp_tape_free(T);
    tp_device_close(D);
    tp_image_set_close(X);
}

Test(loader, evaluation_ends)
{
    make_classes("plain", 11, 0);
    tp_image_set *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    const trace t = run(X, (tp_image_loader_opts){ .batch = 8 }, 0, 0, 0);
    cr_expect_eq(t.n, 20);
    for (int i = 0; i < 20; i++) cr_expect_eq(t.index[i], i);
    tp_image_set_close(X);
}

Test(loader, repeated_augmentation)
{
    make_classes("plain", 11, 0);
    tp_image_set *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    const trace t =
        run(X, (tp_image_loader_opts){ .batch = 20, .train = true, .repeats = 3 }, 0, 0, 1);
    for (int i = 0; i < 20; i++) cr_expect_eq(t.index[i], t.index[i / 3 * 3], "place %d", i);
    tp_image_set_close(X);
}

/* Repetitions are augmented differently, but equally on any number of threads and after a seek. */
Test(loader, repeats_do_not_depend_on_threads)
{
    make_classes("plain", 11, 0);
    tp_image_set *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    tp_image_loader_opts o = { .batch = 4, .train = true, .seed = 3, .threads = 1, .repeats = 3 };
    const trace a = run(X, o, 0, 0, 10);
    o.threads = 3;
    o.ahead = 5;
    const trace b = run(X, o, 0, 0, 10), c = run(X, o, 1, 2, 3);
    cr_expect(memcmp(a.index, b.index, sizeof a.index) == 0);
    cr_expect_eq(a.sum, b.sum);
    cr_expect(memcmp(c.index, a.index + 28, 12 * sizeof *c.index) == 0, "the run's batch 7");
    tp_augment aug;
    tp_image_batch batch;
    cr_assert(tp_augment_recipe(&aug, "lsla", SIZE));
    o.augment = &aug;
    tp_loader *L = tp_image_loader_new(X, &o);
    cr_assert(tp_image_loader_next(L, &batch) && batch.index[0] == batch.index[1]);
    cr_expect(memcmp(batch.x, batch.x + PIXELS, PIXELS * sizeof *batch.x) != 0);
    tp_loader_free(L);
    tp_image_set_close(X);
}

Test(loader, broken_images_are_named_once)
{
    make_classes("plain", 11, 0);
    write_text("plain/cat/03.png", "no image");
    tp_image_set *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    trace t = run(X, (tp_image_loader_opts){ .batch = 4, .train = true }, 0, 0, 15);
    cr_expect_eq(t.n, 60, "another image takes its place");
    cr_expect_eq(t.bad, 1);
    cr_expect(strstr(t.name, "plain/cat/03.png"), "%s", t.name);
    t = run(X, (tp_image_loader_opts){ .batch = 8 }, 0, 0, 0);
    cr_expect_eq(t.n, 19, "the broken image is left out");
    tp_augment a;
    tp_image_batch b;
    cr_assert(tp_augment_recipe(&a, "eval", SIZE));
    tp_loader *L = tp_image_loader_new(
        X, &(tp_image_loader_opts){ .augment = &a, .batch = 20, .strict = true });
    cr_expect_not(tp_image_loader_next(L, &b));
    cr_expect(strstr(tp_loader_why(L), "plain/cat/03.png: "), "%s", tp_loader_why(L));
    tp_loader_free(L);
    L = tp_image_loader_new(X,
                            &(tp_image_loader_opts){ .augment = &a, .batch = 64, .train = true });
    cr_expect(strstr(tp_loader_why(L), "do not fill a batch of 64"), "%s", tp_loader_why(L));
    tp_loader_free(L);
    tp_image_set_close(X);
}

/* A sampler chooses the images. In place of a broken one comes another of its batch, never one that
 * the sampler excludes. */
Test(loader, a_sampler_chooses_the_images)
{
    static const int64_t chosen[] = { 1, 3, 4, 7, 10, 12, 15, 18 };
    const tp_listed list = { chosen, 8 };
    const tp_example_sampler s = { tp_order_listed, &list, 8 };
    char broken[64];
    make_classes("plain", 11, 0);
    tp_image_set *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    write_text(strstr(tp_image_set_name(X, 7, broken, sizeof broken), "plain/"), "no image");
    for (int repeats = 1; repeats <= 2; repeats++) {
        tp_image_loader_opts o = {
            .batch = 4, .train = true, .seed = 3, .threads = 1, .repeats = repeats, .sampler = &s
        };
        const trace a = run(X, o, 0, 0, 10);
        int seen[20] = { 0 };
        cr_expect_eq(a.n, 40, "whole batches");
        cr_expect_eq(a.epoch[2], 1, "an epoch has the length of the sampler");
        for (int i = 0; i < 40; i++) seen[a.index[i]]++;
        for (int i = 0, k = 0; i < 20; i++) {
            const bool listed = k < 8 && chosen[k] == i;
            cr_expect_eq(seen[i] > 0, listed && i != 7, "%d: %d times", i, seen[i]);
            k += listed;
        }
        o.threads = 3;
        const trace b = run(X, o, 0, 0, 10), c = run(X, o, 2, 1, 4);
        cr_expect(memcmp(a.index, b.index, sizeof a.index) == 0 && a.sum == b.sum);
        cr_expect(memcmp(c.index, a.index + 20, 16 * sizeof *c.index) == 0, "the run's batch 5");
    }
    tp_image_set_close(X);
}

/* Workers fail while the caller reads batches: the reason is empty or complete. */
Test(loader, fails_behind_the_caller)
{
    make_classes("plain", 11, 0);
    write_text("plain/dog/10.png", "no image"); /* the last one */
    tp_image_set *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    tp_augment a;
    tp_image_batch b;
    cr_assert(tp_augment_recipe(&a, "eval", SIZE));
    for (int i = 0; i < 20; i++) {
        tp_loader *L = tp_image_loader_new(
            X,
            &(tp_image_loader_opts){ .augment = &a, .batch = 1, .ahead = 2 + i, .strict = true });
        char why[1024] = "";
        while (tp_image_loader_next(L, &b)) snprintf(why, sizeof why, "%s", tp_loader_why(L));
        cr_expect(strstr(tp_loader_why(L), "plain/dog/10.png: "), "%s", tp_loader_why(L));
        cr_expect(!why[0] || strcmp(why, tp_loader_why(L)) == 0, "%s", why);
        cr_expect(!tp_loader_ok(L) && tp_loader_skipped(L) == 1);
        tp_loader_free(L);
    }
    tp_image_set_close(X);
}

/* Training ends with a message instead of searching for an image forever. */
Test(loader, all_are_broken)
{
    char path[64];
    make_classes("plain", 3, 0);
    for (int k = 0; k < 6; k++) {
        snprintf(path, sizeof path, "plain/%s/%02d.png", k % 2 ? "cat" : "dog", k / 2);
        write_text(path, "no image");
    }
    tp_image_set *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    trace t = { 0 };
    tp_augment a;
    tp_image_batch b;
    cr_assert(tp_augment_recipe(&a, "eval", SIZE));
    tp_loader *L = tp_image_loader_new(
        X, &(tp_image_loader_opts){
               .augment = &a, .batch = 2, .train = true, .bad = note_bad, .env = &t });
    cr_expect_not(tp_image_loader_next(L, &b));
    cr_expect_str_eq(tp_loader_why(L), "none of the 6 images could be read");
    cr_expect_eq(t.bad, 6);
    cr_expect_not(tp_image_loader_next(L, &b), "and it stays failed");
    tp_loader_free(L);
    tp_image_set_close(X);
}

static void draw(void *env, int64_t i, tp_image *p)
{
    (void)env;
    if (tp_image_new(p, 20, 20)) memset(p->rgb, (int)(10 * i), 20 * 20 * 3);
}

Test(loader, drawn)
{
    static const char *const names[] = { "dark", "light" };
    static const int32_t label[] = { 0, 0, 1, 1 };
    tp_image_set *X = tp_image_set_from(&(tp_image_source){
        .count = 4, .classes = 2, .names = names, .label = label, .draw = draw });
    const trace t = run(X, (tp_image_loader_opts){ .batch = 2, .train = true }, 0, 0, 4);
    cr_expect_eq(t.n, 8);
    cr_expect_str_eq(tp_image_set_class(X, 1), "light");
    tp_image_set_close(X);
}
