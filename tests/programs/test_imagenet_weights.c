/* test_imagenet_weights.c - the program imagenet with weights from elsewhere: published ones, and
 * those of runs with other classes, image sizes and models. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/file.h>
#include <tapegrad/image.h>
#include <tapegrad/vision.h>

#include "support/checkpoint.h"
#include "support/imagenet.h"
#include "support/images.h"

TestSuite(imagenet_weights, .init = imagenet_begin, .fini = program_end, .timeout = 600);

/* An image of wide x 16 pixels, red in its middle 16 columns, blue at its ends. */
static void write_wide(const char *name, int wide)
{
    tp_image p = { 0 };
    cr_assert(tp_image_new(&p, wide, 16));
    for (int i = 0; i < wide * 16; i++) {
        const int off = 2 * (i % wide) - wide;
        p.rgb[3 * i + (off >= -16 && off < 16 ? 0 : 2)] = 200;
    }
    cr_assert(tp_image_write(&p, name), "%s", p.why);
    tp_image_free(&p);
}

/* The loss over two images, of which one has that width. Models of up to 32 pixels never crop. */
static double loss_of(int wide, const char *flag)
{
    write_wide("wide/val/red/0.png", wide);
    succeed("eval --data wide --checkpoint run/last.safetensors --format json %s", flag);
    return number_in(out, "loss");
}

Test(imagenet_weights, squeezed_images)
{
    make_colours("set", 12);
    succeed("train --data set --size 48 --batch 8 --epochs 2 --threads 1 --run-dir run");
    cr_assert(shell("cp -r set wide && rm wide/val/*/*"));
    write_wide("wide/val/blue/0.png", 16);
    const double square = loss_of(16, "--squeeze");
    cr_expect_eq(loss_of(16, "--crop-ratio 1"), square);
    cr_expect_neq(loss_of(64, "--squeeze"), loss_of(64, "--crop-ratio 1"));
    expect_refusal("eval --data wide --checkpoint run/last.safetensors --squeeze --crop-ratio 1", 2,
                   "--squeeze crops nothing: leave out --crop-ratio");
}

Test(imagenet_weights, published_weights)
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
        "train --data set --size 16 --batch 8 --epochs 1 --run-dir other --preset cvt-small "
        "--resize --init published.bin",
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
                   "imagenet predict: large: num_classes = 70000 must be 0 to 65536");
    succeed(
        "throughput --weights published.bin --preset tiny --batch 2 --seconds 0.01 --threads 1");
    cr_expect(strstr(out, "training"), "%s", out);
    expect_refusal("throughput --weights published.bin --preset convnet --batch 2", 1,
                   "does not fit these parameters");
    expect_refusal("throughput --weights none.pth --preset tiny --batch 2", 1, "none.pth");
}

Test(imagenet_weights, init_with_another_head)
{
    make_colours("set", 12);
    succeed("train " SMALL "--run-dir ten");
    static const char two[] = "train --data set --size 16 --batch 8 --epochs 1 --threads 1 "
                              "--overwrite --run-dir two --init ten/best.safetensors ";
    expect_refusal(two, 1, "the head of ten/best.safetensors has 10 classes, the images have 2");
    succeed("%s --head slice --lr 1e-9 --lr-end 0", two);
    cr_expect(strstr(out, "warning: the head of ten/best.safetensors begins with rows of other "
                          "classes: class 0 is 'disc' in the model and 'blue' in the images"),
              "%s", out);
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
    expect_refusal(
        "eval --data set --run-dir ten", 1,
        "was trained on other classes: the model has 0 of the images' 2 classes, but no 'blue'");
}

/* Position tables are resized to the image size only on request. */
Test(imagenet_weights, init_at_another_resolution)
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
    expect_refusal(args, 1,
                   "holds another model: vit-lsla, not cvt; give its --preset or another file");
    expect_refusal("train --preset lsla-small --size 24 --run-dir odd", 1, "impossible model: ");
    succeed("eval --run-dir low --shapes 20 --size 32 --threads 1");
}

/* --init --resize resizes tables of every kind bilinearly by the papers' rule and copies the other
 * weights. */
Test(imagenet_weights, resized_tables)
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
