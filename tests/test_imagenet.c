/* test_imagenet.c - the program imagenet as a user runs it, on shapes that it draws and on folders
 * of such images: stopping and resuming gives the same bits, evaluation and prediction agree with
 * training, every bad input gives one clear message. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tapegrad/file.h>
#include <tapegrad/image.h>
#include <tapegrad/vision.h>

#include "support_checkpoint.h"
#include "support_images.h"
#include "support_program.h"

/* An update takes milliseconds. */
#define SMALL "--threads 1 --shapes 40 --size 16 --batch 8 --epochs 2 --log-every 2 "

static void begin(void)
{
    program_begin("imagenet");
}

TestSuite(imagenet, .init = begin, .fini = program_end, .timeout = 600);

/* ---- training ---- */

/* A run stopped after 4 updates, within an epoch of 5, and resumed with another number of threads
 * gives the same bits as an uninterrupted run. */
static void expect_resume(const char *name, const char *flags)
{
    succeed("train " SMALL "%s --run-dir a --overwrite", flags);
    succeed("train " SMALL "%s --run-dir b --overwrite --steps 4", flags);
    cr_expect_eq(update_in("b/last.safetensors"), 4, "%s", name);
    cr_expect(strstr(out, "Continue with: imagenet train --resume"), "%s", out);
    succeed("train --resume --run-dir b --threads 2 --workers 3");
    cr_expect(update_in("b/last.safetensors") > 4, "%s", name);
    cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"), "%s", name);
}

Test(imagenet, resume_is_exact)
{
    static const struct {
        const char *name, *flags;
    } runs[] = {
        { "plain", "" },
        { "mixing, averages", "--recipe lsla --ema 0.9" },
        { "batches left over", "--recipe vil --accumulation 2 --batch 7 --repeats 2 --epochs 3" },
        { "momentum", "--recipe finetune --lr 0.1" },
        { "bf16", "--recipe cvt --dtype bf16" },
        { "f64", "--dtype f64 --optimizer adam --schedule constant" },
        { "QHM", "--optimizer qhm --nu 0.7 --lr 0.1" },
        { "RMSprop", "--optimizer rmsprop --centered" },
        { "LAMB", "--optimizer lamb" },
        { "Adafactor, bf16", "--optimizer adafactor --lr 0.01 --dtype bf16" },
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        expect_resume(runs[i].name, runs[i].flags);
}

Test(imagenet, resume_of_models_is_exact)
{
    static const struct {
        const char *name, *flags;
    } runs[] = {
        { "ViT-LSLA", "--preset lsla-small --drop-path 0.2 --recompute block" },
        { "Swin", "--preset swin-mini --drop-path 0.2 --recompute attention" },
        { "CSWin", "--preset cswin-mini --size 32 --drop-path 0.2 --recompute block" },
        { "CoaT-Lite", "--preset coat-mini --size 32 --drop-path 0.2 --recompute attention" },
        { "MPViT", "--preset mpvit-mini --size 32 --recompute block" },
        { "ViL", "--preset vil-small --drop-path 0.2 --random-shift 0.5" },
        { "ViL-LS", "--preset vil-ls-small --recipe vil-ls" },
        { "CvT*-LS", "--preset cvt-ls-small --drop-path 0.2" },
        { "Performer",
          "--preset vil-tiny-performer --size 32 --shapes 20 --batch 4 --redraw-growth 1" },
        { "DeiT", "--preset deit-mini-distilled --recipe deit --size 32 --shapes 20 --batch 4" },
        { "ResNet", "--preset resnet-mini --recipe resnet --size 32 --shapes 20 --batch 4" },
        { "DeiT, fine-tuning",
          "--preset deit-mini --recipe deit-384 --size 32 --shapes 20 --batch 4" },
        { "ViT",
          "--preset deit-mini --recipe vit --size 32 --shapes 20 --batch 4 --warmup-steps 3" },
        { "ViT, fine-tuning",
          "--preset deit-mini --recipe vit-384 --size 32 --shapes 20 --batch 4" },
        { "Swin's recipe", "--preset swin-mini --recipe swin --size 32 --shapes 20 --batch 4" },
        { "CSWin's recipe", "--preset cswin-mini --recipe cswin --size 32 --shapes 20 --batch 4" },
        { "CoaT's recipe", "--preset coat-mini --recipe coat --size 32 --shapes 20 --batch 4" },
        { "MPViT's recipe, batches added up",
          "--preset mpvit-mini --recipe mpvit --size 32 --shapes 20 --batch 2 --accumulation 2" },
        { "layer-wise rates",
          "--preset pvt2-mini --layer-decay 0.8 --size 32 --shapes 20 --batch 4" },
        { "PVT", "--preset pvt-mini --recipe pvt --size 32 --shapes 20 --batch 4" },
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        expect_resume(runs[i].name, runs[i].flags);
}

static void read_tensor(const char *path, const char *name, double *x, int64_t n)
{
    tp_file *F = tp_file_open(path);
    const tp_file_tensor *t = tp_file_find(F, name);
    cr_assert(t && t->numel == n && tp_file_read(F, t, TP_F64, x), "%s: %s", name, tp_file_why(F));
    tp_file_close(F);
}

/* The first update of adamw-vil follows the specification: epsilon is added to the uncorrected
 * root, decay applies to the updated parameter, the head's bias does not decay. */
Test(imagenet, adamw_of_vil)
{
    enum { WEIGHTS = 1280, BIASES = 10 };
    static const char flags[] = "train " SMALL "--recipe vil --warmup 0 --eps 0.01 --weight-decay "
                                "0.5 --steps 1";
    static const struct {
        const char *name;
        int64_t n;
        double decay;
    } tensors[] = { { "head.weight", WEIGHTS, 0.5 }, { "head.bias", BIASES, 0 } };
    static double p[WEIGHTS], m[WEIGHTS], q[WEIGHTS];
    const double lr = 0.1;
    succeed("%s --lr 1e-12 --run-dir before", flags);
    succeed("%s --lr 0.1 --run-dir after", flags);
    for (int k = 0; k < 2; k++) {
        char moment[64];
        snprintf(moment, sizeof moment, "optim.m.%s", tensors[k].name);
        read_tensor("before/last.safetensors", tensors[k].name, p, tensors[k].n);
        read_tensor("after/last.safetensors", tensors[k].name, q, tensors[k].n);
        read_tensor("after/last.safetensors", moment, m, tensors[k].n);
        for (int64_t i = 0; i < tensors[k].n; i++) {
            const double g = m[i] / 0.1, root = sqrt(0.001) * fabs(g);
            const double x = p[i] - lr * sqrt(0.001) / 0.1 * m[i] / (root + 0.01);
            cr_expect_float_eq(q[i], x - lr * tensors[k].decay * x, 1e-6, "%s %lld: %g, not %g",
                               tensors[k].name, (long long)i, q[i], x - lr * tensors[k].decay * x);
        }
    }
}

/* The logged rates of the recipe vil: a warm-up of one epoch of 5 updates, then the cosine as if it
 * had begun with the run. */
Test(imagenet, rates_of_vil)
{
    succeed("train " SMALL "--recipe vil --epochs 3 --lr 0.01 --warmup 1 --log-every 1 "
            "--run-dir run");
    slurp("run/log.jsonl", out, sizeof out);
    const char *at = out;
    for (int i = 0; i < 15; i++) {
        const double pi = 3.14159265358979323846;
        const double rise = 0.01 * (0.002 * (1 - i / 5.0) + i / 5.0);
        const double fall = 1e-6 + (0.01 - 1e-6) * (1 + cos(pi * i / 15)) / 2;
        at = strstr(at, "\"lr\":");
        cr_assert(at, "update %d: %s", i, out);
        at += 5;
        cr_expect_float_eq(strtod(at, NULL), i < 5 ? rise : fall, 1e-8, "update %d: %.9g", i,
                           strtod(at, NULL));
    }
}

#define UPDATES "--threads 1 --shapes 40 --size 16 --batch 8 "

/* A run whose length and warm-up are given in updates: its rates, its end, and the same bits if stopped. */
Test(imagenet, lengths_in_updates)
{
    static const char flags[] =
        "train " UPDATES "--schedule-steps 7 --warmup-steps 2 --schedule cosine "
        "--lr 0.01 --lr-end 0 --warmup-factor 0 --log-every 1";
    succeed("%s --run-dir a", flags);
    cr_expect_eq(update_in("a/last.safetensors"), 7);
    succeed("%s --run-dir b --steps 3", flags);
    slurp("b/log.jsonl", out, sizeof out);
    const char *at = out;
    const double pi = 3.14159265358979323846;
    const double rates[] = { 0, 0.005, 0.01 };
    for (int i = 0; i < 3; i++) {
        at = strstr(at, "\"lr\":");
        cr_assert(at, "update %d: %s", i, out);
        at += 5;
        cr_expect_float_eq(strtod(at, NULL), rates[i], 1e-9, "update %d: %.9g", i,
                           strtod(at, NULL));
    }
    succeed("train --resume --run-dir b --log-every 1");
    slurp("b/log.jsonl", out, sizeof out);
    at = strstr(out, "{\"step\":7,");
    cr_assert(at && strstr(at, "\"lr\":"), "%s", out);
    cr_expect_float_eq(strtod(strstr(at, "\"lr\":") + 5, NULL), 0.005 * (1 + cos(pi * 4 / 5)),
                       1e-9);
    cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"));
    succeed("train " UPDATES "--recipe vit-384 --steps 1 --run-dir tuned");
    cr_expect(strstr(out, "4000 epochs of 5 updates") &&
                  strstr(out, "after 500 updates of warm-up"),
              "%s", out);
}

/* Each block has the decayed rate of the next one. */
Test(imagenet, layer_decay)
{
    static const char flags[] =
        "train " SMALL "--preset deit-mini --size 32 --optimizer sgd --momentum "
        "0 --clip 0 --weight-decay 0 --steps 1 --warmup 0 --schedule constant "
        "--init start/last.safetensors";
    static const struct {
        const char *name;
        double factor;
    } cases[] = { { "head.weight", 1 },
                  { "blocks.8.mlp.fc1.weight", 0.5 },
                  { "blocks.5.mlp.fc1.weight", 0.0625 },
                  { "pos_embed", 0.0009765625 } };
    succeed("train " SMALL "--preset deit-mini --size 32 --steps 1 --lr 1e-9 --run-dir start");
    succeed("%s --lr 1 --run-dir one", flags);
    succeed("%s --lr 1 --layer-decay 0.5 --run-dir half", flags);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = cases[i].name;
        const double one = tensor_distance("start/last.safetensors", "one/last.safetensors", name);
        const double half =
            tensor_distance("start/last.safetensors", "half/last.safetensors", name);
        cr_expect(one > 1e-4 && fabs(half / one - cases[i].factor) < 1e-2 * cases[i].factor,
                  "%s: %g of %g", name, half, one);
    }
}

/* The average is either what is validated, or kept aside. */
Test(imagenet, averages_aside)
{
    static const char flags[] = "train " SMALL "--epochs 1 --ema 0.9 --run-dir";
    succeed("%s shown", flags);
    succeed("%s aside --ema-aside", flags);
    cr_expect_eq(tensor_distance("shown/last.safetensors", "aside/last.safetensors", "head.weight"),
                 0);
    cr_expect_eq(
        tensor_distance("shown/last.safetensors", "aside/last.safetensors", "ema.head.weight"), 0);
    cr_expect_eq(tensor_distance("aside/last.safetensors", "aside/best.safetensors", "head.weight"),
                 0);
    cr_expect(tensor_distance("shown/last.safetensors", "shown/best.safetensors", "head.weight") >
              1e-5);
}

/* ResNet's images are resized bilinearly, in training and in evaluation, also with published weights. */
Test(imagenet, filter)
{
    static const char flags[] = "train --threads 1 --shapes 40 --batch 8 --epochs 1 --preset "
                                "resnet-mini --recipe resnet --run-dir";
    char expected[64];
    succeed("%s run", flags);
    slurp("run/log.jsonl", out, sizeof out);
    const char *loss = strstr(out, "\"test_loss\":");
    cr_assert(loss, "%s", out);
    snprintf(expected, sizeof expected, "loss %.4f", strtod(loss + 12, NULL));
    succeed("eval --run-dir run --shapes 10");
    cr_expect(strstr(out, expected), "not '%s': %s", expected, out);
    tp_file *F = tp_file_open("run/best.safetensors");
    const char *filter = tp_file_meta(F, "eval_filter");
    cr_expect(filter && strcmp(filter, "bilinear") == 0);
    tp_file_close(F);
    succeed("%s cubic --filter bicubic --init run/last.safetensors --lr 1e-12", flags);
    slurp("cubic/log.jsonl", out, sizeof out);
    loss = strstr(out, "\"test_loss\":");
    cr_expect(loss && !strstr(expected, loss) &&
                  fabs(strtod(loss + 12, NULL) - strtod(expected + 5, NULL)) > 1e-6,
              "%s", out);
}

/* With nu = 0, QHM is SGD without momentum; with the default nu it is not. */
Test(imagenet, quasi_hyperbolic_momentum)
{
    static const char flags[] = "train " SMALL "--steps 5 --lr 0.1 --weight-decay 0.1";
    succeed("%s --run-dir sgd --optimizer sgd --momentum 0", flags);
    succeed("%s --run-dir none --optimizer qhm --nu 0", flags);
    succeed("%s --run-dir qhm --optimizer qhm", flags);
    cr_expect(tensor_distance("sgd/last.safetensors", "none/last.safetensors", "head.weight") <
              1e-6);
    cr_expect(tensor_distance("sgd/last.safetensors", "qhm/last.safetensors", "head.weight") >
              1e-4);
}

/* Performer's features are redrawn after the number of batches in the flags: here the second update
 * of the first epoch uses new ones. */
Test(imagenet, features_are_redrawn)
{
    static const char matrix[] = "layer1.1.attn.fast_attention.projection_matrix";
    static const char flags[] = "train --preset vil-tiny-performer --threads 1 --shapes 10 "
                                "--size 32 --batch 2 --steps";
    succeed("%s 1 --run-dir first", flags);
    succeed("%s 2 --run-dir second", flags);
    succeed("%s 3 --run-dir third", flags);
    succeed("%s 2 --run-dir never --redraw 0", flags);
    cr_expect(tensor_distance("first/last.safetensors", "second/last.safetensors", matrix) > 0.1);
    cr_expect_eq(tensor_distance("second/last.safetensors", "third/last.safetensors", matrix), 0);
    cr_expect_eq(tensor_distance("first/last.safetensors", "never/last.safetensors", matrix), 0);
}

/* Counts that no run reaches are refused. A redraw due after 2^63 batches never happens. */
Test(imagenet, extreme_counts_of_features)
{
    static const char matrix[] = "layer1.1.attn.fast_attention.projection_matrix";
    static const char flags[] = "train --preset vil-tiny-performer --threads 1 --shapes 10 "
                                "--size 32 --batch 10 --redraw 1000000 "
                                "--redraw-growth 9000000000000000000 --steps";
    const int64_t most = INT64_C(1) << 60, bad[] = { most + 1, INT64_MAX, -1, INT64_MIN };
    succeed("%s 1 --run-dir first", flags);
    succeed("%s 4 --run-dir fourth", flags); /* an epoch has one update */
    cr_expect_eq(tensor_distance("first/last.safetensors", "fourth/last.safetensors", matrix), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        change_number("first/last.safetensors", "features_served", bad[i]);
        expect_refusal("train --resume --run-dir first --steps 4", 1,
                       "first/last.safetensors: 'features_served' is out of range");
    }
    change_number("first/last.safetensors", "features_served", most);
    succeed("train --resume --run-dir first --steps 4");
    cr_expect_eq(tensor_distance("first/last.safetensors", "fourth/last.safetensors", matrix), 0);
}

/* The log has the values for the papers' figures. */
Test(imagenet, files_of_a_run)
{
    static const char *const keys[] = { "\"epoch\":2.0",  "\"lr\":",   "\"train_loss\":",
                                        "\"test_loss\":", "\"top1\":", "\"top5\":" };
    succeed("train " SMALL "--run-dir run");
    cr_expect(strstr(out, "ETA ") && strstr(out, " images/s") && strstr(out, "waited "), "%s", out);
    slurp("run/log.jsonl", out, sizeof out);
    const char *line = strstr(out, "{\"step\":10,");
    cr_assert(line, "%s", out);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        cr_expect(strstr(line, keys[i]), "%s in %s", keys[i], line);
    slurp("run/config.json", out, sizeof out);
    cr_expect(strstr(out, "\"model\": \"convnet\"") && strstr(out, "\"preset\": \"tiny\""), "%s",
              out);
}

/* The confusion matrix of a run, and of an evaluation. */
Test(imagenet, confusion)
{
    tp_image p = { 0 };
    if (!shell("command -v gnuplot >/dev/null")) {
        cr_log_warn("skipped: gnuplot is missing");
        return;
    }
    make_colours("set", 2);
    succeed("train --data set --size 16 --batch 4 --epochs 1 --threads 1 --run-dir run");
    cr_expect(tp_image_read(&p, "run/confusion.png", NULL), "%s", p.why);
    tp_image_free(&p);
    succeed("eval --data set --run-dir run --confusion 'a matrix.SVG'");
    slurp("a matrix.SVG", out, sizeof out);
    static const char *const texts[] = {
        ">Confusion matrix<", ">run, update ",    ", set (valid): ", ">red<", ">blue<",
        ">true class<",       ">predicted class<"
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        cr_expect(strstr(out, texts[i]), "%s in %s", texts[i], out);
    expect_refusal("eval --data set --run-dir run --confusion matrix.jpg", 1,
                   "matrix.jpg was not drawn: end the name in .png or .svg");
}

/* Training goes on and says so once; an evaluation that was asked for a picture fails. */
Test(imagenet, without_gnuplot)
{
    make_colours("set", 2);
    cr_expect_eq(run_under("PATH=", "train --data set --size 16 --batch 4 --epochs 3 --threads 1 "
                                    "--run-dir run"),
                 0);
    const char *said = strstr(out, "run/confusion.png was not drawn: gnuplot is missing: ");
    cr_assert(said, "%s", out);
    cr_expect(!strstr(strstr(said, "gnuplot"), "was not drawn"), "%s", out);
    cr_expect_eq(run_under("PATH=", "eval --data set --run-dir run --confusion c.png"), 1);
    cr_expect(
        strstr(errors, "c.png was not drawn: gnuplot is missing: apt-get install gnuplot-nox"),
        "%s", errors);
    cr_expect(shell("test ! -e run/confusion.png && test ! -e c.png"));
}

/* Training on a folder learns two colours. Evaluation reproduces the validation score, and
 * prediction names the colours. */
Test(imagenet, folder_of_images)
{
    make_colours("set", 12);
    succeed("train --data set --size 16 --batch 8 --epochs 8 --threads 1 --flip 0 --run-dir run");
    cr_expect(strstr(out, "24 training images, 8 validation images"), "%s", out);
    cr_expect(strstr(out, "best top-1 100.00 %"), "%s", out);
    succeed("eval --data set --run-dir run --by-class");
    cr_expect(strstr(out, "8 images: loss ") && strstr(out, "top-1 100.00 %") &&
                  strstr(out, "100.00 %         4  red\n"),
              "%s", out);
    succeed("predict set/val/red/12.png set/val/blue/13.png --run-dir run");
    const char *second = strstr(out, "set/val/blue/13.png\n");
    cr_assert(second && strncmp(out, "set/val/red/12.png\n", 19) == 0, "%s", out);
    cr_expect(strstr(out, "  red\n") < strstr(out, "  blue\n"), "%s", out);
    cr_expect(strstr(second, "  blue\n") < strstr(second, "  red\n"), "%s", out);
    cr_expect_eq(run("predict set/val/red/12.png gone.png --run-dir run"), 1);
    cr_expect(strstr(out, "  red\n") && strstr(errors, "gone.png"), "%s%s", out, errors);
}

Test(imagenet, published_weights)
{
    char expected[4096];
    make_colours("set", 12);
    succeed("train --data set --size 16 --batch 8 --epochs 2 --threads 1 --run-dir run");
    publish_weights("run/last.safetensors", "published.bin");
    succeed("eval --data set --checkpoint run/last.safetensors --crop-ratio 1");
    snprintf(expected, sizeof expected, "%.*s", (int)strcspn(out, ","), out);
    succeed("eval --data set --weights published.bin --preset tiny --size 16 --crop-ratio 1");
    cr_expect(strncmp(out, expected, strlen(expected)) == 0, "'%s' but '%s'", expected, out);
    succeed("predict set/val/red/12.png --weights published.bin --preset tiny --size 16");
    cr_expect(strstr(out, "class 0") && strstr(out, "class 1"), "%s", out);
    succeed("train --data set --size 16 --batch 8 --epochs 1 --threads 1 --run-dir more "
            "--preset tiny --resize --init published.bin");
    expect_refusal(
        "train --data set --size 16 --batch 8 --epochs 1 --run-dir other --preset cvt-small --resize "
        "--init published.bin",
        1, "does not fit these parameters");
    expect_refusal("predict set/val/red/12.png --weights published.bin", 1,
                   "name its model with --preset");
    expect_refusal("predict set/val/red/12.png --weights published.bin --preset cvt-13", 1,
                   "does not fit these parameters");
    expect_refusal("predict set/val/red/12.png --weights none.pth --preset tiny", 1, "none.pth");
    expect_refusal("predict set/val/red/12.png --checkpoint published.bin --preset tiny", 1,
                   "published.bin: it contains no model configuration: the metadata 'model' is "
                   "missing; a publisher's weights are given by --preset NAME --weights FILE");
    expect_refusal("predict set/val/red/12.png --weights published.bin --preset tiny --checkpoint "
                   "run/last.safetensors",
                   1, "--weights and --checkpoint exclude each other");
    tp_writer *W = tp_writer_new("large");
    uint8_t rows[70000] = { 0 };
    tp_writer_add(W, "head.weight", TP_U8, TP_SHAPE(70000, 1), rows, false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    expect_refusal("predict set/val/red/12.png --weights large --preset vil-small", 1,
                   "imagenet predict: large: there are 70000 classes");
    succeed(
        "throughput --weights published.bin --preset tiny --batch 2 --seconds 0.01 --threads 1");
    cr_expect(strstr(out, "training"), "%s", out);
    expect_refusal("throughput --weights published.bin --preset convnet --batch 2", 1,
                   "does not fit these parameters");
    expect_refusal("throughput --weights none.pth --preset tiny --batch 2", 1, "none.pth");
}

/* An unreadable image is named once and counted; with --strict it ends the run. */
Test(imagenet, broken_image)
{
    make_colours("set", 12);
    cr_assert(shell("echo no image > set/train/red/03.png"));
    succeed("train --data set --size 16 --batch 8 --epochs 3 --threads 1 --run-dir run");
    const char *named = strstr(out, "train/red/03.png");
    cr_expect(named && !strstr(named + 1, "train/red/03.png"), "once: %s", out);
    cr_expect(strstr(out, "1 images could not be read"), "%s", out);
    expect_refusal("train --data set --size 16 --batch 8 --epochs 3 --strict --run-dir strict", 1,
                   "train/red/03.png");
}

/* A plan leaves no folder behind, and its memory forecast equals the memory of a run. */
Test(imagenet, plan)
{
    static const char flags[] = "train " SMALL "--preset lsla-small --size 32 --drop-path 0.1 "
                                "--recompute attention --ema 0.9";
    succeed("%s --plan --run-dir planned", flags);
    cr_expect(access("planned", F_OK) != 0);
    cr_expect(strstr(out, "lsla-small (vit-lsla): 1039458 parameters") &&
                  strstr(out, "2 epochs of 5 updates of 1 x 8 images") &&
                  strstr(out, "*attention") && strstr(out, "Time here: about "),
              "%s", out);
    const char *row = strstr(out, "peak of a step");
    double none, peak;
    cr_assert(row && sscanf(row, "peak of a step %lf %lf", &none, &peak) == 2, "%s", out);
    succeed("%s --run-dir run", flags);
    slurp("run/log.jsonl", out, sizeof out);
    const char *memory = strstr(out, "\"memory\":");
    cr_assert(memory, "%s", out);
    const double taken = strtod(memory + 9, NULL) / 1e6;
    cr_expect(peak < none && fabs(peak - taken) < 0.02 * taken, "%g MB, a run took %g", peak,
              taken);
}

/* ---- weights from other runs ---- */

Test(imagenet, init_with_another_head)
{
    make_colours("set", 12);
    succeed("train " SMALL "--run-dir ten");
    static const char two[] = "train --data set --size 16 --batch 8 --epochs 1 --threads 1 "
                              "--overwrite --run-dir two --init ten/best.safetensors ";
    expect_refusal(two, 1, "the head of ten/best.safetensors has 10 classes, the images have 2");
    succeed("%s --head slice --lr 1e-9 --lr-end 0", two);
    cr_expect(strstr(out, "the head of ten/best.safetensors has 10 classes; its first 2 are taken"),
              "%s", out);
    tp_file *a = tp_file_open("ten/best.safetensors"), *b = tp_file_open("two/last.safetensors");
    float x[1280], y[1280];
    const tp_file_tensor *t = tp_file_find(a, "head.weight"), *u = tp_file_find(b, "head.weight");
    cr_assert(t && u && u->numel * 5 == t->numel && t->numel <= 1280);
    cr_assert(tp_file_read(a, t, TP_F32, x) && tp_file_read(b, u, TP_F32, y));
    for (int i = 0; i < u->numel; i++) cr_expect_float_eq(x[i], y[i], 1e-6f);
    tp_file_close(a);
    tp_file_close(b);
    succeed("%s --head new", two);
    cr_expect(strstr(out,
                     "the head of ten/best.safetensors (10 classes) is left out; a new one of 2 "
                     "begins"),
              "%s", out);
    expect_refusal("eval --data set --run-dir ten", 1, "was trained on other classes: class 0 is");
}

/* Position tables are resized to the image size only on request. */
Test(imagenet, init_at_another_resolution)
{
    static const char wider[] = "train --preset lsla-small --threads 1 --shapes 20 --batch 10 "
                                "--epochs 1 --size 32 --overwrite --run-dir wide --init "
                                "low/last.safetensors";
    char args[400];
    succeed("train --preset lsla-small --threads 1 --shapes 20 --batch 10 --epochs 1 --size 16 "
            "--run-dir low");
    expect_refusal(wider, 1, "was trained on images of 16 pixels, this run has 32: tables of");
    succeed("%s --resize", wider);
    snprintf(args, sizeof args, "%s --resize --preset lsla-qkv-small", wider);
    expect_refusal(args, 1, "with other widths, depths or attention than --preset lsla-qkv-small");
    snprintf(args, sizeof args, "%s --resize --preset cvt-small", wider);
    expect_refusal(args, 1, "holds another model: vit-lsla, not cvt");
    expect_refusal("train --preset lsla-small --size 24 --run-dir odd", 1, "impossible model: ");
    succeed("eval --run-dir low --shapes 20 --size 32 --threads 1");
}

/* --init --resize resizes tables of every kind bilinearly by the papers' rule and copies the other
 * weights. */
Test(imagenet, resized_tables)
{
    static const struct {
        const char *preset, *tensor;
        int64_t from[2], to[2], channels;
    } cases[] = {
        { "vil-small",
          "layer1.1.attn.local_relative_position_bias_table",
          { 15, 15 },
          { 15, 15 },
          1 },
        { "vil-small", "layer3.1.attn.local_relative_position_bias_table", { 3, 3 }, { 7, 7 }, 4 },
        { "vil-ls-small",
          "layer3.1.attn.local_relative_position_bias_table",
          { 3, 3 },
          { 7, 7 },
          4 },
        { "vil-tiny-ape", "layer1.0.x_pos_embed", { 8, 1 }, { 16, 1 }, 24 },
        { "cvt-ls-small", "stage2.blocks.0.attn.proj_p.weight", { 16, 1 }, { 16, 1 }, 192 },
    };
    static const char flags[] = "--threads 1 --shapes 10 --batch 2 --steps 1 --warmup 0 --lr 1e-12 "
                                "--lr-end 0 --overwrite";
    static double x[8192], y[8192], z[8192];
    const char *made = "";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t *from = cases[i].from, *to = cases[i].to, c = cases[i].channels;
        if (strcmp(made, cases[i].preset) != 0) {
            succeed("train --preset %s --size 32 %s --run-dir low", cases[i].preset, flags);
            succeed("train --preset %s --size 64 %s --run-dir high --init low/last.safetensors "
                    "--resize",
                    cases[i].preset, flags);
        }
        made = cases[i].preset;
        read_tensor("low/last.safetensors", cases[i].tensor, x, from[0] * from[1] * c);
        read_tensor("high/last.safetensors", cases[i].tensor, y, to[0] * to[1] * c);
        tp_vil_resize(x, from, z, to, c);
        for (int64_t k = 0; k < to[0] * to[1] * c; k++)
            cr_assert_float_eq(y[k], z[k], 1e-6, "%s %s, %lld: %g, not %g", cases[i].preset,
                               cases[i].tensor, (long long)k, y[k], z[k]);
    }
    succeed("train --preset vil-tiny-linformer --size 32 %s --run-dir low", flags);
    expect_refusal("predict low/confusion.png --run-dir low --size 64", 1,
                   "Linformer's projections fit one image size");
}

/* ---- bad input ---- */

Test(imagenet, refusals)
{
    static const struct {
        const char *args;
        int status;
        const char *message;
    } bad[] = {
        { "", 2, "'imagenet COMMAND --help' prints the manual" },
        { "trian", 2, "imagenet: 'trian' is not a command; did you mean 'train'?" },
        { "train --epoch 3", 2, "--epoch: unknown flag; did you mean --epochs?" },
        { "train --recipe pits", 2, "--recipe: 'pits' is not one of plain|small|vil|" },
        { "train --epochs 3 --schedule-steps 7", 1,
          "--epochs and --schedule-steps set the same length, in epochs and in updates: give one" },
        { "train --warmup-steps 7 --warmup 1", 1,
          "--warmup and --warmup-steps set the same length" },
        { "train --layer-decay 0", 2, "--layer-decay" },
        { "train --layer-decay 1.5", 2, "--layer-decay" },
        { "train --warmup-steps -1", 2, "--warmup-steps" },
        { "train --filter nearest", 2, "--filter: 'nearest' is not one of bicubic|bilinear" },
        { "train image.png", 2, "'image.png' is not a flag" },
        { "train --preset resnet", 1, "--preset: 'resnet' is not one of tiny, convnet" },
        { "train --preset cvt13", 1, "listed by tp-models; did you mean 'cvt-13'?\n" },
        { "train --preset txl-small", 1, "listed by tp-models; did you mean 'vil-small'?\n" },
        { "train --data missing", 1, "missing" },
        { "train --data set --layout cifar10", 1, "set" },
        { "train --shapes 10 --batch 64", 1, "10" },
        { "train --shapes 80 --batch 32 --accumulation 9", 1,
          "too little data for an update of 32 x 9" },
        { "train --device tpu", 1, "device 'tpu' is unknown" },
        { "train --run-dir run", 1, "run folder run already holds a run" },
        { "train --resume --run-dir run --lr 7", 1, "--lr 7 (checkpoint: " },
        { "train --resume --run-dir run --preset convnet", 1,
          "--preset convnet (checkpoint: tiny)" },
        { "train --resume --run-dir run --overwrite", 1, "--resume continues a run" },
        { "train --resume --run-dir run --plan", 1, "--plan describes a new run" },
        { "train --plan --preset lsla-small --size 24", 1, "impossible model: " },
        { "train --resume --run-dir run --data set", 1,
          "the images differ from those this run was trained on" },
        { "train --resume --run-dir fresh", 1, "cannot resume: " },
        { "train --init out --run-dir fresh", 1, "out" },
        { "train " SMALL "--init run/last.safetensors --run-dir other --epochs 9 "
          "--lr 1000 --clip 0 --optimizer sgd --warmup 0",
          1, "is " },
        { "eval --run-dir fresh", 1, "fresh/last.safetensors" },
        { "eval --run-dir run --data set", 1, "was trained on other classes" },
        { "eval --run-dir few", 1, "trained on other images; give them with --data" },
        { "eval --checkpoint cut", 1, "the file is cut off" },
        { "train --init cut --run-dir fresh", 1, "the file is cut off" },
        { "train --resume --run-dir half", 1, "cannot resume: half/last.safetensors" },
        { "predict cut --run-dir run", 1, "image cut: neither JPEG nor PNG" },
        { "predict set --run-dir run", 1, "image set: is a folder; a regular file is wanted" },
        { "predict --run-dir run", 1, "no image was given" },
        { "predict gone.png --run-dir run", 1, "gone.png" },
        { "throughput --preset none", 1, "--preset: 'none' is not one of" },
    };
    make_colours("set", 12);
    succeed("train " SMALL "--epochs 1 --run-dir run");
    succeed("train --data set --size 16 --batch 8 --epochs 1 --threads 1 --run-dir few");
    cr_assert(shell("cp -r run before; head -c 90000 run/last.safetensors >cut; "
                    "cp -r run half; cp cut half/last.safetensors"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_refusal(bad[i].args, bad[i].status, bad[i].message);
    cr_expect(same_bytes("before/last.safetensors", "run/last.safetensors"));
    cr_expect(same_bytes("before/log.jsonl", "run/log.jsonl"));
}

/* Images of one pixel and of one row of JPEG's maximum width are valid. */
Test(imagenet, extreme_shapes)
{
    static const int64_t sides[][2] = { { 1, 1 }, { 65500, 1 }, { 1, 65500 } };
    make_colours("set", 12);
    for (int i = 0; i < 3; i++) {
        char name[64];
        tp_image p = { 0 };
        cr_assert(tp_image_new(&p, sides[i][0], sides[i][1]));
        memset(p.rgb, 90, (size_t)(sides[i][0] * sides[i][1] * 3));
        snprintf(name, sizeof name, "set/train/red/%02d.png", i);
        cr_assert(tp_image_write(&p, name), "%s", p.why);
        snprintf(name, sizeof name, "set/val/red/%d.png", 12 + i);
        cr_assert(tp_image_write(&p, name), "%s", p.why);
        tp_image_free(&p);
    }
    succeed("train --data set --size 16 --batch 8 --epochs 1 --threads 1 --run-dir run");
    cr_expect_not(strstr(out, "could not be read"), "%s", out);
    succeed("train --data set --batch 8 --epochs 1 --threads 1 --crop resized --run-dir resized");
    succeed("predict set/train/red/00.png set/train/red/01.png set/train/red/02.png --run-dir run");
}

Test(imagenet, manuals_and_throughput)
{
    static const char *const commands[] = { "train",  "eval",       "predict",
                                            "robust", "throughput", "analyze" };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        succeed("%s --help", commands[i]);
        cr_expect(strstr(out, "NAME\n") && strstr(out, "EXIT STATUS\n"), "%s", commands[i]);
    }
    succeed("--version");
    succeed("throughput --batch 2 --seconds 0.01 --threads 1");
    cr_expect(strstr(out, "forward ") && strstr(out, "training ") && strstr(out, " images/s"), "%s",
              out);
}
