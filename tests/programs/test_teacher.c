/* test_teacher.c - `imagenet train --teacher` as a user runs it: what each head learns, that a
 * stopped run gives the same bits, that memory is planned, and one clear message for teachers that
 * do not fit. The losses themselves are compared with reference cases (test_fixtures). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>

#include "support/checkpoint.h"
#include "support/images.h"
#include "support/program.h"
#include "support/sanitized.h"

#define SMALL "--threads 1 --shapes 40 --size 32 --batch 8 --epochs 2 --log-every 2 "
#define WHOLE "--threads 1 --shapes 40 --size 32 --batch 40 --crop none --flip 0 --log-every 1 "

/* A teacher with batch norms, which must use their running statistics. */
static void begin(void)
{
    program_begin("imagenet");
    succeed("train " SMALL "--shapes 16 --epochs 1 --preset resnet-mini --run-dir resnet");
}

TestSuite(teacher, .init = begin, .fini = program_end, .timeout = 600);

/* ---- resuming ---- */

Test(teacher, resume_is_exact)
{
    static const struct {
        const char *name, *flags;
    } runs[] = {
        { "two heads, hard", "--preset deit-mini-distilled --teacher resnet --drop-path 0.2" },
        { "two heads, soft, mixing, steps of two batches",
          "--preset deit-mini-distilled --recipe deit --teacher resnet --distill soft "
          "--distill-tau 3 --accumulation 2 --epochs 3 --repeats 2" },
        { "one head, batch norm", "--preset resnet-mini --teacher resnet --ema 0.9" },
        { "published weights, bf16",
          "--preset tiny --teacher published.bin --teacher-preset resnet-mini --dtype bf16" },
        { "f64", "--preset tiny --teacher resnet/last.safetensors --dtype f64" },
    };
    publish_weights("resnet/last.safetensors", "published.bin");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (!case_is_taken(i)) continue;
        succeed("train " SMALL "%s --run-dir a --overwrite", runs[i].flags);
        succeed("train " SMALL "%s --run-dir b --overwrite --steps 3", runs[i].flags);
        succeed("train --resume --run-dir b --threads 2 --workers 3");
        cr_expect(update_in("b/last.safetensors") > 3, "%s", runs[i].name);
        cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"), "%s", runs[i].name);
    }
}

/* The teacher may move, but not change. */
Test(teacher, resume_with_another_teacher)
{
    static const char differ[] = "differ from those of this run's teacher; give that one with "
                                 "--teacher\n";
    succeed("train " SMALL "--preset tiny --teacher resnet --run-dir straight");
    succeed("train " SMALL "--preset tiny --teacher resnet --run-dir run --steps 3");
    succeed("train " SMALL "--preset resnet-mini --seed 7 --run-dir other");
    succeed("train " SMALL "--preset tiny --run-dir alone --steps 3");
    cr_assert(shell("mv resnet moved"));
    expect_refusal("train --resume --run-dir run", 1, "resnet: cannot be opened");
    expect_refusal("train --resume --run-dir run --teacher other", 1, differ);
    expect_refusal("train --resume --run-dir alone --teacher other", 1,
                   "--distill none trains without a teacher: leave --teacher out");
    succeed("train --resume --run-dir run --teacher moved");
    static const char *const tensors[] = { "head.weight", "optim.m.head.weight" };
    for (int i = 0; i < 2; i++)
        cr_expect_eq(
            tensor_distance("straight/last.safetensors", "run/last.safetensors", tensors[i]), 0);
}

/* ---- training ---- */

static double first_loss(const char *log)
{
    slurp(log, out, sizeof out);
    const char *at = strstr(out, "\"loss\":");
    cr_assert(at, "%s", out);
    return strtod(at + 7, NULL);
}

/* Two heads: with alpha 1 the class head learns nothing, with alpha 0 the distillation head. */
Test(teacher, each_loss_has_its_head)
{
    static const char flags[] = "train " SMALL "--preset deit-mini-distilled --teacher resnet "
                                "--weight-decay 0 --init start/last.safetensors --steps 3";
    succeed("train " SMALL "--preset deit-mini-distilled --lr 1e-12 --steps 1 --run-dir start");
    succeed("%s --distill-alpha 1 --run-dir theirs", flags);
    succeed("%s --distill-alpha 0 --run-dir labels", flags);
    succeed("%s --distill soft --run-dir both", flags);
    static const struct {
        const char *run, *head;
        bool learns;
    } cases[] = {
        { "theirs/last.safetensors", "head.weight", false },
        { "theirs/last.safetensors", "head_dist.weight", true },
        { "labels/last.safetensors", "head.weight", true },
        { "labels/last.safetensors", "head_dist.weight", false },
        { "both/last.safetensors", "head.weight", true },
        { "both/last.safetensors", "head_dist.weight", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double d = tensor_distance("start/last.safetensors", cases[i].run, cases[i].head);
        cr_expect(cases[i].learns ? d > 1e-5 : d == 0, "%s, %s: %g", cases[i].run, cases[i].head,
                  d);
    }
}

/* One head: alpha weighs the two losses, and alpha 0 trains as without a teacher. */
Test(teacher, one_head_learns_both)
{
    static const char flags[] = "train " WHOLE "--preset tiny --steps 3";
    static const char *const alphas[] = { "0", "0.3", "1" };
    double loss[3];
    succeed("%s --run-dir alone", flags);
    for (int i = 0; i < 3; i++) {
        char log[64];
        succeed("%s --teacher resnet --distill-alpha %s --run-dir a%d", flags, alphas[i], i);
        snprintf(log, sizeof log, "a%d/log.jsonl", i);
        loss[i] = first_loss(log);
    }
    cr_expect_float_eq(loss[1], 0.7 * loss[0] + 0.3 * loss[2], 1e-5, "%g, not between %g and %g",
                       loss[1], loss[0], loss[2]);
    cr_expect(fabs(loss[2] - loss[0]) > 1e-4);
    cr_expect_eq(tensor_distance("alone/last.safetensors", "a0/last.safetensors", "head.weight"),
                 0);
    cr_expect(tensor_distance("alone/last.safetensors", "a2/last.safetensors", "head.weight") >
              1e-4);
}

/* A student with its teacher's weights has nothing to learn: both compute the same, and the teacher
 * is not trained along. */
Test(teacher, a_student_equals_its_teacher)
{
    static const char flags[] = "train " SMALL "--preset deit-mini --teacher deit --distill soft "
                                "--distill-alpha 1 --init deit/last.safetensors --steps 4 "
                                "--weight-decay 0 --optimizer sgd --lr 0.1";
    succeed("train " SMALL "--preset deit-mini --run-dir deit --steps 5");
    cr_assert(shell("rm deit/best.safetensors"));
    succeed("%s --run-dir same", flags);
    cr_expect(fabs(first_loss("same/log.jsonl")) < 1e-7, "%s", out);
    cr_expect(tensor_distance("deit/last.safetensors", "same/last.safetensors", "head.weight") <
              1e-6);
    succeed("%s --drop-path 0.5 --run-dir dropped", flags);
    cr_expect(first_loss("dropped/log.jsonl") > 1e-6, "%s", out);
}

/* Two batches of 4 are one update like a batch of 8. */
Test(teacher, accumulated_batches)
{
    static const char flags[] =
        "train --threads 1 --shapes 40 --size 32 --preset deit-mini-distilled "
        "--teacher resnet --crop none --flip 0 --lr 0.01 --optimizer sgd "
        "--warmup 0 --steps 3";
    static const char *const tensors[] = { "head.weight", "head_dist.weight",
                                           "blocks.0.attn.qkv.weight" };
    succeed("%s --batch 8 --run-dir whole", flags);
    succeed("%s --batch 4 --accumulation 2 --run-dir parts", flags);
    succeed("%s --batch 4 --run-dir half", flags);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const double same =
            tensor_distance("whole/last.safetensors", "parts/last.safetensors", tensors[i]);
        const double other =
            tensor_distance("whole/last.safetensors", "half/last.safetensors", tensors[i]);
        cr_expect(same < 1e-6 && other > 100 * same, "%s: %g, %g", tensors[i], same, other);
    }
}

/* Every family teaches, and learns from a convolutional network. */
Test(teacher, all_families)
{
    static const char *const presets[] = {
        "convnet",   "cvt-small",  "cvt-ls-small", "vil-small",  "vil-full-small",
        "deit-mini", "lsla-small", "pvt-mini",     "pvt2-mini",  "deit-mini-distilled",
        "swin-mini", "cswin-mini", "coat-mini",    "mpvit-mini",
    };
    static const char few[] = "--threads 1 --shapes 10 --size 32 --batch 5 --epochs 1 --steps 1 "
                              "--overwrite --log-every 1";
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (!case_is_taken(i)) continue;
        succeed("train %s --preset %s --teacher resnet --run-dir taught", few, presets[i]);
        succeed("train %s --preset tiny --teacher taught --distill soft --run-dir student", few);
        cr_expect(isfinite(first_loss("student/log.jsonl")), "%s", presets[i]);
    }
}

/* Checkpoints hold only the student. */
Test(teacher, files)
{
    succeed("train " SMALL "--preset tiny --teacher resnet --run-dir run");
    cr_expect(strstr(out, "/resnet/best.safetensors (resnet): 1620778 parameters") &&
                  strstr(out, "distillation hard, alpha 0.5, tau 1"),
              "%s", out);
    succeed("train " SMALL "--preset tiny --run-dir alone");
    tp_file *a = tp_file_open("run/last.safetensors"), *b = tp_file_open("alone/last.safetensors");
    cr_expect_eq(tp_file_count(a), tp_file_count(b));
    tp_file_close(a);
    tp_file_close(b);
    succeed("eval --run-dir run --shapes 20");
    slurp("run/config.json", out, sizeof out);
    cr_expect(strstr(out, "\"teacher\": \"resnet\"") && strstr(out, "\"distill\": \"hard\""), "%s",
              out);
}

/* The plan counts the teacher's weights and agrees with the run. */
Test(teacher, plan)
{
    static const char *const flags[] = { "", "--dtype bf16 --ema 0.9" };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char args[512];
        double other, weights, peak, alone;
        snprintf(args, sizeof args, "train " SMALL "--preset tiny %s", flags[i]);
        succeed("%s --plan", args);
        const char *row = strstr(out, "peak of a step");
        cr_assert(row && sscanf(row, "peak of a step %lf", &alone) == 1, "%s", out);
        cr_assert(sscanf(strstr(out, "weights"), "weights %lf", &weights) == 1, "%s", out);
        cr_expect(!strstr(out, "other models"), "%s", out);
        succeed("%s --plan --teacher resnet", args);
        row = strstr(out, "other models");
        cr_assert(row && sscanf(row, "other models %lf", &other) == 1, "%s", out);
        cr_expect(other > 4 * 1.62 && other < 12 * 1.62, "%g MB", other);
        cr_expect(strstr(out, "Time here: about "), "%s", out);
        double again = 0;
        sscanf(strstr(out, "\nweights"), "\nweights %lf", &again);
        cr_expect_float_eq(again, weights, 0.051, "%g, not %g MB", again, weights);
        row = strstr(out, "peak of a step");
        cr_assert(row && sscanf(row, "peak of a step %lf", &peak) == 1, "%s", out);
        cr_expect(peak >= alone + 4 * 1.62, "%g MB after %g", peak, alone);
        succeed("%s --teacher resnet --run-dir run --overwrite", args);
        slurp("run/log.jsonl", out, sizeof out);
        const double taken = strtod(strstr(out, "\"memory\":") + 9, NULL) / 1e6;
        cr_expect(fabs(peak - taken) < 0.02 * taken, "%g MB, a run took %g", peak, taken);
    }
}

/* ---- teachers that do not fit ---- */

Test(teacher, refusals)
{
    static const struct {
        const char *flags;
        int status;
        const char *message;
    } bad[] = {
        { "--distill hard", 1, "--distill hard needs a teacher: give --teacher" },
        { "--distill soft", 1, "--distill soft needs a teacher: give --teacher" },
        { "--teacher resnet --distill none", 1,
          "--distill none trains without a teacher: leave --teacher out" },
        { "--teacher-preset tiny", 1,
          "--teacher-preset names the model of a teacher: give --teacher" },
        { "--teacher none.pth", 1, "none.pth: cannot be opened" },
        { "--teacher empty", 1, "empty/last.safetensors: cannot be opened" },
        { "--teacher cut", 1, "the file is cut off" },
        { "--teacher resnet --size 64", 1,
          "takes images of 32 x 32 pixels, this run has 64 x 64: give --size 32 or another "
          "teacher" },
        { "--teacher resnet --data set", 1,
          "has 10 classes, the images have 2: it must have been trained on the same "
          "classes" },
        { "--teacher two --data other", 1, "was trained on other classes: class 1 is" },
        { "--teacher published.bin", 1,
          "does not say which model it holds: name it with --teacher-preset" },
        { "--teacher published.bin --teacher-preset resnet", 1,
          "--teacher-preset: 'resnet' is not one of" },
        { "--teacher resnet --teacher-preset resnet-mini", 1,
          "says which model it holds: leave the flag out" },
        { "--teacher resnet --run-dir resnet --overwrite", 1,
          "/resnet/best.safetensors is in this run's own folder: choose another --run-dir" },
        { "--teacher resnet --distill firm", 2, "--distill: 'firm' is not one of none|hard|soft" },
        { "--teacher resnet --distill-alpha 1.5", 2, "--distill-alpha" },
        { "--teacher resnet --distill soft --distill-tau 0", 2, "--distill-tau" },
    };
    publish_weights("resnet/last.safetensors", "published.bin");
    make_colours("set", 8);
    succeed("train --data set --size 32 --batch 8 --epochs 1 --threads 1 --run-dir two");
    cr_assert(shell("mkdir empty; head -c 90000 resnet/last.safetensors >cut; cp -r set other; "
                    "mv other/train/red other/train/green; mv other/val/red other/val/green"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char args[400];
        snprintf(args, sizeof args, "train " SMALL "--preset tiny --run-dir fresh %s",
                 bad[i].flags);
        expect_refusal(args, bad[i].status, bad[i].message);
        snprintf(args, sizeof args, "train " SMALL "--plan --preset tiny %s", bad[i].flags);
        expect_refusal(args, bad[i].status, bad[i].message);
    }
    expect_refusal("train " SMALL
                   "--run-dir fresh --teacher published.bin --teacher-preset resnet-18",
                   1, "the teacher ");
    cr_expect(shell("test ! -e fresh/last.safetensors"));
}
