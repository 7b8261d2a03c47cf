/* test_object_sampler.c - a sampler chooses the images with objects of an epoch; images without
 * objects, other numbers. */
#include <criterion/criterion.h>
#include <string.h>

#include <tapegrad/detection/loader.h>

enum { IMAGES = 30, BATCH = 4 };

static tp_scenes *scenes(void)
{
    tp_scenes *S = tp_scenes_new(
        &(tp_scenes_opts){ .images = IMAGES, .size = 96, .most = 5, .seed = 1, .part = TP_TRAIN });
    cr_assert(tp_scenes_ok(S), "%s", tp_scenes_why(S));
    return S;
}

static tp_loader *loader_of(const tp_scenes *S, const tp_example_sampler *by, bool train,
                            int threads)
{
    const tp_object_source s = { .coco = tp_scenes_coco(S), .scenes = S };
    return tp_object_loader_new(&s, &(tp_object_loader_opts){ .batch = BATCH,
                                                              .seed = 7,
                                                              .train = train,
                                                              .size = { 64 },
                                                              .most = 64,
                                                              .threads = threads,
                                                              .sampler = by });
}

static int64_t read(tp_loader *L, int64_t most, int64_t *image)
{
    tp_object_batch b;
    int64_t n = 0;
    cr_assert(tp_loader_ok(L), "%s", tp_loader_why(L));
    while (n < most && tp_object_loader_next(L, &b))
        for (int64_t i = 0; i < b.n; i++) image[n++] = b.image[i];
    return n;
}

/* An epoch has the images of the list, which may be more than there are. */
Test(object_sampler, chooses_the_images)
{
    static const int64_t few[] = { 2, 3, 5, 7, 11, 13, 17, 19 };
    int64_t many[2 * IMAGES];
    for (int64_t i = 0; i < 2 * IMAGES; i++) many[i] = i / 2;
    const tp_listed list[] = { { few, 8 }, { many, 2 * IMAGES } };
    tp_scenes *S = scenes();
    for (int k = 0; k < 2; k++) {
        const int64_t n = list[k].n;
        const tp_example_sampler by = { tp_order_listed, &list[k], n };
        int64_t image[3 * 2 * IMAGES], again[3 * 2 * IMAGES];
        int seen[IMAGES] = { 0 };
        tp_loader *L = loader_of(S, &by, true, 1), *M = loader_of(S, &by, true, 3);
        cr_assert_eq(tp_loader_steps(L), n / BATCH, "%s", tp_loader_why(L));
        cr_assert_eq(read(L, 3 * n, image), 3 * n);
        cr_assert_eq(read(M, 3 * n, again), 3 * n);
        cr_expect_arr_eq(image, again, (size_t)(3 * n) * sizeof *image, "threads");
        for (int64_t i = 0; i < 3 * n; i++) seen[image[i]]++;
        for (int64_t i = 0, at = 0; i < IMAGES; i++) {
            const bool listed = k == 1 || (at < n && few[at] == i);
            cr_expect_eq(seen[i], !listed ? 0 : k ? 6 : 3, "image %d", (int)i);
            at += listed;
        }
        tp_loader_seek(M, 1, 1);
        cr_assert_eq(read(M, BATCH, again), BATCH);
        cr_expect_arr_eq(again, image + n + BATCH, BATCH * sizeof *again, "after a seek");
        tp_loader_free(L), tp_loader_free(M);
    }
    const tp_example_sampler by = { tp_order_listed, &list[0], 8 };
    int64_t image[9];
    tp_loader *L = loader_of(S, &by, false, 1);
    cr_expect_eq(read(L, 9, image), 8);
    cr_expect_arr_eq(image, few, sizeof few, "one pass in the order of the list");
    tp_loader_free(L);
    tp_scenes_free(S);
}

static const char *beyond(const void *env, const tp_epoch *s, tp_random *r, int64_t *order)
{
    (void)r;
    for (int64_t i = 0; i < s->length; i++) order[i] = *(const int64_t *)env;
    return NULL;
}

Test(object_sampler, messages)
{
    static const int64_t numbers[] = { IMAGES, -1 };
    tp_scenes *S = scenes();
    int64_t image[BATCH];
    for (int k = 0; k < 2; k++) {
        const tp_example_sampler by = { beyond, &numbers[k], 0 };
        tp_loader *L = loader_of(S, &by, true, 1);
        cr_expect_eq(read(L, BATCH, image), 0);
        cr_expect(strstr(tp_loader_why(L), "its order has a number beyond the images of the"), "%s",
                  tp_loader_why(L));
        tp_loader_free(L);
    }
    const tp_example_sampler none = { 0 }, small = { beyond, &numbers[0], 3 };
    tp_loader *L = loader_of(S, &none, true, 1);
    cr_expect(strstr(tp_loader_why(L), "the sampler needs a function"), "%s", tp_loader_why(L));
    tp_loader_free(L);
    L = loader_of(S, &small, true, 1);
    cr_expect(strstr(tp_loader_why(L), "do not fill a batch of 4"), "%s", tp_loader_why(L));
    tp_loader_free(L);
    tp_scenes_free(S);
}
