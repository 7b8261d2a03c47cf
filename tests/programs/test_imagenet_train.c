/* test_imagenet_train.c - training with the program imagenet: stopping and resuming gives the same
 * bits, and recipes and flags set the updates that they name. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>

#include "support/checkpoint.h"
#include "support/imagenet.h"
#include "support/sanitized.h"

TestSuite(imagenet_train, .init = imagenet_begin, .fini = program_end, .timeout = 600);

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

Test(imagenet_train, resume_is_exact)
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
        if (case_is_taken(i)) expect_resume(runs[i].name, runs[i].flags);
}

Test(imagenet_train, resume_of_models_is_exact)
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
          "--preset vil-small --set attn_type=performer --shapes 20 --batch 4 --redraw-growth 1" },
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
        if (case_is_taken(i)) expect_resume(runs[i].name, runs[i].flags);
}

/* The first update of adamw-vil follows the specification: epsilon is added to the uncorrected
 * root, decay applies to the updated parameter, the head's bias does not decay. */
Test(imagenet_train, adamw_of_vil)
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
Test(imagenet_train, rates_of_vil)
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

/* Length and warm-up given in updates: learning rates, the end, and the same bits if stopped. */
Test(imagenet_train, lengths_in_updates)
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

/* A block's rate is the next block's, decayed. */
Test(imagenet_train, layer_decay)
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

/* The averaged weights are either validated or only kept. */
Test(imagenet_train, averages_aside)
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

/* ResNet resizes images bilinearly in training and evaluation, also with published weights. */
Test(imagenet_train, filter)
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
Test(imagenet_train, quasi_hyperbolic_momentum)
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
Test(imagenet_train, features_are_redrawn)
{
    static const char matrix[] = "layer1.1.attn.fast_attention.projection_matrix";
    static const char flags[] = "train --preset vil-small --set attn_type=performer --threads 1 "
                                "--shapes 10 --size 16 --batch 2 --steps";
    succeed("%s 1 --run-dir first", flags);
    succeed("%s 2 --run-dir second", flags);
    succeed("%s 3 --run-dir third", flags);
    succeed("%s 2 --run-dir never --redraw 0", flags);
    cr_expect(tensor_distance("first/last.safetensors", "second/last.safetensors", matrix) > 0.1);
    cr_expect_eq(tensor_distance("second/last.safetensors", "third/last.safetensors", matrix), 0);
    cr_expect_eq(tensor_distance("first/last.safetensors", "never/last.safetensors", matrix), 0);
}

/* Counts that no run reaches are refused. A redraw due after 2^63 batches never happens. */
Test(imagenet_train, extreme_counts_of_features)
{
    static const char matrix[] = "layer1.1.attn.fast_attention.projection_matrix";
    static const char flags[] = "train --preset vil-small --set attn_type=performer --threads 1 "
                                "--shapes 10 --size 16 --batch 10 --redraw 1000000 "
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
