/* test_coco_program.c - the program coco as a user runs it, on small drawn scenes and their files:
 * stopping, killing and resuming give the same bits, the commands agree with each other, every bad
 * input gives one clear message. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coco_settings.h"
#include "support/checkpoint.h"
#include "support/program.h"
#include "support/sanitized.h"

#define SCENES "--scenes 12 --valid-scenes 4 --scene-size 64 "
#define LIST   "files/annotations/instances_train2017.json"
#define FILES  LIST " --images files/train2017 "
#define SMALL  SCENES "--sizes 64 --size 64 --longest 64 --batch 4 --threads 1 --warmup 2 "

static void begin(void)
{
    program_begin("coco");
}

TestSuite(coco_program, .init = begin, .fini = program_end, .timeout = 900);

/* ---- resuming ---- */

Test(coco_program, resume_is_exact)
{
    static const char *const runs[] = {
        "--preset retinanet-resnet-mini --ema 0.9 --sizes 48,64 --workers 2",
        "--preset retinanet-vil-mini --drop-path 0.2 --recompute block --profile mm",
        "--preset mask-rcnn-vil-mini --accumulation 2 --schedule milestones --milestones 2,4",
        "--preset mask-rcnn-resnet-mini --dtype f64 --no-mirror",
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (!case_is_taken(i)) continue;
        const char *rest = "--log-every 3 --steps 5 --overwrite";
        succeed("train " SMALL "%s %s --run-dir a", rest, runs[i]);
        succeed("train " SMALL "%s %s --run-dir b --time 0.000001", rest, runs[i]);
        cr_expect_eq(update_in("b/last.safetensors"), 1, "%s", runs[i]);
        succeed("train --resume --run-dir b --threads 2 --workers 3");
        cr_expect_eq(update_in("b/last.safetensors"), 5, "%s", runs[i]);
        cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"), "%s", runs[i]);
    }
}

Test(coco_program, a_killed_run_resumes)
{
    const char *flags =
        "train " SMALL "--schedule constant --log-every 1 --checkpoint-every 1 --eval-every 0 "
        "--run-dir a --steps 100000";
    const pid_t child = start(flags);
    int status;
    await_reports("a/log.jsonl", 4);
    cr_assert_eq(kill(child, SIGKILL), 0);
    waitpid(child, &status, 0);
    const int64_t u = update_in("a/last.safetensors");
    cr_expect_geq(u, 3);
    succeed("train --resume --run-dir a --steps %lld", (long long)u + 2);
    succeed("train " SMALL "--schedule constant --log-every 1 --checkpoint-every 1 --eval-every 0 "
            "--run-dir b --steps %lld",
            (long long)u + 2);
    cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"));
}

/* ---- commands that agree ---- */

Test(coco_program, eval_equals_validation)
{
    succeed("train " SMALL
            "--preset mask-rcnn-resnet-mini --steps %d --eval-every %d --run-dir run",
            sanitized() ? 6 : 60, sanitized() ? 2 : 20);
    slurp("run/log.jsonl", out, sizeof out);
    const char *last = strstr(out, "valid_ap");
    cr_assert(last, "%s", out);
    const double ap = number_in(out, "valid_ap"), mask = number_in(out, "mask_AP");
    succeed("eval --run-dir run --threads 1 --format json --classes --checkpoint "
            "run/last.safetensors --write found.json --batch 3");
    const char *masks = strstr(out, "\"mask\"");
    cr_assert(masks && strstr(out, "\"star\""), "%s", out);
    cr_expect(sanitized() || (ap > 0.1 && mask > 0.1),
              "the model must have learned something: %g, %g", ap, mask);
    cr_expect_float_eq(number_in(out, "AP"), ap, 1e-3);
    cr_expect_float_eq(number_in(masks, "AP"), mask, 1e-3);
    succeed("scenes --out files " SCENES);
    succeed("eval --data files --results found.json --format json");
    cr_expect_float_eq(number_in(out, "AP"), ap, 1e-3);
    succeed("eval --data files --run-dir run --threads 1 --checkpoint run/last.safetensors");
    cr_expect(strstr(out, "boxes") && strstr(out, "masks") && strstr(out, "AR@100"), "%s", out);
}

/* Changed members are stored: resumed runs, eval and predict use them. */
Test(coco_program, changed_members)
{
    const char *flags =
        "--preset retinanet-resnet-mini --set convs=1,dim=16,backbone.layers=1,1,2,1";
    expect_refusal("train --preset retinanet-vil-mini --set convs=1,backbone.drop_path=0.1", 1,
                   "--set: drop_path is set by --drop-path of coco train");
    succeed("train " SMALL "%s --steps 4 --run-dir a", flags);
    succeed("train " SMALL "%s --steps 4 --run-dir b --time 0.000001", flags);
    succeed("train --resume --run-dir b");
    cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"));
    succeed("eval --run-dir b --threads 1 --format json");
    succeed("predict --run-dir b --threads 1 --score 0 --results found.json");
    cr_expect(shell("grep -aq '\"detector.set\":\"convs=1,dim=16,backbone.layers=1,1,2,1\"' "
                    "b/last.safetensors"));
    expect_refusal("train --resume --run-dir b --set convs=2", 1, "--set");
    succeed("plan --preset retinanet-resnet-mini --set convs=1,dim=16");
    cr_expect(strstr(out, "retinanet-resnet-mini"), "%s", out);
}

Test(coco_program, categories_of_one_name)
{
    cr_assert(shell("echo '{\"images\":[{\"id\":1,\"width\":9,\"height\":9}],\"annotations\":[],"
                    "\"categories\":[{\"id\":3,\"name\":\"cat\"},{\"id\":7,\"name\":\"cat\"}]}' > "
                    "two.json; echo '[]' > none.json"));
    succeed("eval --annotations two.json --results none.json --classes --format json");
    cr_expect(strstr(out, "\"id\":3,\"name\":\"cat\"") && strstr(out, "\"id\":7,\"name\":\"cat\""),
              "%s", out);
}

Test(coco_program, predictions)
{
    succeed("train " SMALL
            "--preset mask-rcnn-vil-mini --steps 2 --lr 1e-6 --run-dir run"); /* equal scores */
    succeed("scenes --out files " SCENES);
    succeed("predict --run-dir run --threads 1 --score 0.1 --sheet sheet.png --truth --draw drawn "
            "--results found.json");
    cr_expect(shell("test -s sheet.png && test -s found.json && test $(ls drawn | wc -l) = 4"));
    char first[sizeof out];
    memcpy(first, out, sizeof out);
    succeed("predict --run-dir run --threads 1 --score 0.1 files/val2017/scene_000000.png");
    cr_expect(strstr(out, "scene_000000.png"), "%s", out);
    /* the same detections in the file as in the drawn scene */
    const char *a = strchr(first, '\t'), *b = strchr(out, '\t');
    cr_assert(a && b);
    cr_expect_eq(strncmp(a, b, 12), 0, "%.40s %.40s", a, b);
    succeed("predict --run-dir run --threads 1 --score 1 files/val2017/scene_000000.png");
    cr_expect(!out[0] && strstr(errors, "--score lowers it"), "%s%s", out, errors);
}

/* The last loss in a run's log. */
static double last_loss(const char *log)
{
    static char text[1 << 16];
    slurp(log, text, sizeof text);
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, "\"loss\":")); at++) last = at;
    cr_assert(last, "no loss in %s", log);
    return number_in(last, "loss");
}

/* A sheet has room for images without a size in the annotations. */
static void expect_sheets_of_unknown_sizes(void)
{
    cr_assert(
        shell("sed -E 's/\"(width|height)\":[0-9]+/\"\\1\":0/g' "
              "files/annotations/instances_val2017.json > unknown.json && ! cmp -s unknown.json "
              "files/annotations/instances_val2017.json"));
    succeed("predict --run-dir a --data files --threads 1 --truth --sheet known.png");
    succeed("predict --run-dir a --annotations unknown.json --images files/val2017 --threads 1 "
            "--truth --sheet unknown.png");
    cr_expect(same_bytes("known.png", "unknown.png"));
}

Test(coco_program, data_of_files)
{
    succeed("scenes --out files " SCENES);
    const char *rest = sanitized() ? "--steps 4 --eval-every 0 --log-every 1"
                                   : "--steps 30 --eval-every 0 --log-every 1";
    succeed("train " SMALL "--data files --recipe scenes %s --run-dir a", rest);
    succeed("train " SMALL "%s --run-dir b", rest);
    succeed("train " SMALL "--recipe scenes %s --run-dir c --annotations "
            "files/annotations/instances_train2017.json --images files/train2017",
            rest);
    /* files and drawn scenes have the same pixels and objects */
    const double loss = last_loss("b/log.jsonl");
    cr_expect(loss > 0);
    cr_expect_float_eq(last_loss("a/log.jsonl"), loss, 1e-5 * loss);
    cr_expect_float_eq(last_loss("c/log.jsonl"), loss, 1e-5 * loss);
    for (int part = 0; part < 2; part++) {
        const char *name = part ? "valid" : "train";
        succeed("eval --run-dir a --data files --threads 1 --format json --part %s", name);
        const double ap = number_in(out, "AP"), recall = number_in(out, "AR@100");
        succeed("eval --run-dir b --threads 1 --format json --part %s", name);
        cr_expect_float_eq(number_in(out, "AP"), ap, 1e-9, "%s", name);
        cr_expect_float_eq(number_in(out, "AR@100"), recall, 1e-9, "%s", name);
        if (part == 0)
            cr_expect(sanitized() || ap > 0.2, "the model must have learned something: %g", ap);
    }
    expect_sheets_of_unknown_sizes();
    /* a missing image is reported and left out; with --strict it stops the run */
    cr_assert(shell("rm files/train2017/scene_000003.png"));
    succeed("train " SMALL "--data files --recipe scenes --steps 4 --run-dir d");
    cr_expect(strstr(errors, "scene_000003.png") || strstr(out, "scene_000003.png"), "%s%s", out,
              errors);
    expect_refusal("train " SMALL "--data files --recipe scenes --steps 4 --run-dir e --strict", 1,
                   "scene_000003.png");
}

/* Also in a run that stops and resumes. */
Test(coco_program, features_of_performers_are_drawn_again)
{
    const char *rest = "--preset retinanet-vil-mini --set backbone.attn_type=performer --steps 4 "
                       "--eval-every 0 --log-every 1";
    succeed("train " SMALL "%s --redraw 2 --run-dir again", rest);
    succeed("train " SMALL "%s --redraw 0 --run-dir once", rest);
    cr_expect(shell("for run in again once; do head -n 2 $run/log.jsonl | "
                    "grep -o '\"loss\": *[^,]*' >$run.losses; done; "
                    "test $(wc -l <once.losses) = 2 && cmp again.losses once.losses"));
    cr_expect_neq(last_loss("again/log.jsonl"), last_loss("once/log.jsonl"));
    succeed("train " SMALL "%s --redraw 2 --time 0.000001 --run-dir parts", rest);
    succeed("train --resume --run-dir parts");
    cr_expect_eq(last_loss("again/log.jsonl"), last_loss("parts/log.jsonl"));
}

/* Objects that cannot be learned are counted by reason and named in the output and config.json. */
Test(coco_program, what_training_leaves_out)
{
    succeed("scenes --out files " SCENES);
    cr_assert(shell("sed -E 's/\"category_id\":[0-9]+/\"category_id\":77/; "
                    "s/(\"id\":2,\"image_id\":)[0-9]+/\\1999/; s/\"area\":[0-9.]+,//' "
                    "files/annotations/instances_train2017.json | "
                    "sed -E 's/\"iscrowd\":0/\"iscrowd\":1/3' > odd.json && "
                    "! cmp -s odd.json files/annotations/instances_train2017.json"));
    succeed("train " SMALL
            "--steps 3 --run-dir run --recipe scenes --batch 1 --annotations odd.json "
            "--images files/train2017 --valid-annotations "
            "files/annotations/instances_val2017.json --valid-images files/val2017");
    cr_expect(strstr(out, "odd.json: left out of training: ") &&
                  strstr(out, "1 of a category that is not listed (the first: annotation ") &&
                  strstr(out, "1 of a crowd (the first: annotation "),
              "%s", out);
    slurp("run/config.json", out, sizeof out);
    cr_expect(strstr(out, "\"left_out\":") && strstr(out, "of a crowd"), "%s", out);
}

/* Missing or damaged images are left out of the score, in training and eval, and reported once. */
Test(coco_program, validation_images_that_cannot_be_read)
{
    const char *rest = "--steps 6 --eval-every 1 --batch 4 --data files --recipe scenes";
    succeed("scenes --out files " SCENES);
    cr_assert(shell("rm files/val2017/scene_000001.png; "
                    "echo text > files/val2017/scene_000002.png"));
    succeed("train " SMALL "%s --run-dir run", rest);
    cr_expect(
        strstr(out, "left out of validation, as files are missing: 1 of 4 images; the first: "),
        "%s", out);
    cr_expect(strstr(out, " on 2 of 4 images"), "%s", out);
    const char *said = strstr(out, "skipped: scene_000002.png");
    cr_expect(said && !strstr(said + 1, "skipped: scene_000002.png"), "%s", out);
    slurp("run/log.jsonl", out, sizeof out);
    cr_expect_eq(number_in(out, "valid_images"), 2);
    const double ap = number_in(strstr(out, "valid_images"), "valid_ap");
    cr_expect_geq(ap, 0);
    succeed("eval --run-dir run --threads 1 --data files --format json --checkpoint "
            "run/last.safetensors");
    cr_expect(number_in(out, "images") == 2 && strstr(errors, "scene_000002.png") &&
                  strstr(out, "2 that cannot be read are left out"),
              "%s%s", out, errors);
    expect_refusal("eval --run-dir run --threads 1 --data files --strict", 1,
                   "1 of its images are missing; the first: files/val2017/scene_000001.png");
    expect_refusal("train " SMALL "--data files --recipe scenes --run-dir e --strict", 1,
                   "scene_000001.png");
    cr_assert(shell("rm files/val2017/*"));
    expect_refusal("train " SMALL "--data files --recipe scenes --run-dir e", 1,
                   "none of its images is there");
    cr_expect(shell("! test -e e"));
}

/* eval reports what its figures leave out; the id 0 is pycocotools' case. */
Test(coco_program, remarks_of_eval)
{
    cr_assert(
        shell("echo '{\"images\":[{\"id\":0},{\"id\":1}],\"annotations\":["
              "{\"id\":0,\"image_id\":0,\"category_id\":3,\"bbox\":[0,0,5,5]},"
              "{\"id\":1,\"image_id\":0,\"category_id\":4,\"bbox\":[0,0,5,5]}],"
              "\"categories\":[{\"id\":3,\"name\":\"cat\"}]}' > gt.json; "
              "echo '[{\"image_id\":0,\"category_id\":3,\"bbox\":[0,0,5,5],\"score\":1},"
              "{\"image_id\":0,\"category_id\":9,\"bbox\":[0,0,5,5],\"score\":1}]' > dt.json"));
    static const char *const said[] = {
        "figures of 2 images, 1 of them without annotations; 1 detections",
        "results left out: 1 of a category that is not listed (the first: number 2)",
        ("gt.json: annotations left out: 1 of a category that is not listed "
         "(the first: annotation 1)"),
        "warning: gt.json: an annotation has the id 0",
        "warning: gt.json: an image has the id 0",
        "2 annotations have no 'area' (the first: annotation 0)",
    };
    for (int json = 0; json < 2; json++) {
        succeed("eval --annotations gt.json --results dt.json --format %s",
                json ? "json" : "table");
        for (size_t i = 0; i < sizeof said / sizeof *said; i++)
            cr_expect(strstr(out, said[i]), "%s: %s", said[i], out);
    }
    cr_expect_eq(number_in(out, "AR@100"), 0);
}

Test(coco_program, analysis)
{
    succeed("train " SMALL "--steps 4 --log-every 1 --run-dir run");
    if (!shell("gnuplot --version > /dev/null")) cr_skip_test("gnuplot is missing");
    succeed("analyze --run-dir run --threads 1 --score 0.05 --format json");
    cr_expect_eq(number_in(out, "missed") + number_in(out, "right"), number_in(out, "objects"));
    cr_expect(shell("cd run/analysis && test -s curves.png && test -s errors.png && test -s "
                    "anchors.png"));
}

Test(coco_program, plan_counts)
{
    succeed("plan --preset retinanet-vil-tiny --height 64 --width 64 --batch 1");
    /* specification: backbone without final norm and head 6.34, pyramid 3.42, head 6.46 million */
    cr_expect(strstr(out, "6.34     3.42     6.46    16.22"), "%s", out);
}

/* A run's plan reports its data, memory and time, and leaves no files. */
Test(coco_program, plan_of_a_run)
{
    static const char *const presets[] = { "retinanet-resnet-mini", "mask-rcnn-vil-mini" };
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        succeed("train " SMALL "--preset %s --plan", presets[i]);
        cr_expect(strstr(out, "12 images with objects of 12 for training, 4 for validation"), "%s",
                  out);
        cr_expect(strstr(out, presets[i]) && !shell("test -e runs/coco"), "%s", out);
    }
}

/* ---- rates ---- */

Test(coco_program, published_schedules)
{
    coco_settings s;
    coco_settings asked = { .recipe = COCO_3X };
    const tp_given_flags given = { 1, { "recipe" } };
    char why[200];
    cr_assert(coco_settings_of(&s, &asked, &given, why, sizeof why));
    cr_expect_eq(s.train.steps, 270000);
    cr_expect_float_eq(coco_rate(&s, 0), 1e-6, 1e-18);
    cr_expect_float_eq(coco_rate(&s, 500), 1e-4 * 0.505, 1e-15);
    cr_expect_float_eq(coco_rate(&s, 179999), 1e-4, 1e-15);
    cr_expect_float_eq(coco_rate(&s, 180000), 1e-5, 1e-15);
    cr_expect_float_eq(coco_rate(&s, 240000), 1e-6, 1e-15);
    tp_object_loader_opts o;
    cr_assert(coco_loader_opts(&s, &o, why, sizeof why));
    cr_expect(o.sizes == 6 && o.size[0] == 640 && o.size[5] == 800 && o.most == 1333);
    tp_options_free(coco_options, &s);
}

/* What the rows of Tables 6 to 8 of ViL's paper train with; a flag overrides it. */
Test(coco_program, published_rates)
{
    const struct {
        char *preset;
        int recipe;
        double drop_path, lr;
    } rows[] = {
        { "retinanet-vil-small", COCO_1X, 0.1, 1e-4 },
        { "mask-rcnn-vil-small", COCO_1X, 0.2, 1e-4 },
        { "retinanet-vil-medium", COCO_3X, 0.3, 1e-4 },
        { "mask-rcnn-vil-base", COCO_3X, 0.3, 8e-5 },
        { "mask-rcnn-vil-small-partial-performer", COCO_1X, 0.05, 1e-4 },
        { "retinanet-resnet-50", COCO_3X, 0, 1e-4 },
        { "retinanet-vil-mini", COCO_SCENES, 0, 1e-3 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        coco_settings s;
        coco_settings asked = { .recipe = rows[i].recipe, .preset = rows[i].preset };
        const tp_given_flags given = { 2, { "recipe", "preset" } };
        char why[200];
        cr_assert(coco_settings_of(&s, &asked, &given, why, sizeof why));
        cr_expect_eq(s.drop_path, rows[i].drop_path, "%s", rows[i].preset);
        cr_expect_eq(s.train.lr, rows[i].lr, "%s", rows[i].preset);
        tp_options_free(coco_options, &s);
    }
}

/* Drawn scenes: Vision Longformer has a recipe; flags override it; --steps shortens its warm-up. */
Test(coco_program, recipes_of_scenes)
{
    const struct {
        char *preset;
        tp_given_flags given;
        int64_t updates, batch;
        double warmup, lr;
    } rows[] = {
        { NULL, { 0 }, 1500, 16, 50, 2e-3 },
        { "mask-rcnn-resnet-mini", { 1, { "preset" } }, 1500, 16, 50, 2e-3 },
        { "retinanet-vil-mini", { 1, { "preset" } }, 6000, 8, 200, 1e-3 },
        { "mask-rcnn-vil-mini", { 2, { "preset", "steps" } }, 600, 8, 20, 1e-3 },
        { "neither", { 1, { "preset" } }, 1500, 16, 50, 2e-3 }, /* refused later */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        coco_settings s, asked = { .train.steps = 600, .preset = rows[i].preset };
        char why[200];
        cr_assert(coco_settings_of(&s, &asked, &rows[i].given, why, sizeof why));
        cr_expect_eq(s.recipe, COCO_SCENES);
        cr_expect_eq(s.train.steps, rows[i].updates, "%zu", i);
        cr_expect_eq(s.train.batch, rows[i].batch, "%zu", i);
        cr_expect_eq(s.train.warmup, rows[i].warmup, "%zu", i);
        cr_expect_eq(s.train.lr, rows[i].lr, "%zu", i);
        tp_options_free(coco_options, &s);
    }
}

/* ---- bad input ---- */

Test(coco_program, bad_flags)
{
    static const struct {
        const char *args, *message;
    } bad[] = {
        { "", "'coco COMMAND --help' prints the manual" },
        { "trian", "did you mean 'train'?" },
        { "train --recipe 2x", "--recipe: '2x' is not one of scenes|1x|3x" },
        { "train --sizs 3", "--sizs: unknown flag; did you mean --sizes?" },
        { "eval --results x.json", "--results needs the annotations" },
        { "predict a.png --sheet s.png", "--sheet is for images of --data" },
        { "analyze --results x.json --data y", "--results needs --out DIR" },
        { "plan --height 100", "both must be multiples of 32" },
        { "plan --set convs=2", "--set changes one detector: give --preset" },
        { "scenes", "--out DIR is required" },
        { "train --graph", "--graph: unknown flag" },
        { "predict a.png --data files", "give images, or --data or --annotations, not both" },
        { "eval --results x.json --data y --checkpoint z", "two sources of detections" },
        { "eval --results x.json --data y --limit 3", "--limit is for the detections of a model" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(bad[i].args, 2, bad[i].message);
}

Test(coco_program, bad_input)
{
    static const struct {
        const char *args, *message;
    } bad[] = {
        { "train --data missing", "neither annotations/instances_train2017.json" },
        { "train --annotations missing.json", "missing.json" },
        { "train --annotations bad.json", "bad.json" },
        { "train --annotations short.json", "short.json" },
        { "train --preset retinanet-vgg", "no backbone of detectors is called 'vgg'" },
        { "train --preset ssd-vil-tiny", "is neither mask-rcnn-BACKBONE nor retinanet-BACKBONE" },
        { "train --set ,", "--set: ',' has a comma without KEY=VALUE" },
        { "plan --preset retinanet-vil-mini --set dim=32,", "has a comma without KEY=VALUE" },
        { "plan --preset retinanet-vil-mini --set backbone.num_classes=1",
          "num_classes is set by the categories of the images" },
        { "train --set layers=1,1,1,1",
          "--set: 'layers' is no member of retinanet; did you mean 'backbone.layers'?" },
        { "train --set conv=2", "--set: 'conv' is no member of retinanet; did you mean 'convs'?" },
        { "plan --preset retinanet-vil-mini --set dim=0", "--set: RetinaNet: dim must be from 1" },
        { "train --sizes 128,x", "--sizes: '128,x' is not a list" },
        { "train --sizes 16", "--sizes: 16 is not from 32 to 4096" },
        { "train --schedule milestones --milestones 9,3", "list them in ascending order" },
        { "train --warmup 9 --steps 5", "--warmup 9 is longer than the run" },
        { "train --scenes 5 --batch 8", "do not fill a batch of 8" },
        { "train " SCENES "--batch 4 --weights bad.json --steps 1", "bad.json" },
        { "train " SCENES "--batch 4 --weights bad.json --steps 1 --plan", "bad.json" },
        { "train " SCENES "--batch 4 --weights none --steps 1 --plan", "none: cannot be opened" },
        { "train --images files/train2017", "need --annotations" },
        { "eval --run-dir run --valid-images files/val2017", "need --annotations" },
        { "train --data files --annotations bad.json", "are two sources of images" },
        { "eval --results bad.json --data files --annotations bad.json", "two sources of images" },
        { "predict --run-dir run --data files --annotations bad.json", "two sources of images" },
        { "train --data latin", "the name of category 1 is not UTF-8" },
        { "predict $(printf '\\377.png') --run-dir run", "is not UTF-8" },
        { "eval", "runs/coco" },
        { "eval --data files --results bad.json", "bad.json" },
        { "predict missing.png --run-dir run", "missing.png" },
        { "eval --run-dir run --data other", "the images have 1 categories" },
        { "train --annotations " LIST " --images none", "folder" },
        { "train --annotations " FILES "--valid-images files/val2017", "--valid-annotations" },
        { "train --valid-annotations " LIST " --valid-images none --annotations " FILES, "/none" },
        { "predict --run-dir run --annotations " LIST " --images none", "the folder none" },
        { "train --annotations nameless.json", "nameless.json: image 1 (id 1) has no 'file_name'" },
        { "eval --run-dir run --annotations nameless.json", "no 'file_name'" },
        { "train --preset mask-rcnn-vil-mini --images files/train2017 --annotations maskless.json",
          "maskless.json: annotation 1 has no mask" },
        { "eval --annotations maskless.json --results none.json --kind mask", "--kind box" },
        { "analyze --annotations maskless.json --results none.json --kind mask --out x", "mask" },
        { "train --images files/val2017 --annotations other/annotations/instances_val2017.json",
          "none of the 1 images has an object" },
        { "train --resume --run-dir run --steps 9", "its schedule ends at update 2" },
        { "plan --preset retinanet-vgg", "no backbone of detectors is called 'vgg'" },
    };
    succeed("train " SMALL "--steps 2 --run-dir run");
    succeed("scenes --out files " SCENES);
    cr_assert(shell("echo '{\"images\": [' > bad.json; head -c 3000 "
                    "files/annotations/instances_train2017.json > short.json; mkdir -p "
                    "other/annotations; echo '{\"images\":[{\"id\":1,\"width\":9,\"height\":9,"
                    "\"file_name\":\"a.png\"}],\"annotations\":[],\"categories\":[{\"id\":1,"
                    "\"name\":\"cat\"}]}' > other/annotations/instances_val2017.json"));
    cr_assert(shell("mkdir -p latin/Annotations latin/JPEGImages; printf "
                    "'<annotation><filename>a.jpg</filename><size><width>9</width><height>9"
                    "</height><depth>3</depth></size><object><name>v\\351lo</name><bndbox><xmin>1"
                    "</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox></object>"
                    "</annotation>' > latin/Annotations/a.xml"));
    cr_assert(shell("sed -E 's/\"file_name\":\"[^\"]*\",//g' " LIST " > nameless.json && "
                    "sed -E 's/\"segmentation\":\\[\\[[^]]*\\]\\]/\"segmentation\":[]/g' " LIST
                    " > maskless.json && echo '[]' > none.json"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(bad[i].args, 1, bad[i].message);
    cr_expect(shell("! test -e runs/coco && ! test -e x"), "a refused command left files");
}

/* Flipped bytes anywhere in a checkpoint: every command ends with a message and changes nothing. */
Test(coco_program, damaged_checkpoints)
{
    succeed("train " SMALL "--steps 2 --run-dir run");
    cr_assert(shell("cp -r run whole"));
    for (int k = 0; k < 8; k++) {
        cr_assert(shell("rm -rf run && cp -r whole run"));
        FILE *f = fopen("run/last.safetensors", "r+b");
        fseek(f, 0, SEEK_END);
        const long size = ftell(f), at = k < 4 ? 40 + 900 * k : size / 9 * k;
        fseek(f, at, SEEK_SET);
        const int byte = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(byte ^ 0x10, f);
        fclose(f);
        cr_assert(shell("cp run/last.safetensors damaged"));
        const int status = run("train --resume --run-dir run --threads 1 --steps 2");
        cr_expect(status == 0 || status == 1, "byte %ld: %d", at, status);
        if (status == 1) cr_expect(same_bytes("damaged", "run/last.safetensors"), "byte %ld", at);
        const int seen = run("eval --checkpoint damaged --threads 1");
        cr_expect(seen == 0 || seen == 1, "byte %ld: %d", at, seen);
    }
}
