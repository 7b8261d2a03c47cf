/* test_protocols.c - `imagenet eval --protocol`: test sets in their published layouts, with a model
 * whose predictions are known. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>

#include "support/images.h"
#include "support/program.h"

/* The folders of four of ImageNet's classes. A has STINGRAY and RETRIEVER, R has CAT, too; TENCH
 * and STINGRAY are fish, RETRIEVER is a dog, and CAT is in no superclass of ImageNet-9. */
#define TENCH     "n01440764" /* class 0   */
#define STINGRAY  "n01498041" /* class 6   */
#define RETRIEVER "n02099601" /* class 207 */
#define CAT       "n02123045" /* class 281 */

/* The model ranks tenches first and stingrays second for red images, cats first and retrievers
 * second for blue ones. It is the run's model of two colours with a head of 1000 classes: SHARE
 * times the difference of red and blue, or a constant far below. */
static const struct {
    int label;
    float share;
} heads[] = { { 0, 1.0F }, { 6, 0.8F }, { 281, -1.0F }, { 207, -0.8F } };

enum { CLASSES = 1000, WIDTH = 128 };

static void write_head(tp_writer *W, const float *weight, const float *bias)
{
    static float w[CLASSES * WIDTH], b[CLASSES];
    for (int c = 0; c < CLASSES; c++) b[c] = -1000.0F - (float)c;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        const int c = heads[i].label;
        for (int k = 0; k < WIDTH; k++)
            w[c * WIDTH + k] = heads[i].share * (weight[WIDTH + k] - weight[k]);
        b[c] = heads[i].share * (bias[1] - bias[0]);
    }
    tp_writer_add(W, "head.weight", TP_F32, TP_SHAPE(CLASSES, WIDTH), w, true);
    tp_writer_add(W, "head.bias", TP_F32, TP_SHAPE(CLASSES), b, true);
}

/* Writes the file `weights` from run/best.safetensors. */
static void make_weights(void)
{
    static float x[1 << 20], weight[2 * WIDTH], bias[2];
    tp_file *F = tp_file_open("run/best.safetensors");
    tp_writer *W = tp_writer_new("weights");
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        const bool whole = strcmp(t->stored, "I64") == 0;
        const bool is_head = strncmp(t->name, "head.", 5) == 0;
        float *to = !is_head ? x : strcmp(t->name, "head.bias") == 0 ? bias : weight;
        cr_assert(t->numel <= (is_head ? 2 * WIDTH : 1 << 19), "%s", t->name);
        cr_assert(tp_file_read(F, t, whole ? TP_I64 : TP_F32, to), "%s", tp_file_why(F));
        if (!is_head) tp_writer_add(W, t->name, whole ? TP_I64 : TP_F32, t->shape, x, true);
    }
    write_head(W, weight, bias);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file_close(F);
}

static void begin(void)
{
    program_begin("imagenet");
    make_colours("set", 12);
    succeed("train --data set --size 16 --batch 8 --epochs 8 --threads 1 --flip 0 --run-dir run");
    cr_assert(strstr(out, "best top-1 100.00 %"), "%s", out);
    make_weights();
}

TestSuite(protocols, .init = begin, .fini = program_end, .timeout = 300);

#define MODEL "--weights weights --preset tiny --size 16 --threads 1 "

/* Creates a folder with red and blue images. */
static void plant(const char *where, int red, int blue)
{
    char command[600];
    snprintf(command, sizeof command,
             "mkdir -p '%s'; for i in $(seq %d); do cp set/val/red/12.png '%s'/r$i.JPEG; done; "
             "for i in $(seq %d); do cp set/val/blue/13.png '%s'/b$i.JPEG; done",
             where, red, where, blue, where);
    cr_assert(shell(command), "%s", where);
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static json_t *result(const char *args)
{
    json_error_t e;
    succeed("eval " MODEL "--format json %s", args);
    json_t *root = json_loads(out, JSON_DISABLE_EOF_CHECK, &e);
    cr_assert(root, "%s: %s", e.text, out);
    return root;
}

static double value(const json_t *o, const char *key)
{
    const json_t *x = json_object_get(o, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

static const json_t *row(const json_t *root, const char *list, const char *name)
{
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(root, list), i,
                       o) if (strcmp(json_string_value(json_object_get(o, "name")), name) ==
                              0) return o;
    return NULL;
}

/* ---- the sets ---- */

/* Folders are numbers; sorted as texts, 10 would come before 281 and 6. Empty ones do not count. */
Test(protocols, v2)
{
    plant("v2/0", 3, 1);   /* three right */
    plant("v2/281", 0, 2); /* right */
    plant("v2/6", 2, 0);   /* second */
    plant("v2/10", 1, 1);  /* wrong */
    plant("v2/999", 0, 0);
    json_t *root = result("--protocol v2 --data v2");
    cr_expect_eq(value(root, "images"), 10);
    cr_expect_float_eq(value(root, "top1"), 50, 1e-6, "%s", out);
    cr_expect_float_eq(value(root, "top5"), 80, 1e-6, "%s", out);
    json_decref(root);
    succeed("eval " MODEL "--protocol v2 --data v2");
    cr_expect(strncmp(out, "ImageNet-V2: 10 images: top-1 50.00 %, top-5 80.00 %, ", 54) == 0, "%s",
              out);
    cr_expect(strstr(errors, "left out: 1 folder without images, which is no class (999)"), "%s",
              errors);
    plant("v2/007", 1, 0);
    expect_refusal("eval " MODEL "--protocol v2 --data v2", 1,
                   "v2: the folder '007' is not a class number from 0 to 999");
}

/* The likeliest of all classes is in neither set. */
Test(protocols, a_and_r)
{
    static const struct {
        const char *which;
        double top1;
    } sets[] = { { "a", 100.0 * 5 / 7 }, { "r", 100.0 * 3 / 7 } };
    plant("set-a/" STINGRAY, 3, 1);
    plant("set-a/" RETRIEVER, 1, 2); /* blue is a cat where cats are in the set */
    for (int i = 0; i < 2; i++) {
        char args[100];
        snprintf(args, sizeof args, "--protocol %s --data set-a", sets[i].which);
        json_t *root = result(args);
        cr_expect_float_eq(value(root, "top1"), sets[i].top1, 1e-6, "%s: %s", sets[i].which, out);
        cr_expect_eq(value(root, "images"), 7);
        cr_expect_eq(value(root, "classes"), 200);
        json_decref(root);
    }
    succeed("eval " MODEL "--protocol a --data set-a");
    cr_expect(strncmp(out, "ImageNet-A: 7 images: top-1 71.43 % among 200 classes, ", 55) == 0,
              "%s", out);
    plant("set-a/" CAT, 1, 0);
    expect_refusal("eval " MODEL "--protocol a --data set-a", 1,
                   "'" CAT
                   "' is not one of the 200 classes of ImageNet-A: check that --protocol names");
    plant("set-a/dog", 1, 0);
    expect_refusal(
        "eval " MODEL "--protocol r --data set-a", 1,
        "set-a: the model of weights has no class called 'dog'; the folders must be called as");
}

Test(protocols, imagenet_9)
{
    plant("in9/original/val/08_fish", 4, 0);
    plant("in9/mixed_same/val/08_fish", 3, 1); /* a cat is in no superclass */
    plant("in9/mixed_rand/val/08_fish", 1, 1);
    plant("in9/mixed_rand/val/00_dog", 1, 1);
    plant("in9/mixed_rand/val/02_wheeled vehicle", 0, 0);
    json_t *root = result("--protocol in9 --data in9");
    cr_expect_eq(json_array_size(json_object_get(root, "variations")), 3);
    cr_expect_eq(value(row(root, "variations", "original"), "top1"), 100);
    cr_expect_eq(value(row(root, "variations", "mixed_same"), "top1"), 75);
    cr_expect_eq(value(row(root, "variations", "mixed_rand"), "top1"), 25);
    cr_expect_eq(value(row(root, "variations", "mixed_rand"), "images"), 4);
    cr_expect_eq(value(root, "background_gap"), 50);
    json_decref(root);
    succeed("eval " MODEL "--protocol in9 --data in9");
    cr_expect(strstr(out, "mixed_same         4     75.00\n") &&
                  strstr(out, "\nmissing: mixed_next, no_fg, only_bg_b, only_bg_t, only_fg\n"
                              "background gap 50.00 points (mixed_same - mixed_rand)\n"),
              "%s", out);
    cr_assert(shell("rm -r in9/mixed_same"));
    succeed("eval " MODEL "--protocol in9 --data in9");
    cr_expect(strstr(out, "no background gap: it needs mixed_same and mixed_rand\n"), "%s", out);
    plant("in9/original/val/09_cat", 1, 0);
    expect_refusal("eval " MODEL "--protocol in9 --data in9", 1,
                   "in9: the folder '09_cat' of original is not a superclass of ImageNet-9");
}

/* AlexNet's errors of two corruptions, as published. */
Test(protocols, imagenet_c)
{
    static const char *const names[] = { "gaussian_noise",  "shot_noise",
                                         "impulse_noise",   "defocus_blur",
                                         "glass_blur",      "motion_blur",
                                         "zoom_blur",       "snow",
                                         "frost",           "fog",
                                         "brightness",      "contrast",
                                         "pixelate",        "elastic_transform",
                                         "jpeg_compression" };
    char path[200];
    for (int c = 0; c < 15; c++)
        for (int s = 1; s <= 5; s++) {
            snprintf(path, sizeof path, "c/%s/%d/" TENCH, names[c], s);
            plant(path, c == 9 ? 0 : 1, c == 10 ? 1 : 0); /* brightness: half are wrong */
            if (c == 9) plant(path, 6 - s, s);            /* fog: s of 6 */
        }
    plant("c/spatter/2/" TENCH, 1, 3);
    json_t *root = result("--protocol c --data c");
    const double fog = 50 / 0.819324, brightness = 50 / 0.564592;
    cr_expect_eq(json_array_size(json_object_get(root, "corruptions")), 16);
    cr_expect_float_eq(value(row(root, "corruptions", "fog"), "ce"), fog, 1e-4);
    cr_expect_float_eq(value(row(root, "corruptions", "fog"), "mean"), 50, 1e-4);
    cr_expect_float_eq(value(row(root, "corruptions", "brightness"), "ce"), brightness, 1e-4);
    cr_expect_eq(value(row(root, "corruptions", "snow"), "ce"), 0);
    cr_expect(isnan(value(row(root, "corruptions", "spatter"), "ce")));
    cr_expect_float_eq(json_number_value(json_array_get(
                           json_object_get(row(root, "corruptions", "spatter"), "error"), 1)),
                       75, 1e-6);
    cr_expect_float_eq(value(root, "mce"), (fog + brightness) / 15, 1e-4, "%s", out);
    cr_expect_float_eq(value(root, "mean_error"), 100.0 / 15, 1e-4);
    json_decref(root);
    succeed("eval " MODEL "--protocol c --data c");
    snprintf(path, sizeof path, "mCE %.2f %%, mean error 6.67 %%\n", (fog + brightness) / 15);
    cr_expect(strstr(out, path), "%s not in %s", path, out);
    cr_assert(shell("rm -r c/frost/3 c/snow"));
    succeed("eval " MODEL "--protocol c --data c");
    cr_expect(strstr(out, "no mCE: snow/1 is missing, and 5 more\n") && !strstr(out, "mCE 6"), "%s",
              out);
}

/* Images may have several labels, or none. */
Test(protocols, real)
{
    plant("in/val/" TENCH, 0, 0);
    plant("in/val/" CAT, 0, 0);
    cr_assert(shell("cp set/val/red/12.png in/val/" TENCH "/ILSVRC2012_val_00000001.JPEG;"
                    "cp set/val/red/12.png in/val/" CAT "/ILSVRC2012_val_00000002.JPEG;"
                    "cp set/val/red/12.png in/val/" CAT "/ILSVRC2012_val_00000003.JPEG;"
                    "cp set/val/blue/13.png in/val/" CAT "/ILSVRC2012_val_00000005.JPEG"));
    write_text("in/real.json", "[[0], [281, 0], [], [3],\n [6 ,207] ]\n");
    json_t *root = result("--protocol real --data in");
    cr_expect_eq(value(root, "images"), 3);
    cr_expect_eq(value(root, "unlabelled"), 1);
    cr_expect_float_eq(value(root, "top1"), 200.0 / 3, 1e-6, "%s", out);
    cr_expect_float_eq(value(root, "top5"), 100, 1e-6, "207 is second for blue: %s", out);
    cr_expect_float_eq(value(root, "single_label_top1"), 50, 1e-6);
    json_decref(root);
    write_text("other", "[[0],[281],[6],[],[]]");
    succeed("eval " MODEL "--protocol real --data in --labels other");
    cr_expect(strncmp(out, "ImageNet-ReaL: 3 images, 1 more without a label: top-1 33.33 %", 62) ==
                  0,
              "%s", out);
    write_text("other", "[[0],[281],[6]]");
    expect_refusal(
        "eval " MODEL "--protocol real --data in --labels other", 1,
        "ILSVRC2012_val_00000005.JPEG: there are labels for 3 images only: give the whole");
    write_text("other", "[[0],[281],[6],1]");
    expect_refusal("eval " MODEL "--protocol real --data in --labels other", 1,
                   "other, byte 15: '[', the start of an image's classes is wanted, not '1'");
    expect_refusal("eval " MODEL "--protocol real --data in --labels gone", 1, "gone");
    cr_assert(shell("mv in/val/" TENCH "/ILSVRC2012_val_00000001.JPEG in/val/" TENCH "/cat.JPEG"));
    expect_refusal("eval " MODEL "--protocol real --data in", 1,
                   "cat.JPEG: ReaL's labels are for files ILSVRC2012_val_NUMBER.JPEG: give the");
}

/* ---- other models, damage ---- */

/* A model with other classes is scored on their folders. */
Test(protocols, own_classes)
{
    plant("c/fog/1/red", 3, 1);
    plant("c/fog/1/blue", 0, 4);
    succeed("eval --run-dir run --threads 1 --protocol c --data c");
    cr_expect(strstr(out, "fog                  12.50       -") &&
                  strstr(out, "\nno mean error: gaussian_noise/1 is missing, and 73 more\n"
                              "no mCE: AlexNet's errors are for ImageNet's 1000 classes\n"),
              "%s", out);
    succeed("eval --run-dir run --threads 1 --protocol a --data set/val");
    cr_expect(strstr(out, "ImageNet-A: 8 images: top-1 100.00 % among 2 classes"), "%s", out);
    expect_refusal("eval --run-dir run --protocol v2 --data c", 1,
                   "--protocol v2 is for models of ImageNet's 1000 classes; that of "
                   "run/best.safetensors has 2 classes, 0 of them ImageNet's");
    plant("set/val/green", 1, 0);
    expect_refusal("eval --run-dir run --protocol r --data set/val", 1,
                   "the model of run/best.safetensors has no class called 'green'");
}

Test(protocols, unreadable_images)
{
    plant("v2/0", 2, 0);
    cr_assert(shell("echo no image > v2/0/r1.JPEG"));
    succeed("eval " MODEL "--protocol v2 --data v2");
    cr_expect(strstr(errors, "v2/0/r1.JPEG") && strstr(out, ", 1 could not be read\n"), "%s%s",
              errors, out);
    expect_refusal("eval " MODEL "--protocol v2 --data v2 --strict", 1, "v2/0/r1.JPEG");
    cr_assert(shell("echo no image > v2/0/r2.JPEG"));
    expect_refusal("eval " MODEL "--protocol v2 --data v2", 1, "none of the images could be read");
}

Test(protocols, refusals)
{
    static const struct {
        const char *args;
        int status;
        const char *message;
    } bad[] = {
        { "--protocol a", 2, "--protocol: give the folder of the images with --data" },
        { "--protocol v2 --data set --split train", 2, "leave out --split" },
        { "--protocol v2 --data set --shapes 40", 2, "leave out --shapes" },
        { "--protocol v2 --data set --worst 3", 2, "leave out --worst" },
        { "--protocol v2 --data set --seed 1", 2, "leave out --seed" },
        { "--protocol c --data set", 1, "set has no folders of ImageNet-C: gaussian_noise/1/WNID" },
        { "--protocol in9 --data set", 1, "set has no folders of ImageNet-9: original/val/00_dog" },
        { "--protocol a --data gone", 1, "--data gone: there is no such folder; check the path" },
        { "--protocol c --data gone", 1, "--data gone: there is no such folder; check the path" },
        { "--protocol in9 --data weights", 1, "--data weights: there is no such folder" },
        { "--protocol a --data set/val/red", 1, "set/val/red: no images (.jpg, .jpeg, .png) were" },
        { "--protocol real --data set", 1,
          "set/real.json: cannot be opened: No such file or directory; check the path, or name the "
          "file with --labels" },
        { "--protocol v2 --data set --by-class", 2, "leave out --by-class" },
        { "--protocol v2 --data set --corrupt jpeg:1", 2, "leave out --corrupt" },
        { "--protocol v2 --data set --layout folder", 2, "leave out --layout" },
        { "--labels real.json --data set", 2, "--labels is for --protocol real" },
        { "--protocol d --data set", 2, "none|real|v2|a|r|in9|c" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char args[300];
        snprintf(args, sizeof args, "eval " MODEL "%s", bad[i].args);
        expect_refusal(args, bad[i].status, bad[i].message);
    }
    plant("empty/" TENCH, 0, 0);
    expect_refusal("eval " MODEL "--protocol r --data empty", 1,
                   "empty: no images (.jpg, .jpeg, .png) were found in the layout 'test', which is "
                   "CLASS/IMAGE; left out: 1 folder without images, which is no class (" TENCH
                   ")\n");
}
