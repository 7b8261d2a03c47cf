/* test_imagenet.c - the program imagenet as a user runs it, on drawn shapes and on folders of such
 * images: what a run writes and prints, evaluation and prediction agree with training, every bad
 * input gives one clear message. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tapegrad/image.h>

#include "support/imagenet.h"
#include "support/images.h"

TestSuite(imagenet, .init = imagenet_begin, .fini = program_end, .timeout = 600);

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

/* The confusion matrix of a run and of an evaluation. */
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

/* Training continues and says so once; an evaluation with a requested picture fails. */
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

/* Twelve images of one class and two of another: balanced, a run reads other images, and resumes
 * with the same bits. A broken one is replaced. */
Test(imagenet, balance)
{
    make_colours("set", 12);
    cr_assert(shell("cd set/train/blue && rm $(ls | tail -n +3) && echo none > $(ls | head -1)"));
    const char *flags = "train --data set --size 16 --batch 4 --epochs 3 --threads 1";
    succeed("%s --run-dir usual", flags);
    succeed("%s --run-dir balanced --balance", flags);
    cr_expect(strstr(out, "1 images could not be read"), "%s", out);
    cr_expect_not(same_bytes("usual/last.safetensors", "balanced/last.safetensors"));
    succeed("%s --run-dir again --balance --steps 4", flags);
    succeed("train --resume --run-dir again");
    cr_expect(same_bytes("again/last.safetensors", "balanced/last.safetensors"));
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

/* Validation names the number of images of its score; without any, there is no score. */
Test(imagenet, broken_validation_images)
{
    make_colours("set", 12);
    cr_assert(shell("ls set && first=$(ls set/val/red/* | head -1) && echo no image > $first"));
    succeed("train --data set --size 16 --batch 8 --epochs 3 --threads 1 --run-dir run");
    const char *named = strstr(out, "skipped: ");
    cr_expect(named && strstr(named, "val/red") && !strstr(named + 1, "skipped: "), "once: %s",
              out);
    cr_expect(strstr(out, " images  (best)"), "%s", out);
    slurp("run/log.jsonl", out, sizeof out);
    const double n = number_in(out, "test_images");
    cr_expect(n > 0);
    cr_assert(shell("for f in set/val/*/*; do echo no image > $f; done"));
    succeed("train --data set --size 16 --batch 8 --epochs 2 --threads 1 --run-dir none");
    cr_expect(strstr(out, "none of the images can be read"), "%s", out);
    expect_refusal("train --data set --size 16 --batch 8 --epochs 2 --strict --run-dir strict", 1,
                   "val/");
}

/* Validations on the test part: Figure 5a of ViT-LSLA. The log's best is what eval finds there. */
Test(imagenet, validation_on_the_test_part)
{
    make_colours("set", 12);
    cr_assert(shell("mkdir -p set/test/red set/test/blue && cp set/val/red/*.png set/test/blue && "
                    "cp $(ls set/val/blue/*.png | head -1) set/test/blue/99.png"));
    succeed("train --data set --size 16 --batch 8 --epochs 8 --threads 1 --flip 0 --run-dir valid");
    cr_expect(strstr(out, " 8 validation images") && strstr(out, "best top-1 100.00 %"), "%s", out);
    succeed("train --data set --size 16 --batch 8 --epochs 8 --threads 1 --flip 0 --run-dir run "
            "--validate test");
    cr_expect(strstr(out, "24 training images, 5 test images"), "%s", out);
    const char *best = strstr(out, "best top-1 ");
    cr_assert(best);
    const double top1 = strtod(best + 11, NULL);
    cr_expect(top1 < 100, "four of the five have a wrong label: %g", top1);
    succeed("eval --data set --run-dir run --split test --format json");
    cr_expect_float_eq(number_in(out, "top1"), top1, 0.0051);
    slurp("run/config.json", out, sizeof out);
    cr_expect(strstr(out, "\"validate\": \"test\""), "%s", out);
    expect_refusal("train --resume --run-dir run --validate valid", 1,
                   "--validate valid (checkpoint: test)");
}

/* Members changed by name are stored with the run, which resumes with them. */
Test(imagenet, members_by_name)
{
    make_colours("set", 2);
    succeed(
        "train --data set --size 32 --batch 2 --epochs 2 --steps 2 --threads 1 --preset swin-mini "
        "--set depths=1,1,1,mlp_ratio=2 --run-dir run");
    slurp("run/config.json", out, sizeof out);
    cr_expect(strstr(out, "\"set\": \"depths=1,1,1,mlp_ratio=2\""), "%s", out);
    expect_refusal("train --resume --run-dir run --set depths=2,1,1", 1,
                   "--set depths=2,1,1 (checkpoint: depths=1,1,1,mlp_ratio=2)");
    succeed("train --resume --run-dir run --steps 4");
    succeed("eval --data set --run-dir run");
    succeed("throughput --preset swin-mini --set depths=1,1,1 --batch 2 --seconds 0.01");
    cr_expect(strstr(out, " 1292374 parameters"), "%s", out);
    succeed("analyze --fresh --preset swin-mini --set depths=1,1,1 --what similarity --images 2 "
            "--out drawn");
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
        { "train --preset resnet", 1, "--preset: 'resnet' is not one of coat-mini, tiny, convnet" },
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
        { "train --plan --preset swin-mini --set depth=1", 1,
          "--set: 'depth' is no member of swin; did you mean 'depths'?" },
        { "train --plan --preset swin-mini --set drop_path=0.3", 1,
          "--set: drop_path is set by --drop-path of imagenet train" },
        { "throughput --preset swin-mini --set window=9", 1,
          "--set: stage 0: a map of 16 x 16 does not" },
        { "analyze --set ape=1 --run-dir run", 1, "--set: it changes the model of --fresh" },
        { "train --resume --run-dir run --data set", 1,
          "was trained on other classes: class 0 is 'disc' in the model and 'blue' in the images" },
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
        { "throughput --preset cvt-small --random-shift", 1,
          "--random-shift: cvt-small has no windows that see all their neighbours" },
        { "throughput --preset vil-full-small --random-shift", 1, "vil-full-small has no windows" },
        { "throughput --preset vil-small --vary mode=0/mode=-1 --random-shift --dry", 1,
          "vil-small with mode=-1 has no windows" },
        { "throughput --vary edge=mask//edge=exact", 1,
          "--vary: 'edge=mask//edge=exact' is not a list like edge=exact/edge=mask" },
        { "throughput --vary ''", 1, "--vary: '' is not a list like" },
        { "throughput --vary a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q", 1,
          "--vary: at most 16 changes can be compared" },
        { "throughput --preset vil-small --vary edge=mask/edg=exact --dry", 1,
          "--set: 'edg' is no member of vision-longformer; did you mean 'edge'?" },
        { "throughput --dry --picture bars.jpg", 1,
          "bars.jpg was not drawn: end the name in .png or .svg" },
        { "throughput --random-shft", 2, "did you mean --random-shift?" },
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
    static const char *const commands[] = { "train",      "eval",  "predict", "robust",
                                            "throughput", "table", "analyze", "scale" };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        succeed("%s --help", commands[i]);
        cr_expect(strstr(out, "NAME\n") && strstr(out, "EXIT STATUS\n"), "%s", commands[i]);
    }
    succeed("--version");
    succeed("throughput --batch 2 --seconds 0.01 --threads 1");
    cr_expect(strstr(out, "forward ") && strstr(out, "training ") && strstr(out, " images/s"), "%s",
              out);
}

/* The number before MB in a line that begins with a word, from `at` on. */
static double memory_of(const char *at, const char *word)
{
    const char *line = strstr(at, word), *end = line ? strstr(line, " MB") : NULL;
    cr_assert(end && end < strchr(line + 1, '\n'), "%s: %s", word, at);
    while (end > line && strchr("0123456789.", end[-1])) end--;
    return strtod(end, NULL);
}

/* ViL's Figures 6, 7 and 10: steps with random shift, changes of the model; memory without steps
 * is that of steps. */
Test(imagenet, throughput_of_variants)
{
    succeed("throughput --preset vil-small --size 32 --batch 2 --seconds 0.01 --threads 1 "
            "--random-shift --clock cpu");
    cr_expect(strstr(out, ", CPU time\n") && strstr(out, "\nshifted "), "%s", out);
    const double training = memory_of(out, "\ntraining "), shifted = memory_of(out, "\nshifted ");
    succeed("throughput --preset vil-small --size 32 --batch 2 --random-shift --dry");
    cr_expect(!strstr(out, "images/s") && !strstr(out, "median"), "%s", out);
    cr_expect_float_eq(memory_of(out, "\ntraining ") / training, 1, 0.05, "%s", out);
    cr_expect_float_eq(memory_of(out, "\nshifted ") / shifted, 1, 0.05, "%s", out);
    succeed("throughput --preset vil-small --size 32 --batch 2 --seconds 0.01 --threads 1 "
            "--set avg_pool=1 --vary edge=exact/edge=mask,share_w=0");
    const char *second = strstr(out, "vil-small with edge=mask,share_w=0, 32 x 32 pixels");
    cr_assert(second && strncmp(out, "vil-small with edge=exact, ", 27) == 0, "%s", out);
    cr_expect(strstr(second, "\ntraining ") && !strstr(out, "shifted"), "%s", out);
    succeed("throughput --preset vil-small --dry --vary "
            "arch=l1,h2,d32,n1,s1,g1,p4,f3,a0_l2,h4,d64,n1,s0,g1,p2,f3,a0/"
            "arch=l1,h2,d32,n1,s1,g1,p4,f4,a0_l2,h4,d64,n2,s0,g1,p2,f4,a0");
    cr_expect(strstr(out, "vil-small with f3,n1, ") && strstr(out, "vil-small with f4,n2, "), "%s",
              out);
    succeed("throughput --preset vil-small --dry --vary share_w=0/share_w=1");
    cr_expect(strstr(out, "vil-small with share_w=0, "), "%s", out);
    if (!shell("command -v gnuplot >/dev/null")) return;
    succeed("throughput --preset vil-small --size 32 --batch 2 --seconds 0.01 --random-shift "
            "--picture bars.svg");
    slurp("bars.svg", out, sizeof out);
    cr_expect(strstr(out, ">shifted<") && strstr(out, ">images per second<") &&
                  strstr(out, ">peak memory, MB<"),
              "%s", out);
    succeed("throughput --preset vil-small --size 32 --dry --picture bars.svg");
    slurp("bars.svg", out, sizeof out);
    cr_expect(!strstr(out, ">images per second<") && strstr(out, ">training<"), "%s", out);
}

/* ---- one attention by the size of its map ---- */

/* The number behind a key in the line of JSON that contains `of`. */
static double number_of(const char *of, const char *key)
{
    const char *line = strstr(out, of);
    cr_assert(line, "%s: %s", of, out);
    return number_in(line, key);
}

/* A step holds at least queries, keys and values with their gradients, and memory grows in
 * proportion to the map (16 times as much for four times the tokens if scores were stored); a
 * forward pass needs less. */
Test(imagenet, scale_counts_memory)
{
#define CHUNKS "\"map\":%d,\"dim\":32,\"batch\":2,\"heads\":2,\"global\":1,\"window\":7,\"edge\":"
    static const char *const of[] = {
        "\"attention\":\"full\",\"map\":%d",
        CHUNKS "\"exact\"",
        CHUNKS "\"mask\"",
        CHUNKS "\"cyclic\"",
    };
    const char *flags = "--maps 64,128 --windows 7 --edges exact,mask,cyclic --dim 32 --heads 2 "
                        "--batch 2 --format json --threads 1";
    for (int forward = 0; forward < 2; forward++) {
        succeed("scale --dry %s %s", flags, forward ? "--forward" : "");
        for (int i = 0; i < 4; i++) {
            double bytes[2];
            for (int k = 0; k < 2; k++) {
                char at[120];
                snprintf(at, sizeof at, of[i], 64 << k);
                bytes[k] = number_of(at, "bytes");
            }
            const double inputs = 4.0 * 3 * 2 * 128 * 128 * 32;
            cr_expect(bytes[1] > (forward ? 1 : 2) * inputs &&
                          bytes[1] < (forward ? 2.5 : 5) * inputs,
                      "%s: %s", of[i], out);
            cr_expect_float_eq(bytes[1] / bytes[0], 4, 1, "%s: %s", of[i], out);
        }
    }
}

Test(imagenet, scale_measures_and_refuses)
{
    static const char *const bad[][2] = {
        { "--attentions chunk", "'chunk' is not one of full|chunks; did you mean 'chunks'?" },
        { "--edges exact,masked", "--edges: 'masked' is not one of exact|mask|cyclic; did you" },
        { "--windows 8", "--windows: 8 is even" },
        { "--windows 7,1", "--windows: '1' is not a whole number from 3 to 999" },
        { "--maps 0", "--maps: '0' is not a whole number from 1 to 4096" },
        { "--dim 10 --heads 3", "--dim 10 is not a multiple of --heads 3" },
        { "--dry --maps 8 --picture a.gif", "end the name in .png or .svg" },
    };
    for (int global = 0; global < 2; global++) {
        succeed("scale --maps 7,8 --windows 5,9 --dim 8 --heads 2 --global %d --seconds 0.01 "
                "--threads 1 --picture scale.svg --format json",
                global);
        cr_expect(number_of("\"attention\":\"full\",\"map\":8", "ms") > 0, "%s", out);
        cr_expect(number_of("\"window\":9,\"edge\":\"mask\"", "ms") > 0, "%s", out);
    }
    cr_expect(shell("grep -q 'window 9, mask' scale.svg && grep -q 'global tokens 1' scale.svg"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char args[200];
        snprintf(args, sizeof args, "scale %s", bad[i][0]);
        expect_refusal(args, 1, bad[i][1]);
    }
}
