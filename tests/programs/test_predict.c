/* test_predict.c - `imagenet predict` and the reports of `imagenet eval`, as text and as JSON. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <tapegrad/image.h>

#include "pictures/annotate.h"
#include "predictions.h"
#include "support/images.h"
#include "support/program.h"

static void begin(void)
{
    program_begin("imagenet");
}

TestSuite(predict, .init = begin, .fini = program_end, .timeout = 300);

#define TRAIN "train --data set --size 16 --batch 8 --epochs 8 --threads 1 --flip 0 --run-dir run"

/* Renames the set's classes blue and red; names are shell words. */
static void rename_classes(const char *blue, const char *red)
{
    char command[400];
    snprintf(command, sizeof command,
             "for p in train val; do mv set/$p/blue set/$p/%s && mv set/$p/red set/$p/%s; done",
             blue, red);
    cr_assert(shell(command));
}

static json_t *parsed(const char *line)
{
    json_error_t e;
    json_t *root = json_loads(line, JSON_DISABLE_EOF_CHECK, &e);
    cr_assert(root, "%s: %s", e.text, line);
    return root;
}

static const char *text_at(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "(none)";
}

/* Wnids of a run's folders are shown as words; the checkpoint keeps the folders. */
Test(predict, words_for_wnids)
{
    make_colours("set", 12);
    rename_classes("n03888257", "n01440764");
    succeed(TRAIN);
    succeed("predict set/val/n03888257/12.png --run-dir run");
    cr_expect(strncmp(out, "set/val/n03888257/12.png\n  1 ", 28) == 0, "%s", out);
    cr_expect(strstr(out, "parachute (n03888257)\n") && strstr(out, "tench (n01440764)\n"), "%s",
              out);
    tp_file *F = tp_file_open("run/best.safetensors");
    cr_expect_str_eq(tp_file_meta(F, "class_names"), "n01440764\nn03888257\n");
    tp_file_close(F);

    succeed("predict set/val/n03888257/1?.png --run-dir run --format json --top 1");
    const char *line = out;
    for (int i = 12; i < 16; i++, line = strchr(line, '\n') + 1) {
        char path[60];
        json_t *root = parsed(line), *all = json_object_get(root, "predictions");
        const json_t *first = json_array_get(all, 0);
        snprintf(path, sizeof path, "set/val/n03888257/%d.png", i);
        cr_expect_str_eq(text_at(root, "image"), path);
        cr_expect_eq(json_array_size(all), 1);
        cr_expect_str_eq(text_at(first, "wnid"), "n03888257");
        cr_expect_str_eq(text_at(first, "name"), "parachute");
        cr_expect_eq(json_integer_value(json_object_get(first, "class")), 1);
        json_decref(root);
    }
    cr_expect_eq(*line, '\0');

    succeed("predict set/val/n03888257/12.png --run-dir run --format json --logits");
    json_t *root = parsed(out), *z = json_object_get(root, "logits");
    const json_t *first = json_array_get(json_object_get(root, "predictions"), 0);
    const double z0 = json_number_value(json_array_get(z, 0)),
                 z1 = json_number_value(json_array_get(z, 1));
    cr_assert_eq(json_array_size(z), 2);
    cr_expect_float_eq(json_number_value(json_object_get(first, "probability")),
                       1 / (1 + exp(z0 - z1)), 1e-6);
    json_decref(root);
    cr_expect_eq(run("predict set/val/n03888257/12.png --run-dir run --logits"), 1);
    cr_expect(strstr(errors, "--logits needs --format json"), "%s", errors);

    cr_assert(shell("printf 'sky\\nearth, \"dry\"\\n' >names.txt"));
    succeed("predict set/val/n03888257/12.png --run-dir run --names names.txt --format csv");
    cr_expect(strstr(out, ",\"earth, \"\"dry\"\"\",0."), "%s", out);
}

/* Names with quotes, escape sequences and other alphabets leave every format readable. */
Test(predict, hostile_names)
{
    make_colours("set", 12);
    rename_classes("'a,\"b'", "\"$(printf 'caf\\303\\251 {@}')\"");
    succeed(TRAIN);
    succeed("predict set/val/caf*/12.png --run-dir run");
    cr_expect(strstr(out, "a,\"b\n") && strstr(out, "caf\xc3\xa9 {@}\n"), "%s", out);
    succeed("predict set/val/caf*/12.png set/val/a*/12.png --run-dir run --format json");
    json_t *root = parsed(out);
    const json_t *all = json_object_get(root, "predictions");
    cr_expect_str_eq(text_at(json_array_get(all, 0), "name"), "caf\xc3\xa9 {@}");
    cr_expect_str_eq(text_at(json_array_get(all, 1), "name"), "a,\"b");
    json_decref(root);
    succeed("predict set/val/caf*/12.png --run-dir run --format csv");
    cr_expect(strstr(out, ",\"a,\"\"b\",0.") && strstr(out, ",caf\xc3\xa9 {@},0."), "%s", out);

    cr_assert(shell("printf '\\033[31mred\\n\\377\\n' >names.txt"));
    succeed("predict set/val/caf*/12.png --run-dir run --names names.txt");
    cr_expect(strstr(out, "\\x1b[31mred\n") && strstr(out, "\\xff\n") && !strchr(out, '\x1b'), "%s",
              out);
    succeed("eval --data set --run-dir run --by-class --names names.txt");
    cr_expect(strstr(out, "\\x1b[31mred") && !strchr(out, '\x1b'), "%s", out);
    cr_expect_eq(run("predict \"$(printf 'no\\033[2Jne')\" --run-dir run"), 1);
    cr_expect(strstr(errors, "no\\x1b[2Jne") && !strchr(errors, '\x1b'), "%s", errors);
}

/* The table of classes is sorted by accuracy, and JSON has the same numbers. */
Test(predict, report_of_eval)
{
    make_colours("set", 12);
    rename_classes("n03888257", "n01440764");
    succeed(TRAIN);
    cr_assert(shell("cp set/train/n03888257/0[0-5].png set/val/n01440764/"));
    succeed("eval --data set --run-dir run --by-class");
    const char *worst = strstr(out, "tench (n01440764)"), *best = strstr(out, "\n100.00 %");
    cr_expect(worst && best && worst < best && strstr(worst, "% parachute (n03888257)\n"), "%s",
              out);
    succeed("eval --data set --run-dir run --by-class --format json");
    json_t *root = parsed(out);
    const json_t *classes = json_object_get(root, "classes");
    const json_t *first = json_array_get(classes, 0), *second = json_array_get(classes, 1);
    const json_t *other = json_object_get(first, "mistaken_for");
    cr_expect_eq(json_array_size(classes), 2);
    cr_expect_str_eq(text_at(first, "name"), "tench");
    cr_expect_str_eq(text_at(other, "wnid"), "n03888257");
    const json_int_t wrong = json_integer_value(json_object_get(other, "images"));
    const json_int_t n = json_integer_value(json_object_get(first, "images"));
    const json_int_t total = json_integer_value(json_object_get(root, "images"));
    cr_expect(n > wrong && wrong > 0, "%s", out);
    cr_expect_float_eq(json_number_value(json_object_get(first, "top1")),
                       100.0 * (double)(n - wrong) / (double)n, 1e-6);
    cr_expect_float_eq(json_number_value(json_object_get(root, "top1")),
                       100.0 * (double)(total - wrong) / (double)total, 1e-6);
    cr_expect_eq(json_number_value(json_object_get(second, "top1")), 100);
    cr_expect_null(json_object_get(second, "mistaken_for"));
    cr_expect(json_is_real(json_object_get(root, "loss")) &&
              json_is_false(json_object_get(root, "stopped")));
    json_decref(root);
}

/* ---- pictures ---- */

static bool gnuplot_here(void)
{
    const bool here = shell("command -v gnuplot >/dev/null");
    cr_assert(here || !getenv("CI"), "CI has gnuplot");
    if (!here) cr_log_warn("gnuplot is absent: no picture is drawn");
    return here;
}

/* Counts the pixels that are not white, and those in the colours of right and wrong bars. */
typedef struct ink {
    int64_t width, height, any, green, red;
} ink;

static ink ink_of(const char *path)
{
    tp_image p = { 0 };
    cr_assert(tp_image_read(&p, path, NULL), "%s: %s", path, p.why);
    ink n = { .width = p.width, .height = p.height };
    for (int64_t i = 0; i < p.width * p.height; i++) {
        const uint8_t *c = p.rgb + 3 * i;
        n.any += c[0] < 250 || c[1] < 250 || c[2] < 250;
        n.green += c[1] > 120 && c[0] < 80 && c[2] < 80;
        n.red += c[0] > 180 && c[1] < 80 && c[2] < 80;
    }
    tp_image_free(&p);
    return n;
}

/* Keeps the worst in any order of the images; right and undefined predictions do not count. */
Test(mistakes, order)
{
    static const struct {
        int32_t label;
        float logits[3];
    } images[] = {
        { 0, { 1, 0, 0 } },   { 0, { 0, 5, 1 } }, { 2, { 0, 5, -9 } },
        { 1, { NAN, 0, 5 } }, { 1, { 4, 0, 1 } }, { 2, { 9, 0, 0 } },
        { 0, { 0, 2, 0 } },   { 0, { 0, 5, 1 } }, { 1, { -1, 4, 3.9f } },
    };
    static const int64_t expected[] = { 5, 2, 1, 7 };
    enum { IMAGES = sizeof images / sizeof images[0] };
    for (int first = 0; first < IMAGES; first++) {
        mistake at[4];
        mistakes m = { .most = 4, .at = at };
        for (int k = 0; k < IMAGES; k++) {
            const int i = (first + 4 * k) % IMAGES;
            mistakes_note(&m, i, images[i].label, images[i].logits, 3);
        }
        cr_assert_eq(m.n, 4);
        for (int k = 0; k < 4; k++)
            cr_expect_eq(at[k].image, expected[k], "from %d: place %d is image %d", first, k,
                         (int)at[k].image);
        cr_expect(at[0].n == 3 && at[0].best[0].label == 0 && at[0].label == 2);
        cr_expect_float_eq(at[0].right, exp(-9) / (1 + 2 * exp(-9)), 1e-12);
    }
}

/* A picture holds the image, enlarged to 400 pixels, and bars beside it. */
Test(predict, annotated_images)
{
    if (!gnuplot_here()) return;
    make_colours("set", 12);
    succeed(TRAIN);
    cr_assert(shell("cp set/val/red/12.png \"$(printf 'a\\033[31m\"b.x.png')\""));
    succeed(
        "predict set/val/red/12.png set/val/blue/13.png a*b.x.png --run-dir run --annotate p/q");
    static const char *const names[] = { "p/q/001-12.png", "p/q/002-13.png",
                                         "p/q/003-a-31m-b-x.png" };
    for (int i = 0; i < 3; i++) {
        const ink n = ink_of(names[i]);
        cr_expect(n.width > 840 && n.width < 1400 && n.height > 350 && n.height < 600,
                  "%s: %d x %d", names[i], (int)n.width, (int)n.height);
        cr_expect(n.any > 400 * 320, "%s: %d", names[i], (int)n.any);
    }
    cr_expect(!same_bytes(names[0], names[1]) && strstr(out, "set/val/red/12.png\n"));
    expect_refusal("predict set/val/red/12.png --run-dir run --annotate run/log.jsonl", 1,
                   "run/log.jsonl");
    cr_expect_eq(
        run_under("PATH=/nowhere", "predict set/val/red/12.png --run-dir run --annotate p"), 1);
    cr_expect(strstr(errors, "p/001-12.png was not drawn: gnuplot is missing: apt-get install"),
              "%s", errors);
}

/* The worst mistakes are ranked, named after both classes, and show both in their colours. */
Test(predict, mistakes)
{
    if (!gnuplot_here()) return;
    make_colours("set", 12);
    rename_classes("n03888257", "n01440764");
    succeed(TRAIN);
    cr_assert(shell("cp set/train/n03888257/0[0-5].png set/val/n01440764/"));
    succeed("eval --data set --run-dir run --errors worst --worst 4");
    cr_expect(strstr(out, "\n4 mistakes are drawn in worst\n"), "%s", out);
    cr_expect(shell("test \"$(ls worst | sed 's/..-//' | sort -u)\" = tench-parachute.png"));
    for (int i = 1; i <= 4; i++) {
        char path[60];
        snprintf(path, sizeof path, "worst/%02d-tench-parachute.png", i);
        const ink n = ink_of(path);
        cr_expect(n.width > 840 && n.height > 440 && n.height < 700, "%d x %d", (int)n.width,
                  (int)n.height);
        cr_expect(n.red > 4000 && n.green > 20, "%d red, %d green", (int)n.red, (int)n.green);
    }
    succeed("eval --data set --run-dir run --errors worst8 --batch 3");
    succeed("eval --data set --run-dir run --errors all --batch 64 --format json");
    cr_expect(shell("ls all | wc -l | grep -qx 6 && diff -r worst8 all && cmp all/01* worst/01*"));
    cr_expect(out[0] == '{' && !strstr(out, "drawn"), "%s", out);
}

/* Drawn shapes have no files, and more classes than bars: the right class may be a sixth bar. */
Test(predict, mistakes_of_shapes)
{
    if (!gnuplot_here()) return;
    succeed("train --shapes 40 --size 16 --batch 8 --epochs 1 --threads 1 --run-dir run");
    succeed("eval --shapes 40 --run-dir run --errors worst --worst 3");
    cr_expect(shell("test $(ls worst | grep -c '^0[123]-[a-z]*-[a-z]*[.]png$') = 3"));
    expect_refusal("eval --shapes 40 --run-dir run --errors run/log.jsonl", 1, "run/log.jsonl");
    expect_refusal("eval --shapes 40 --run-dir run --errors worst --worst 0", 2, "--worst");
}

/* Published weights have no folders: the images' wnids find their classes, in any order and number;
 * folders with other names are matched in the model's order. */
Test(predict, classes_of_published_weights)
{
#define PUBLISHED "eval --data set --weights run/best.safetensors --preset tiny --size 16 "
    make_colours("set", 12);
    succeed(TRAIN);
    cr_assert(
        shell("printf 'n03888257\\nn01440764\\n' >names; printf 'n03888257\\nshark\\n' >other"));
    succeed(PUBLISHED "--names names");
    cr_expect(strstr(out, "top-1 100.00 %"), "%s", out);
    rename_classes("n03888257", "n01440764"); /* now in reverse order */
    succeed(PUBLISHED);
    cr_expect(strstr(out, "top-1 0.00 %"), "%s", out);
    succeed(PUBLISHED "--names names --by-class");
    cr_expect(strstr(out, "8 images: ") && strstr(out, "top-1 100.00 %") &&
                  strstr(out, "4  parachute (n03888257)\n"),
              "%s", out);
    expect_refusal(PUBLISHED "--names other", 1,
                   "the model has 1 of the images' 2 classes, but no 'n01440764'");
}

/* Folders are matched with the model's classes by name or number, in any order and number. */
Test(predict, classes_by_name_and_number)
{
    make_colours("set", 12);
    succeed(TRAIN);
    cr_assert(
        shell("mkdir -p few/red numbers/1 numbers/10 other && cp set/val/red/*.png few/red && "
              "cp set/val/red/*.png numbers/1 && cp -r set/val/red other/fox"));
    succeed("eval --data few --layout test --run-dir run");
    cr_expect(strstr(out, "4 images: ") && strstr(out, "top-1 100.00 %"), "%s", out);
    succeed(
        "eval --data numbers --layout test --weights run/best.safetensors --preset tiny --size 16");
    cr_expect(strstr(out, "4 images: ") && strstr(out, "top-1 100.00 %"), "%s", out);
    cr_expect(
        strstr(errors, "imagenet eval: left out: 1 folder without images, which is no class (10)"),
        "%s", errors);
    succeed("eval --data numbers --layout test --run-dir run");
    cr_expect(strstr(out, "top-1 100.00 %"), "%s", out);
    expect_refusal("eval --data other --layout test --run-dir run", 1,
                   "the model has 0 of the images' 1 classes, but no 'fox': call the folders as");
    expect_refusal("eval --data other --layout test --weights run/best.safetensors --preset tiny "
                   "--size 16",
                   1, "the model has 0 of the images' 1 classes, but no 'fox'");
    cr_assert(shell("mkdir other/ape && cp set/val/blue/*.png other/ape"));
    succeed(
        "eval --data other --layout test --weights run/best.safetensors --preset tiny --size 16");
    cr_expect(strstr(errors, "warning: no class of the model is called 'ape' or 'fox': the folders "
                             "are taken in their order"),
              "%s", errors);
    cr_assert(shell("mv numbers/1 numbers/7"));
    expect_refusal("eval --data numbers --layout test --weights run/best.safetensors --preset tiny "
                   "--size 16",
                   1, "but no '7'");
}

/* A resumed run has the same classes, even if the images are the same. */
Test(predict, resumed_with_other_classes)
{
    make_colours("set", 12);
    succeed("train --data set --size 16 --batch 8 --epochs 2 --steps 2 --threads 1 "
            "--run-dir run");
    rename_classes("azure", "scarlet");
    expect_refusal(
        "train --resume --steps 4 --threads 1 --run-dir run", 1,
        "was trained on other classes: class 0 is 'blue' in the model and 'azure' in the "
        "images");
}

/* Left-out files are reported once; images above a limit are skipped. */
Test(predict, left_out_and_too_large)
{
    make_colours("set", 12);
    cr_assert(shell("mkdir set/train/notes && echo x >set/train/notes/a.txt && echo RIFF "
                    ">set/val/red/a.webp && mkdir set/__MACOSX && touch set/__MACOSX/._0.png"));
    succeed("train --data set --size 16 --batch 8 --epochs 1 --threads 1 --run-dir run");
    cr_expect(strstr(out, "left out: 1 file that is neither .jpg, .jpeg nor .png "
                          "(train/notes/a.txt); 1 folder without images, which is no class "
                          "(train/notes)\n") &&
                  strstr(out,
                         "of validation, left out: 1 file that is neither .jpg, .jpeg nor .png "
                         "(val/red/a.webp)\n") &&
                  strstr(out, " 2 classes"),
              "%s", out);
    succeed("eval --data set --run-dir run --max-pixels 320");
    cr_expect(strstr(out, "8 images: "), "%s", out);
    expect_refusal("eval --data set --run-dir run --max-pixels 319 --strict", 1,
                   "PNG: 20 x 16 pixels are more than the limit of 319 (max_pixels; --max-pixels");
    expect_refusal("predict set/val/red/12.png --run-dir run --max-pixels 319", 1,
                   "are more than the limit of 319");
    expect_refusal("train --data set --size 16 --batch 8 --epochs 1 --threads 1 --strict "
                   "--max-pixels 319 --run-dir other",
                   1, "are more than the limit of 319");
    succeed("predict set/val/red/12.png --run-dir run --max-pixels 320");
}

/* Copies a checkpoint with NaN as the first value of each floating tensor. */
static void spoil(const char *from, const char *to)
{
    tp_file *F = tp_file_open(from);
    tp_writer *W = tp_writer_new(to);
    const char *key, *value;
    for (int i = 0; tp_file_meta_at(F, i, &key, &value); i++) tp_writer_meta(W, key, value);
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        const tp_dtype dt = strcmp(t->stored, "F32") == 0 ? TP_F32 : TP_I64;
        double *x = malloc(((size_t)t->numel + 1) * sizeof *x); /* of floats or of int64 */
        cr_assert(tp_file_read(F, t, dt, x), "%s", tp_file_why(F));
        if (dt == TP_F32) *(float *)x = NAN;
        tp_writer_add(W, t->name, dt, t->shape, x, true);
        free(x);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file_close(F);
}

/* For a logit of minus infinity JSON has the probability 0, but cannot express the logit. */
Test(predict, infinite_logit)
{
    const float logits[] = { 1, -INFINITY };
    prediction best[2];
    class_names names;
    char why[200];
    cr_assert(class_names_find(&names, NULL, "cat\ndog\n", 2, why, sizeof why), "%s", why);
    cr_assert(predictions_of(logits, 2, 2, best));
    FILE *f = fopen("line", "w");
    cr_assert(f && predictions_print(f, FORMAT_JSON, &names,
                                     &(predicted){ "x.png", best, 2, logits, 2 }));
    fclose(f);
    slurp("line", out, sizeof out);
    json_t *root = parsed(out);
    const json_t *z = json_object_get(root, "logits");
    cr_expect_eq(json_number_value(json_array_get(z, 0)), 1);
    cr_expect(json_is_null(json_array_get(z, 1)), "%s", out);
    cr_expect_eq(json_number_value(json_object_get(
                     json_array_get(json_object_get(root, "predictions"), 1), "probability")),
                 0);
    json_decref(root);
    class_names_free(&names);
}

/* NaN is no prediction of class 0. */
Test(predict, weights_that_are_nan)
{
    make_colours("set", 12);
    succeed(TRAIN);
    spoil("run/best.safetensors", "bad.safetensors");
    expect_refusal("predict set/val/blue/12.png --checkpoint bad.safetensors", 1,
                   "the model computes NaN or infinity: the weights in bad.safetensors are bad");
    expect_refusal("eval --data set --checkpoint bad.safetensors", 1,
                   "the loss is nan: the weights in bad.safetensors are bad");
}

Test(predict, refusals)
{
    make_colours("set", 12);
    succeed(TRAIN);
    expect_refusal("predict set/val/red/12.png --run-dir run --names ip102", 1,
                   "--names ip102: has 102 names, the model has 2 classes");
    expect_refusal("eval --data set --run-dir run --names set", 1, "--names set: is a folder");
    expect_refusal("predict set/val/red/12.png --run-dir run --preset cvt-13", 1,
                   "--preset cvt-13 names the model of published weights: give --weights FILE");
    expect_refusal("predict set/val/red/12.png --run-dir run --format xml", 2,
                   "--format: 'xml' is not one of table|json|csv");
    expect_refusal("predict set/val/red/12.png --run-dir run --top 0", 2, "--top");
    cr_expect_eq(run("predict set/val/red/12.png --run-dir run 2>why >/dev/full; echo $?"), 0);
    slurp("why", errors, sizeof errors);
    cr_expect(strcmp(out, "1\n") == 0 && strstr(errors, "standard output: No space left"), "%s%s",
              out, errors);
    /* More than the stream's buffer. */
    cr_assert(
        shell("for i in 1 2 3 4 5 6; do cat set/val/red/12.png >$i$(printf %0200d 0).png; done"));
    cr_expect_eq(run("predict ?0*.png ?0*.png ?0*.png ?0*.png --run-dir run --format json 2>why "
                     ">/dev/full; echo $?"),
                 0);
    slurp("why", errors, sizeof errors);
    cr_expect_str_eq(errors, "imagenet predict: standard output: No space left on device\n");
}
