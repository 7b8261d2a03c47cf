/* test_object_loader.c - drawn scenes, and batches of images with objects: which objects and images
 * count, their place in the network's input, an order that depends only on seed and epoch,
 * unreadable images. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tapegrad/coco_eval.h>
#include <tapegrad/detection/loader.h>

#include "support/folder.h"

/* ---- scenes ---- */

TestSuite(scenes, .timeout = 300);

static tp_scenes *scenes(int64_t images, tp_part part, uint64_t seed)
{
    tp_scenes *S = tp_scenes_new(
        &(tp_scenes_opts){ .images = images, .size = 96, .most = 5, .seed = seed, .part = part });
    cr_assert(tp_scenes_ok(S), "%s", tp_scenes_why(S));
    return S;
}

/* Scene i depends on seed and part, not on the number of scenes. */
Test(scenes, are_determined)
{
    tp_scenes *a = scenes(8, TP_TRAIN, 3), *b = scenes(4, TP_TRAIN, 3), *c = scenes(4, TP_VALID, 3),
              *d = scenes(4, TP_TRAIN, 4);
    tp_image p = { 0 }, q = { 0 };
    int other[2] = { 0, 0 };
    for (int i = 0; i < 4; i++) {
        cr_assert(tp_scenes_draw(a, i, &p) && tp_scenes_draw(b, i, &q));
        const size_t bytes = (size_t)(3 * p.width * p.height);
        cr_expect(p.width == q.width && p.height == q.height && !memcmp(p.rgb, q.rgb, bytes));
        cr_assert(tp_scenes_draw(c, i, &q));
        other[0] += q.width != p.width || q.height != p.height || memcmp(p.rgb, q.rgb, bytes) != 0;
        cr_assert(tp_scenes_draw(d, i, &q));
        other[1] += q.width != p.width || q.height != p.height || memcmp(p.rgb, q.rgb, bytes) != 0;
    }
    cr_expect(other[0] == 4 && other[1] == 4);
    tp_image_free(&p), tp_image_free(&q);
    tp_scenes_free(a), tp_scenes_free(b), tp_scenes_free(c), tp_scenes_free(d);
}

/* Boxes are inside the image and around the mask, whose area is the annotation's up to its
 * border. */
Test(scenes, annotations_fit_the_shapes)
{
    tp_scenes *S = scenes(60, TP_TRAIN, 1);
    const tp_coco *X = tp_scenes_coco(S);
    int64_t of[5] = { 0 }, forms[3] = { 0 };
    cr_assert_eq(tp_coco_categories(X), 5);
    for (int64_t i = 0; i < tp_coco_images(X); i++) {
        const tp_coco_image *image = tp_coco_image_at(X, i);
        cr_expect(image->objects >= 1 && image->objects <= 5);
        forms[image->height == image->width ? 0 : image->height < image->width ? 1 : 2]++;
        for (int64_t k = 0; k < image->objects; k++) {
            const tp_coco_object *o = tp_coco_object_at(X, image->first + k);
            char why[200];
            double box[4];
            tp_rle r;
            cr_assert(tp_coco_mask(X, o, &r, why, sizeof why), "%s", why);
            tp_rle_box(&r, box);
            const double around = 4 * sqrt(o->area) + 8;
            cr_expect_float_eq((double)tp_rle_area(&r), o->area, around);
            for (int c = 0; c < 4; c++)
                cr_expect_float_eq(box[c], o->box[c], 5, "corners are acute");
            cr_expect(o->box[0] >= 0 && o->box[1] >= 0 &&
                      o->box[0] + o->box[2] <= (double)image->width &&
                      o->box[1] + o->box[3] <= (double)image->height);
            of[o->category]++;
            tp_rle_free(&r);
        }
    }
    for (int c = 0; c < 5; c++) cr_expect(of[c] > 10, "%s", tp_coco_category_name(X, c));
    for (int f = 0; f < 3; f++) cr_expect(forms[f] > 8);
    tp_scenes_free(S);
}

/* Detections that equal the objects have an average precision of 1. */
Test(scenes, evaluator_takes_them)
{
    tp_scenes *S = scenes(20, TP_VALID, 1);
    const tp_coco *X = tp_scenes_coco(S);
    tp_detections *R = tp_detections_new(X);
    for (int64_t i = 0; i < tp_coco_objects(X); i++) {
        const tp_coco_object *o = tp_coco_object_at(X, i);
        char why[200];
        tp_detection d = { .image = o->image, .category = o->category, .score = 0.5 };
        memcpy(d.box, o->box, sizeof d.box);
        cr_assert(tp_coco_mask(X, o, &d.mask, why, sizeof why));
        tp_detections_add(R, &d);
        tp_rle_free(&d.mask);
    }
    for (int kind = 0; kind < 2; kind++) {
        tp_coco_eval *E = tp_coco_eval_new(R, &(tp_coco_eval_opts){ .kind = (tp_coco_kind)kind });
        cr_assert(tp_coco_eval_ok(E));
        cr_expect_float_eq(tp_coco_eval_figure(E, 0), 1, 1e-9);
        tp_coco_eval_free(E);
    }
    tp_detections_close(R);
    tp_scenes_free(S);
}

Test(scenes, refuses_impossible_ones)
{
    static const tp_scenes_opts bad[] = {
        { .size = 31 }, { .size = 5000 },          { .images = -1 },
        { .most = 65 }, { .least = 4, .most = 3 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tp_scenes *S = tp_scenes_new(&bad[i]);
        cr_expect(!tp_scenes_ok(S) && strstr(tp_scenes_why(S), "cannot be drawn"), "%zu", i);
        tp_scenes_free(S);
    }
    tp_scenes_free(NULL);
}

/* The sides in both profiles; in an image of 3 x 62 pixels the shorter one is between two
 * pixels. */
Test(object_loader, sides)
{
    static const struct {
        int64_t from[2], to[2][2];
    } cases[] = {
        { { 480, 640 }, { { 800, 1067 }, { 800, 1067 } } },
        { { 640, 427 }, { { 1199, 800 }, { 1199, 800 } } },
        { { 300, 900 }, { { 444, 1333 }, { 444, 1333 } } },
        { { 3, 62 }, { { 64, 1333 }, { 65, 1333 } } },
        { { 1, 9000 }, { { 1, 1333 }, { 1, 1333 } } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int p = TP_DETECTRON2; p <= TP_MMDETECTION; p++) {
            int64_t to[2];
            tp_shortest_side((tp_detection_profile)p, cases[i].from[0], cases[i].from[1], 800, 1333,
                             to);
            cr_expect(to[0] == cases[i].to[p][0] && to[1] == cases[i].to[p][1],
                      "%lld x %lld, profile %d: %lld x %lld", (long long)cases[i].from[0],
                      (long long)cases[i].from[1], p, (long long)to[0], (long long)to[1]);
        }
}

/* The profiles' views are those of the two filters, mirrored. */
Test(object_loader, views_of_both_profiles)
{
    tp_image in = { 0 }, seen = { 0 }, want = { 0 };
    cr_assert(tp_image_new(&in, 40, 30));
    for (int i = 0; i < 40 * 30 * 3; i++) in.rgb[i] = (uint8_t)(i * 7919 >> 5);
    for (int p = TP_DETECTRON2; p <= TP_MMDETECTION; p++) {
        const tp_object_view v = {
            .from = { 30, 40 }, .to = { 13, 17 }, .mirror = true, .profile = (tp_detection_profile)p
        };
        cr_assert(tp_view_image(&v, &in, &seen), "%s", seen.why);
        cr_assert(p == TP_DETECTRON2 ? tp_image_resize(&want, &in, NULL, 17, 13, TP_BILINEAR)
                                     : tp_image_resize_linear(&want, &in, 17, 13));
        tp_image_flip(&want);
        cr_expect_eq(memcmp(seen.rgb, want.rgb, 13 * 17 * 3), 0, "profile %d", p);
    }
    tp_image_free(&in);
    tp_image_free(&seen);
    tp_image_free(&want);
}

/* ---- batches ---- */

TestSuite(object_loader, .timeout = 300);

static tp_object_source source_of(const tp_scenes *S)
{
    return (tp_object_source){ .coco = tp_scenes_coco(S), .scenes = S };
}

static tp_loader *loader_of(const tp_scenes *S, tp_object_loader_opts o)
{
    const tp_object_source s = source_of(S);
    if (!o.size[0]) o.size[0] = 96;
    if (!o.most) o.most = 96;
    tp_loader *L = tp_object_loader_new(&s, &o);
    cr_assert(tp_loader_ok(L), "%s", tp_loader_why(L));
    return L;
}

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) h = tp_hash(h, ((const uint8_t *)bytes)[i]);
    return h;
}

/* A hash of everything in a batch. */
static uint64_t hash_of(const tp_object_batch *b)
{
    uint64_t h =
        hash_bytes(TP_HASH, b->x, (size_t)(b->n * b->height * b->width * 3) * sizeof *b->x);
    for (int64_t i = 0; i < b->n; i++) {
        h = hash_bytes(tp_hash(h, (uint64_t)b->image[i]), b->size[i], sizeof *b->size);
        const tp_objects *o = &b->objects[i];
        h = hash_bytes(h, o->box, (size_t)o->n * sizeof *o->box);
        h = hash_bytes(h, o->category, (size_t)o->n * sizeof *o->category);
        if (o->part)
            h = hash_bytes(h, o->xy, (size_t)(2 * o->point[o->part[o->n]]) * sizeof(double));
    }
    return h;
}

Test(object_loader, order_follows_from_seed_and_epoch)
{
    enum { STEPS = 24 };
    tp_scenes *S = scenes(30, TP_TRAIN, 1);
    uint64_t hash[STEPS];
    const tp_object_loader_opts o = {
        .batch = 4, .seed = 7, .train = true, .size = { 64, 80, 96 }, .sizes = 3, .masks = true
    };
    tp_object_loader_opts many = o, other = o;
    many.threads = 4, many.ahead = 5;
    other.seed = 8;
    tp_loader *a = loader_of(S, o), *b = loader_of(S, many), *c = loader_of(S, other);
    tp_object_batch x;
    cr_assert_eq(tp_loader_steps(a), 7);
    for (int k = 0; k < STEPS; k++) {
        cr_assert(tp_object_loader_next(a, &x), "%s", tp_loader_why(a));
        cr_expect(x.epoch == k / 7 && x.step == k % 7);
        hash[k] = hash_of(&x);
        cr_assert(tp_object_loader_next(b, &x));
        cr_expect_eq(hash_of(&x), hash[k], "batch %d", k);
        cr_assert(tp_object_loader_next(c, &x));
        cr_expect_neq(hash_of(&x), hash[k], "batch %d", k);
    }
    static const int jumps[] = { 9, 10, 3, 23, 0, 7, 7 };
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        tp_loader_seek(b, jumps[i] / 7, jumps[i] % 7);
        cr_assert(tp_object_loader_next(b, &x));
        cr_expect_eq(hash_of(&x), hash[jumps[i]], "batch %d", jumps[i]);
    }
    tp_loader_free(a), tp_loader_free(b), tp_loader_free(c);
    tp_scenes_free(S);
}

/* A batch is all wide or not, except at the end of an epoch; no image appears twice. */
Test(object_loader, batches_by_shape)
{
    tp_scenes *S = scenes(50, TP_TRAIN, 2);
    const tp_coco *X = tp_scenes_coco(S);
    tp_loader *L = loader_of(S, (tp_object_loader_opts){ .batch = 4, .train = true });
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[50] = { false };
        int mixed = 0;
        for (int step = 0; step < 12; step++) {
            tp_object_batch b;
            int wide = 0;
            cr_assert(tp_object_loader_next(L, &b));
            for (int64_t i = 0; i < b.n; i++) {
                const tp_coco_image *p = tp_coco_image_at(X, b.image[i]);
                wide += p->width > p->height;
                cr_expect(!seen[b.image[i]]);
                seen[b.image[i]] = true;
            }
            mixed += wide != 0 && wide != 4;
            cr_expect(mixed == 0 || step == 11);
            cr_expect(b.height % 32 == 0 && b.width % 32 == 0);
        }
        cr_expect(mixed <= 1);
    }
    int64_t largest[2];
    tp_object_loader_largest(L, largest);
    cr_expect(largest[0] == 96 && largest[1] == 96);
    tp_loader_free(L);
    tp_scenes_free(S);
}

/* Without training: all images in order, the last batch smaller, no mirroring, no objects. */
Test(object_loader, evaluation_sees_every_image_once)
{
    tp_scenes *S = scenes(10, TP_VALID, 1);
    tp_loader *L = loader_of(S, (tp_object_loader_opts){ .batch = 4 });
    tp_object_batch b;
    tp_image p = { 0 };
    int64_t at = 0;
    while (tp_object_loader_next(L, &b)) {
        for (int64_t i = 0; i < b.n; i++, at++) {
            cr_expect_eq(b.image[i], at);
            cr_expect_eq(b.objects[i].n, 0);
            cr_assert(tp_scenes_draw(S, at, &p));
            cr_expect(b.size[i][0] == p.height && b.size[i][1] == p.width);
            cr_expect(b.original[i][0] == p.height && b.original[i][1] == p.width);
            const float *x = b.x + i * b.height * b.width * 3;
            const float want = ((float)p.rgb[3 * 5 + 1] - 116.28f) / 57.12f;
            cr_expect_eq(x[3 * 5 + 1], want);
            for (int64_t k = p.width * 3; k < b.width * 3; k++) cr_expect_eq(x[k], 0);
        }
    }
    cr_expect_eq(at, 10);
    cr_expect(tp_loader_ok(L));
    cr_expect(!tp_object_loader_next(L, &b));
    tp_image_free(&p);
    tp_loader_free(L);
    tp_scenes_free(S);
}

/* ---- processes that share batches ---- */

enum { MOST_RANKS = 7 };

/* A hash of row i of a batch, with its padding. */
static uint64_t hash_row(const tp_object_batch *b, int64_t i)
{
    const int64_t cells = b->height * b->width * 3;
    tp_object_batch row = { .n = 1, .height = b->height, .width = b->width };
    row.x = b->x + i * cells;
    row.size = b->size + i;
    row.image = b->image + i;
    row.objects = b->objects + i;
    return tp_hash(tp_hash(hash_of(&row), (uint64_t)b->height), (uint64_t)b->width);
}

/* Compares batch `step` of the second epoch, or of the only pass, to that of one process. */
static void compare_batch(tp_loader *one, tp_loader *const part[], int ranks, int64_t epoch,
                          int64_t step)
{
    tp_object_batch b, p;
    int64_t at = 0;
    tp_loader_seek(one, epoch, step);
    cr_assert(tp_object_loader_next(one, &b), "%s", tp_loader_why(one));
    for (int r = 0; r < ranks; r++) {
        tp_loader_seek(part[r], epoch, step);
        if (!tp_object_loader_next(part[r], &p)) continue; /* no row of it */
        cr_assert(p.epoch == epoch && p.step == step && at + p.n <= b.n);
        cr_expect(p.height == b.height && p.width == b.width, "rank %d of %d", r, ranks);
        for (int64_t i = 0; i < p.n; i++, at++)
            cr_expect_eq(hash_row(&p, i), hash_row(&b, at), "rank %d of %d: row %lld of batch %lld",
                         r, ranks, (long long)at, (long long)step);
    }
    cr_expect_eq(at, b.n, "%d ranks, batch %lld", ranks, (long long)step);
}

Test(object_loader, shares_are_rows_of_one_batch)
{
    tp_scenes *S = scenes(32, TP_TRAIN, 1);
    for (int train = 0; train < 2; train++)
        for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
            tp_object_loader_opts o = { .seed = 7,
                                        .train = train,
                                        .size = { 64, 80, 96 },
                                        .sizes = 3,
                                        .masks = true,
                                        .threads = 2 };
            tp_loader *part[MOST_RANKS];
            o.batch = 2 * ranks;
            tp_loader *one = loader_of(S, o);
            const int64_t steps = tp_loader_steps(one);
            o.batch = 2;
            for (int r = 0; r < ranks; r++) {
                o.share = (tp_share){ r, ranks };
                part[r] = loader_of(S, o);
                cr_expect_eq(tp_loader_steps(part[r]), steps);
            }
            for (int64_t step = 0; step < steps; step++)
                compare_batch(one, part, ranks, train, step);
            for (int r = 0; r < ranks; r++) tp_loader_free(part[r]);
            tp_loader_free(one);
        }
    tp_scenes_free(S);
}

/* Other means, deviations, side multiples. */
Test(object_loader, scale_and_multiple)
{
    tp_scenes *S = scenes(4, TP_VALID, 1);
    tp_object_loader_opts o = { .batch = 2, .multiple = 160 };
    o.scale = (tp_pixel_scale){ { 1.0f, 2.0f, 3.0f }, { 4.0f, 8.0f, 16.0f } };
    tp_loader *L = loader_of(S, o);
    tp_object_batch b;
    tp_image p = { 0 };
    cr_assert(tp_object_loader_next(L, &b));
    cr_assert(tp_scenes_draw(S, 0, &p));
    cr_expect(b.height == 160 && b.width == 160);
    for (int c = 0; c < 3; c++)
        cr_expect_eq(b.x[3 * 5 + c], ((float)p.rgb[3 * 5 + c] - o.scale.mean[c]) / o.scale.std[c]);
    tp_image_free(&p);
    tp_loader_free(L);
    const tp_object_source source = source_of(S);
    o.multiple = 48;
    L = tp_object_loader_new(&source, &o);
    cr_expect(!tp_loader_ok(L) && strstr(tp_loader_why(L), "multiples of 32"));
    tp_loader_free(L);
    o.multiple = 0;
    o.scale.std[1] = 0.0f;
    L = tp_object_loader_new(&source, &o);
    cr_expect(!tp_loader_ok(L) && strstr(tp_loader_why(L), "std must be positive"));
    tp_loader_free(L);
    tp_scenes_free(S);
}

/* ---- which objects count ---- */

#define IMAGE(id, w, h)                                                                            \
    "{\"id\":" #id ",\"file_name\":\"" #id ".png\",\"width\":" #w ",\"height\":" #h "}"
#define OBJECT(id, image, box, more)                                                               \
    "{\"id\":" #id ",\"image_id\":" #image ",\"category_id\":1,\"bbox\":" box "," more "}"
#define MASK(area, crowd, mask) "\"area\":" #area ",\"iscrowd\":" #crowd ",\"segmentation\":" mask
#define SQUARE                  MASK(50, 0, "[[1,1,9,1,9,9,1,9]]")

/* clang-format off */
static const char *const mixed =
    "{\"categories\":[{\"id\":1,\"name\":\"x\"}],\"images\":["
    IMAGE(1, 100, 50) "," IMAGE(2, 40, 80) "," IMAGE(3, 64, 64) "," IMAGE(4, 20, 64)
    "],\"annotations\":["
    OBJECT(1, 1, "[10,10,40,20]", SQUARE) ","
    OBJECT(2, 1, "[0,0,9,9]", MASK(9, 1, "{\"size\":[50,100],\"counts\":[0,5000]}")) ","
    OBJECT(3, 1, "[90,40,40,20]", MASK(9, 0, "[[1,1,2],[1,1,2,2],[0,0,9,0,9,9,1]]")) ","
    OBJECT(4, 1, "[80,40,40,20]", MASK(0, 0, "[[1,1,2],[0,0,9,0,9,9]]")) ","
    OBJECT(5, 1, "[10,10,0.5,20]", SQUARE) ","
    OBJECT(6, 1, "[100,10,5,20]", SQUARE) ","
    OBJECT(7, 2, "[0,0,9,9]", MASK(9, 1, "{\"size\":[80,40],\"counts\":[0,3200]}")) ","
    OBJECT(8, 4, "[1,1,9,9]", SQUARE)
    "]}";
/* clang-format on */

static tp_loader *mixed_loader(const tp_coco *X, tp_object_loader_opts o)
{
    const tp_object_source s = { .coco = X, .folder = folder };
    o.train = true;
    o.batch = 1;
    o.size[0] = 100;
    return tp_object_loader_new(&s, &o);
}

static void write_images(void)
{
    tp_image p = { 0 };
    cr_assert(tp_image_new(&p, 100, 50));
    memset(p.rgb, 128, 15000);
    cr_assert(tp_image_write(&p, in_folder("1.png")), "%s", p.why);
    cr_assert(tp_image_new(&p, 20, 64));
    memset(p.rgb, 0, 3840);
    cr_assert(tp_image_write(&p, in_folder("4.png")));
    tp_image_free(&p);
}

Test(object_loader, objects_that_count, .init = make_folder, .fini = remove_folder)
{
    tp_coco *X = tp_coco_from(mixed, strlen(mixed), "mixed");
    tp_object_batch b = { 0 };
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    write_images();
    /* images 2 (a crowd) and 3 (empty) are omitted; object 3 has no usable polygon, 6 is outside */
    tp_loader *L = mixed_loader(X, (tp_object_loader_opts){ .masks = true, .no_mirror = true });
    cr_assert_eq(tp_object_loader_images(L), 2, "%s", tp_loader_why(L));
    do cr_assert(tp_object_loader_next(L, &b), "%s", tp_loader_why(L));
    while (b.image[0] != 0);
    cr_expect(b.size[0][0] == 100 && b.size[0][1] == 200 && b.height == 128 && b.width == 224);
    const tp_objects *o = &b.objects[0];
    cr_assert_eq(o->n, 3);
    cr_expect(o->box[0].x1 == 20 && o->box[0].y1 == 20 && o->box[0].x2 == 100 &&
              o->box[0].y2 == 60);
    cr_expect(o->box[1].x1 == 160 && o->box[1].x2 == 200 && o->box[1].y2 == 100); /* clipped */
    cr_expect(o->box[2].x2 == 21);
    cr_expect(o->part[1] == 1 && o->part[2] == 2 && o->part[3] == 3);
    cr_expect(o->point[1] == 4 && o->point[2] == 7 && o->xy[2] == 18);
    tp_loader_free(L);
    /* mirrored when the coin says so */
    L = mixed_loader(X, (tp_object_loader_opts){ .masks = true });
    for (int k = 0; k < 40; k++) {
        cr_assert(tp_object_loader_next(L, &b));
        if (b.image[0] == 0 && b.objects[0].box[0].x1 != 20) break;
    }
    o = &b.objects[0];
    cr_expect(o->box[0].x1 == 100 && o->box[0].x2 == 180 && o->xy[0] == 198 && o->xy[2] == 182);
    tp_loader_free(L);
    /* mmdetection: no sides below 1, no areas of 0, no images of 20 pixels; no outlines without
     * masks */
    L = mixed_loader(X, (tp_object_loader_opts){ .profile = TP_MMDETECTION, .no_mirror = true });
    cr_assert_eq(tp_object_loader_images(L), 1);
    cr_assert(tp_object_loader_next(L, &b));
    cr_expect_eq(b.objects[0].n, 1);
    cr_expect_null(b.objects[0].part);
    tp_loader_free(L);
    tp_coco_close(X);
}

/* Everything omitted is counted by its reason. */
Test(object_loader, left_out_objects_are_counted)
{
    static const struct {
        tp_object_loader_opts o;
        int64_t count[TP_COCO_REASONS];
    } cases[] = {
        { { .masks = true },
          { [TP_COCO_CROWD] = 2,
            [TP_COCO_BAD_POLYGONS] = 1,
            [TP_COCO_CUT_POLYGONS] = 1,
            [TP_COCO_OUTSIDE] = 1 } },
        { { .profile = TP_MMDETECTION },
          { [TP_COCO_CROWD] = 2,
            [TP_COCO_TINY] = 2,
            [TP_COCO_BAD_POLYGONS] = 1,
            [TP_COCO_OUTSIDE] = 1,
            [TP_COCO_SMALL_IMAGE] = 1 } },
    };
    tp_coco *X = tp_coco_from(mixed, strlen(mixed), "mixed");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_loader *L = mixed_loader(X, cases[i].o);
        cr_assert(tp_loader_ok(L), "%s", tp_loader_why(L));
        for (int r = 0; r < TP_COCO_REASONS; r++)
            cr_expect_eq(tp_object_loader_noted(L)->count[r], cases[i].count[r],
                         "case %zu, reason %d: %lld", i, r,
                         (long long)tp_object_loader_noted(L)->count[r]);
        cr_expect_eq(tp_object_loader_noted(L)->first[TP_COCO_OUTSIDE], 6);
        tp_loader_free(L);
    }
    tp_coco_close(X);
}

/* Objects with masks as runs, one of them compressed; one without pixels; boxes of zero and
 * negative size. */
/* clang-format off */
static const char *const with_runs =
    "{\"categories\":[{\"id\":1,\"name\":\"x\"}],"
    "\"images\":[" IMAGE(1, 100, 50) "],\"annotations\":["
    OBJECT(1, 1, "[2,0,2,50]", "\"segmentation\":{\"size\":[50,100],\"counts\":[100,100,4800]}") ","
    OBJECT(2, 1, "[10,10,40,20]", SQUARE) ","
    OBJECT(3, 1, "[2,0,2,50]", "\"segmentation\":{\"size\":[50,100],\"counts\":\"T3T3Pf4\"}") ","
    OBJECT(4, 1, "[2,0,2,50]", "\"segmentation\":{\"size\":[50,100],\"counts\":[5000]}") ","
    OBJECT(5, 1, "[2,0,-2,50]", SQUARE) ","
    OBJECT(6, 1, "[2,0,2,0]", SQUARE) ","
    OBJECT(7, 1, "[2,0,2,5]", "\"segmentation\":[]")
    "]}";
/* clang-format on */

Test(object_loader, runs_are_masks, .init = make_folder, .fini = remove_folder)
{
    tp_coco *X = tp_coco_from(with_runs, strlen(with_runs), "runs");
    tp_object_batch b;
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    write_images();
    for (int mirrored = 0; mirrored < 2; mirrored++) {
        tp_loader *L =
            mixed_loader(X, (tp_object_loader_opts){ .masks = true, .no_mirror = !mirrored });
        const tp_coco_tally *t = tp_object_loader_noted(L);
        cr_assert(tp_loader_ok(L), "%s", tp_loader_why(L));
        cr_expect(t->count[TP_COCO_EMPTY_RUNS] == 1 && t->count[TP_COCO_EMPTY_BOX] == 2 &&
                  t->count[TP_COCO_NO_OUTLINE] == 1);
        do cr_assert(tp_object_loader_next(L, &b), "%s", tp_loader_why(L));
        while (mirrored && b.objects[0].box[0].x1 < 100);
        const tp_objects *o = &b.objects[0];
        cr_assert(o->n == 3 && o->mask && o->part[1] == 0 && o->part[2] == 1 && o->part[3] == 1);
        cr_expect_eq(o->mask[1].runs, 0);
        for (int i = 0; i < 3; i += 2) {
            double box[4];
            tp_rle_box(&o->mask[i], box);
            cr_expect(o->mask[i].height == 100 && o->mask[i].width == 200);
            cr_expect(box[0] == (mirrored ? 192 : 4) && box[1] == 0 && box[2] == 4 && box[3] == 100,
                      "%g %g %g %g", box[0], box[1], box[2], box[3]);
            cr_expect_eq(tp_rle_area(&o->mask[i]), 400);
        }
        tp_loader_free(L);
    }
    tp_coco_close(X);
}

/* ---- bad images ---- */

static int reported;
static char report_text[600];
static void note(void *env, const char *name, const char *why)
{
    (void)env;
    reported++;
    snprintf(report_text, sizeof report_text, "%s: %s", name, why);
}

Test(object_loader, images_that_cannot_be_read, .init = make_folder, .fini = remove_folder)
{
    tp_coco *X = tp_coco_from(mixed, strlen(mixed), "mixed");
    tp_object_batch b;
    write_images();
    FILE *f = fopen(in_folder("1.png"), "w"); /* no longer an image */
    fputs("text", f);
    fclose(f);
    tp_loader *L = mixed_loader(X, (tp_object_loader_opts){ .bad = note });
    for (int k = 0; k < 6; k++) {
        cr_assert(tp_object_loader_next(L, &b), "%s", tp_loader_why(L));
        cr_expect_eq(b.image[0], 3);
    }
    cr_expect_eq(reported, 1);
    cr_expect(strstr(report_text, "1.png"), "%s", report_text);
    tp_loader_free(L);
    L = mixed_loader(X, (tp_object_loader_opts){ .no_mirror = true });
    char why[1024] = ""; /* a worker may fail while the caller still reads batches */
    while (tp_object_loader_next(L, &b)) snprintf(why, sizeof why, "%s", tp_loader_why(L));
    cr_expect(strstr(tp_loader_why(L), "1.png"), "%s", tp_loader_why(L));
    cr_expect(!why[0] || strcmp(why, tp_loader_why(L)) == 0, "%s", why);
    cr_expect(!tp_loader_ok(L) && !tp_object_loader_next(L, &b));
    tp_loader_free(L);
    /* a size other than the annotations' */
    tp_image p = { 0 };
    cr_assert(tp_image_new(&p, 50, 100));
    memset(p.rgb, 0, 15000);
    cr_assert(tp_image_write(&p, in_folder("1.png")));
    cr_expect(!tp_object_source_read(&(tp_object_source){ .coco = X, .folder = folder }, 0, &p));
    cr_expect(strstr(p.why, "has 50 x 100 pixels, the annotations say 100 x 50"), "%s", p.why);
    /* a truncated file */
    write_images();
    cr_assert_eq(truncate(in_folder("1.png"), 60), 0);
    cr_expect(!tp_object_source_read(&(tp_object_source){ .coco = X, .folder = folder }, 0, &p));
    cr_expect(strstr(p.why, "cut off"), "%s", p.why);
    write_images();
    const tp_object_source small = { .coco = X, .folder = folder, .max_pixels = 4999 };
    cr_expect(!tp_object_source_read(&small, 0, &p));
    cr_expect(strstr(p.why, "1.png: PNG: 100 x 50 pixels are more than the limit of 4999"), "%s",
              p.why);
    tp_image_free(&p);
    tp_coco_close(X);
}

/* Evaluation omits them from their batches; known ones are neither read nor reported. */
Test(object_loader, unreadable_images_of_an_evaluation, .init = make_folder, .fini = remove_folder)
{
    static const bool none_missing[4] = { false }, two[4] = { false, true, true, false };
    tp_coco *X = tp_coco_from(mixed, strlen(mixed), "mixed");
    const tp_object_source s = { .coco = X, .folder = folder };
    bool missing[4];
    char why[600];
    write_images(); /* 2 and 3 are missing */
    cr_expect_eq(tp_object_source_look(&s, false, missing, why, sizeof why), 2);
    cr_expect(memcmp(missing, two, sizeof two) == 0 && strstr(why, "2.png: No such file"), "%s",
              why);
    cr_expect_eq(tp_object_source_look(&s, true, missing, why, sizeof why), 1, "3 has no objects");
    for (int known = 0; known < 2; known++)
        for (int64_t batch = 1; batch < 6; batch++) {
            tp_object_batch b;
            int64_t seen[4], n = 0;
            reported = 0;
            tp_loader *L = tp_object_loader_new(
                &s, &(tp_object_loader_opts){ .batch = batch,
                                              .size = { 32 },
                                              .bad = note,
                                              .missing = known ? two : none_missing });
            while (tp_object_loader_next(L, &b)) {
                cr_assert(b.n > 0 && n + b.n <= 2);
                for (int64_t i = 0; i < b.n; i++) seen[n++] = b.image[i];
            }
            cr_expect(tp_loader_ok(L), "%s", tp_loader_why(L));
            cr_expect(n == 2 && seen[0] == 0 && seen[1] == 3);
            cr_expect_eq(reported, known ? 0 : 2);
            for (int i = 0; i < 4; i++) cr_expect_eq(tp_object_loader_unread(L, i), two[i]);
            tp_loader_free(L);
        }
    tp_loader *L = tp_object_loader_new(&s, &(tp_object_loader_opts){ .batch = 1, .size = { 32 } });
    for (tp_object_batch b; tp_object_loader_next(L, &b);) {
    }
    cr_expect(strstr(tp_loader_why(L), "2.png"), "%s", tp_loader_why(L));
    tp_loader_free(L);
    tp_coco_close(X);
}

/* Processes leave out what is in their own rows; the names are told where they are read. */
Test(object_loader, unreadable_images_of_a_share, .init = make_folder, .fini = remove_folder)
{
    static const int64_t want[2] = { 0, 3 };
    tp_coco *X = tp_coco_from(mixed, strlen(mixed), "mixed");
    const tp_object_source s = { .coco = X, .folder = folder };
    write_images(); /* 2 and 3 are missing */
    for (int r = 0; r < 2; r++) {
        tp_object_loader_opts o = { .batch = 1, .size = { 32 }, .bad = note, .share = { r, 2 } };
        tp_object_batch b;
        reported = 0;
        tp_loader *L = tp_object_loader_new(&s, &o);
        cr_assert(tp_object_loader_next(L, &b), "%s", tp_loader_why(L));
        cr_expect(b.n == 1 && b.image[0] == want[r] && b.step == r);
        cr_expect(!tp_object_loader_next(L, &b) && tp_loader_ok(L));
        cr_expect(reported == 1 && tp_loader_skipped(L) == 1);
        tp_loader_free(L);
    }
    tp_coco_close(X);
}

/* Training continues while any image can be read, however many before it cannot. */
Test(object_loader, one_image_of_many, .init = make_folder, .fini = remove_folder)
{
    enum { IMAGES = 40 };
    static char text[IMAGES * 200];
    char *at = text;
    tp_object_batch b;
    at += sprintf(at, "{\"categories\":[{\"id\":1}],\"images\":[");
    for (int i = 1; i <= IMAGES; i++)
        at += sprintf(at, "%s{\"id\":%d,\"file_name\":\"%s%d.png\"}", i > 1 ? "," : "", i,
                      i == 4 ? in_folder("") : "", i); /* an absolute name */
    at += sprintf(at, "],\"annotations\":[");
    for (int i = 1; i <= IMAGES; i++)
        at += sprintf(at, "%s{\"id\":%d,\"image_id\":%d,\"category_id\":1,\"bbox\":[1,1,9,%d]}",
                      i > 1 ? "," : "", i, i, i == 4 ? 9 : 5);
    sprintf(at, "]}");
    tp_coco *X = tp_coco_from(text, strlen(text), "text");
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    write_images();
    cr_assert_eq(remove(in_folder("1.png")), 0);
    reported = 0;
    tp_loader *L = tp_object_loader_new(
        &(tp_object_source){ .coco = X, .folder = "/nowhere" },
        &(tp_object_loader_opts){ .batch = 3, .train = true, .size = { 32 }, .bad = note });
    for (int k = 0; k < 40; k++) {
        cr_assert(tp_object_loader_next(L, &b), "%s", tp_loader_why(L));
        cr_expect(b.n == 3 && b.image[0] == 3 && b.image[2] == 3);
    }
    cr_expect_eq(reported, IMAGES - 1);
    tp_loader_free(L);
    cr_assert_eq(remove(in_folder("4.png")), 0);
    L = tp_object_loader_new(
        &(tp_object_source){ .coco = X, .folder = "/nowhere" },
        &(tp_object_loader_opts){ .batch = 3, .train = true, .size = { 32 }, .bad = note });
    cr_expect_not(tp_object_loader_next(L, &b));
    cr_expect(strstr(tp_loader_why(L), "none of the 40 images could be read"), "%s",
              tp_loader_why(L));
    tp_loader_free(L);
    tp_coco_close(X);
}

/* An image that cannot be opened for lack of file descriptors is not replaced. */
Test(object_loader, too_many_open_files, .init = make_folder, .fini = remove_folder)
{
    struct rlimit limit;
    tp_coco *X = tp_coco_from(mixed, strlen(mixed), "mixed");
    tp_object_batch b;
    write_images();
    cr_assert(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const struct rlimit none = { .rlim_cur = 0, .rlim_max = limit.rlim_max };
    cr_assert(setrlimit(RLIMIT_NOFILE, &none) == 0);
    reported = 0;
    tp_loader *L = mixed_loader(X, (tp_object_loader_opts){ .bad = note });
    const bool got = tp_object_loader_next(L, &b);
    cr_assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    cr_expect(!got && strstr(tp_loader_why(L), "close other files (ulimit -n)"), "%s",
              tp_loader_why(L));
    cr_expect_eq(reported, 0, "%s", report_text);
    tp_loader_free(L);
    tp_coco_close(X);
}

/* The annotations omit the size of the image, whose short side would round to 0. */
Test(object_loader, thin_image_of_unknown_size, .init = make_folder, .fini = remove_folder)
{
    static const char *const text =
        "{\"categories\":[{\"id\":1,\"name\":\"x\"}],\"annotations\":[],\"images\":[{\"id\":1,"
        "\"file_name\":\"1.png\",\"width\":0,\"height\":0}]}";
    tp_coco *X = tp_coco_from(text, strlen(text), "thin");
    tp_object_batch b;
    tp_image p = { 0 };
    int64_t largest[2];
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    cr_assert(tp_image_new(&p, 1000, 1));
    memset(p.rgb, 9, 3000);
    cr_assert(tp_image_write(&p, in_folder("1.png")), "%s", p.why);
    const tp_object_source s = { .coco = X, .folder = folder };
    tp_loader *L = tp_object_loader_new(
        &s, &(tp_object_loader_opts){ .batch = 1, .size = { 64 }, .most = 100 });
    cr_assert(tp_object_loader_next(L, &b), "%s", tp_loader_why(L));
    cr_expect(b.size[0][0] == 1 && b.size[0][1] == 100);
    cr_expect(b.original[0][0] == 1 && b.original[0][1] == 1000);
    tp_object_loader_largest(L, largest);
    cr_expect(b.height <= largest[0] && b.width <= largest[1]);
    tp_loader_free(L);
    tp_image_free(&p);
    tp_coco_close(X);
}

Test(object_loader, refuses_what_it_cannot_do)
{
    tp_scenes *S = scenes(3, TP_TRAIN, 1);
    const tp_object_source s = source_of(S);
    static const struct {
        tp_object_loader_opts o;
        const char *why;
    } bad[] = {
        { { .batch = 4, .train = true }, "do not fill a batch of 4" },
        { { .batch = 0 }, "out of range" },
        { { .batch = 2, .train = true, .share = { 0, 2 } }, "do not fill a batch of 4" },
        { { .batch = 1, .share = { 2, 2 } }, "the share is that of rank 2 of 2" },
        { { .batch = 1, .share = { -1, 2 } }, "the share is that of rank -1 of 2" },
        { { .batch = 1, .size = { -3 } }, "out of range" },
        { { .batch = 1, .most = 100000 }, "out of range" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tp_object_batch b;
        tp_loader *L = tp_object_loader_new(&s, &bad[i].o);
        cr_expect(!tp_loader_ok(L) && strstr(tp_loader_why(L), bad[i].why), "%s", tp_loader_why(L));
        cr_expect(!tp_object_loader_next(L, &b));
        tp_loader_seek(L, 1, 0);
        tp_loader_free(L);
    }
    tp_loader_free(NULL);
    cr_expect_neq(tp_object_source_hash(&s), TP_HASH);
    tp_scenes_free(S);
}
