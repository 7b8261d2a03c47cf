/* runs.c - lists the training programs and resumes their runs. */
#include "support/runs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/enwik8.h"
#include "support/images.h"
#include "support/sanitized.h"
#include "support/texts.h"

static void text_data(void)
{
    make_text("text", 20000);
}

static void image_data(void)
{
    make_colours("set", 8);
}

/* Makes images and the run of a teacher. */
static void taught_data(void)
{
    image_data();
    succeed("--data set --threads 1 --size 16 --batch 8 --epochs 1 --run-dir teacher");
}

static void long_text_data(void)
{
    make_text("text", 600000);
}

/* The program draws its documents. */
static void no_data(void) {}

/* Writes lines whose labels follow from their words. */
static void make_lines(const char *name, int lines)
{
    FILE *f = fopen(name, "w");
    for (int i = 0; i < lines; i++) {
        const int kind = i / 2 % 3;
        fprintf(f, "%c\t%d %s %d\n", 'a' + kind, 31 * i % 17,
                (const char *const[]){ "tick", "rose", "mugs" }[kind], 7 * i % 23);
    }
    cr_assert(f && fclose(f) == 0);
}

static void line_data(void)
{
    make_lines("lines", 36);
}

static void long_line_data(void)
{
    make_lines("lines", 4000);
}

/* Validation images: one file per colour under many names. */
static void long_image_data(void)
{
    cr_assert(shell("for i in $(seq 100 700); do for c in red blue; do "
                    "ln set/val/$c/08.png set/val/$c/$i.png; done; done"));
}

/* Four small images, also used for validation. */
static void object_data(void)
{
    cr_assert(shell(TP_BIN_DIR
                    "/coco scenes --out set --scenes 4 --valid-scenes 1 --scene-size 32 --shapes 2 "
                    "&& rm -r set/val2017 set/annotations/instances_val2017.json"));
}

static void long_object_data(void)
{
    cr_assert(
        shell(TP_BIN_DIR "/coco scenes --out long --scenes 1 --valid-scenes 90 --scene-size 32"));
}

const run_kind run_kinds[] = {
    { .command = "enwik8 train",
      .make_data = text_data,
      .train = SMALL "--data text --schedule constant",
      .often = "--log-every 1 --eval-every 2 --checkpoint-every 1",
      .seldom = "--log-every 1 --eval-every 0 --checkpoint-every 40",
      .make_long_data = long_text_data,
      .slow_validation = "--eval-tokens 0",
      .updates = 150,
      .files = 5 },
    { .command = "imagenet train",
      .make_data = image_data,
      .train = "--data set --threads 1 --size 16 --batch 8 --epochs 1000000 --flip 0 "
               "--schedule constant --warmup 1 --lr 0.005 --workers 1",
      .often = "--log-every 1 --checkpoint-every 1", /* epochs of two updates */
      .seldom = "--log-every 1 --eval-every 0",
      .make_long_data = long_image_data,
      .slow_validation = "",
      .updates = 40,
      .files = 6 },
    { .command = "imagenet train",
      .make_data = taught_data,
      .train = "--data set --threads 1 --size 16 --batch 8 --epochs 1000000 --flip 0 "
               "--schedule constant --warmup 1 --lr 0.005 --workers 1 --teacher teacher "
               "--distill soft --distill-alpha 0.2",
      .often = "--log-every 1 --checkpoint-every 1",
      .seldom = "--log-every 1 --eval-every 0",
      .make_long_data = long_image_data,
      .slow_validation = "",
      .updates = 40,
      .files = 6 },
    { .command = "lra train",
      .make_data = no_data,
      .train = "--threads 1 --examples 32 --valid-examples 40 --test-examples 8 --shortest 5 "
               "--longest 15 --length 16 --layers 1 --dim 32 --hidden 8 --rank 2 --batch 8 "
               "--recipe paper --warmup 1 --lr 0.01 --seed 6",
      .often = "--log-every 1 --eval-every 2 --checkpoint-every 1",
      .seldom = "--log-every 1 --eval-every 0 --checkpoint-every 40",
      .make_long_data = no_data,
      .slow_validation = "--valid-examples 9000",
      .updates = 40,
      .files = 6 },
    { .command = "imdb train",
      .make_data = review_data,
      .train = "--data reviews --tokenizer words --threads 1 --length 12 --layers 1 --dim 128 "
               "--heads 2 --hidden 64 --batch 8 --accumulation 1 --epochs 0 --schedule constant "
               "--warmup 1 --lr 0.005 --dropout 0 --seed 1",
      .often = "--log-every 1 --eval-every 2 --checkpoint-every 1",
      .seldom = "--log-every 1 --eval-every -1 --checkpoint-every 40",
      .make_long_data = long_review_data,
      .slow_validation = "",
      .updates = 40,
      .files = 5 },
    { .command = "imdb pretrain",
      .make_data = review_data,
      .train = "--data reviews --tokenizer words --threads 1 --length 16 --layers 1 --dim 32 "
               "--heads 2 --hidden 32 --batch 8 --schedule constant --warmup 1 --lr 0.002",
      .often = "--log-every 1 --eval-every 2 --checkpoint-every 1",
      .seldom = "--log-every 1 --eval-every 0 --checkpoint-every 40",
      .make_long_data = long_review_data,
      .slow_validation = "--held-out 0.4 --eval-sequences 0 --batch 4",
      .updates = 40,
      .files = 5 },
    { .command = "coco train",
      .make_data = object_data,
      .train = "--annotations set/annotations/instances_train2017.json --images set/train2017 "
               "--preset retinanet-vil-mini --recipe scenes --sizes 32 --size 32 --longest 32 "
               "--batch 2 --threads 1 --schedule constant --warmup 1 --lr 0.001 --seed 2",
      .often = "--log-every 1 --eval-every 1 --checkpoint-every 1", /* epochs of two updates */
      .seldom = "--log-every 1 --eval-every 0 --checkpoint-every 40",
      .make_long_data = long_object_data,
      .slow_validation = "--valid-annotations long/annotations/instances_val2017.json "
                         "--valid-images long/val2017",
      .updates = 20,
      .files = 5 },
    { .command = "first_text",
      .make_data = line_data,
      .train = "--data lines --threads 1 --length 12 --hold-back 2 --batch 9 --epochs 1000000 "
               "--ema 0 --lr 0.0005",
      .often = "--log-every 1 --checkpoint-every 1", /* epochs of two updates */
      .seldom = "--log-every 1 --eval-every 0",
      .make_long_data = long_line_data,
      .slow_validation = "--batch 1000",
      .updates = 40,
      .files = 5 },
    { .command = "first_image",
      .make_data = image_data,
      .train = "--data set --threads 1 --size 16 --batch 8 --epochs 1000000 --ema 0",
      .often = "--log-every 1 --checkpoint-every 1", /* epochs of two updates */
      .seldom = "--log-every 1 --eval-every 0",
      .make_long_data = long_image_data,
      .slow_validation = "",
      .updates = 40,
      .files = 5 },
};
const int run_kind_count = sizeof run_kinds / sizeof *run_kinds;

/* Makes the text and the weights that are adapted. */
static void adapted_data(void)
{
    text_data();
    succeed("--data text --threads 1 --set n_layer=1,n_embd=16,n_inner=32,n_head=2 --tokens 16 "
            "--batch 4 --eval-windows 20 --steps 2 --run-dir weights");
}

const run_kind run_of_adaptations = {
    .command = "gpt train",
    .make_data = adapted_data,
    .train = "--data text --threads 1 --init weights/best.safetensors --lora 2 --tokens 16 "
             "--batch 4 --accumulation 1 --eval-windows 20 --schedule constant --lr 0.05",
    .often = "--log-every 1 --eval-every 2 --checkpoint-every 1",
    .updates = 40,
    .files = 6,
};

bool run_kind_wanted(const run_kind *k)
{
    const char *only = getenv("PROGRAM");
    return !only || strstr(k->command, only);
}

bool run_kind_takes(const run_kind *k, int i)
{
    return (i + sanitized() + (k - run_kinds)) % 3 == 0;
}

void run_kind_begin(const run_kind *k)
{
    program_begin(k->command);
    k->make_data();
}

void expect_resumed(const run_kind *k, const char *flags, const char *name)
{
    const long long end = update_in("run/last.safetensors") + 3;
    succeed("--resume --run-dir run --steps %lld", end);
    succeed("%s %s --steps %lld --run-dir straight --overwrite", k->train, flags, end);
    cr_expect(same_bytes("straight/last.safetensors", "run/last.safetensors"), "%s: %s: last",
              k->command, name);
    cr_expect(same_bytes("straight/best.safetensors", "run/best.safetensors"), "%s: %s: best",
              k->command, name);
}

bool same_log(const char *a, const char *b)
{
    char command[1024];
    snprintf(command, sizeof command,
             "test -s %s && for f in %s %s; do sed -E "
             "'s/\"(seconds|waited|memory|process|exchange_[a-z]+|[a-z]+_per_s)\":[^,}]*//g' "
             "$f > $f.cmp; done;"
             "cmp %s.cmp %s.cmp; s=$?; rm -f %s.cmp %s.cmp; exit $s",
             a, a, b, a, b, a, b);
    return shell(command);
}
