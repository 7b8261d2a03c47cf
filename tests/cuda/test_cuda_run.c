/* test_cuda_run.c - the programs enwik8 and imagenet on the CUDA device: training matches a CPU
 * run, stops and recorded steps do not change bits, and checkpoints move between devices. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/enwik8.h"

TestSuite(cuda_run, .init = enwik8_begin, .fini = program_end, .timeout = 900);

#define RUN "train " SMALL "--data text --eval-every 4 --log-every 1 --dropout 0.1 --lr 0.01 "

/* The number after "key": in the last line of a log. */
static double last_of(const char *log, const char *key)
{
    char text[64];
    const char *at = NULL;
    slurp(log, out, sizeof out);
    snprintf(text, sizeof text, "\"%s\":", key);
    for (const char *s = out; (s = strstr(s, text)); s++) at = s + strlen(text);
    return at ? strtod(at, NULL) : (double)NAN;
}

Test(cuda_run, follows_the_cpu)
{
    static const struct {
        const char *flags;
        double limit; /* difference in bits per character at update 8 */
    } runs[] = {
        { "--recompute block", 1e-3 },
        { "--dtype bf16 --masked", 3e-2 },
        { "--model txl", 1e-3 },
    };
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        double bpc[2];
        for (int cuda = 0; cuda < 2; cuda++) {
            succeed(RUN "%s --steps 8 --run-dir run --overwrite --device %s", runs[i].flags,
                    cuda ? "cuda" : "cpu");
            bpc[cuda] = last_of("run/log.jsonl", "valid_bpc");
        }
        cr_expect(fabs(bpc[0] - bpc[1]) < runs[i].limit, "%s: %g on the CPU, %g on CUDA",
                  runs[i].flags, bpc[0], bpc[1]);
    }
}

Test(cuda_run, stops_and_changes_of_device)
{
    int64_t tokens;
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    succeed(RUN "--steps 6 --run-dir whole --device cuda");
    succeed(RUN "--steps 3 --run-dir run --device cuda");
    succeed("train --resume --steps 6 --run-dir run --device cuda");
    cr_expect(same_bytes("whole/last.safetensors", "run/last.safetensors"), "a stop changes bits");
    succeed("train --resume --steps 7 --run-dir run --device cpu");
    succeed("train --resume --steps 8 --run-dir run --device cuda");
    cr_expect_eq(update_in("run/last.safetensors"), 8);

    succeed("eval --data text --run-dir run --limit 500 --device cpu");
    const double on_cpu = bpc_printed(&tokens);
    succeed("eval --data text --run-dir run --limit 500 --device cuda");
    const double on_cuda = bpc_printed(&tokens);
    cr_expect_float_eq(on_cpu, on_cuda, 1e-4, "%g on the CPU, %g on CUDA", on_cpu, on_cuda);
    cr_expect_eq(tokens, 500);
    succeed("generate --run-dir run --prompt 'the old ' --length 20 --device cuda");
    cr_expect(strncmp(out, "the old ", 8) == 0 && strlen(out) == 8 + 20 + 1, "'%s'", out);
}

/* ---- imagenet ---- */

static void begin_images(void)
{
    program_begin("imagenet");
}

TestSuite(cuda_images, .init = begin_images, .fini = program_end, .timeout = 900);

/* A teacher runs on the student's tape, even in recorded steps and in bf16. */
Test(cuda_images, teacher)
{
    static const char *const kinds[] = { "--distill soft", "--dtype bf16" };
    static const char flags[] =
        "train --threads 1 --shapes 10 --size 32 --batch 2 --epochs 1 --lr 0.001 "
        "--overwrite --log-every 1 --preset";
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    succeed("%s resnet-mini --run-dir resnet", flags);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double loss[2];
        for (int cuda = 0; cuda < 2; cuda++) {
            succeed("%s deit-mini-distilled --teacher resnet %s --run-dir run --device %s", flags,
                    kinds[i], cuda ? "cuda" : "cpu");
            loss[cuda] = last_of("run/log.jsonl", "loss");
        }
        cr_expect(fabs(loss[0] - loss[1]) < (i ? 3e-2 : 1e-3), "%s: %g on the CPU, %g on CUDA",
                  kinds[i], loss[0], loss[1]);
        succeed("%s deit-mini-distilled --teacher resnet %s --run-dir graph --device cuda --graph",
                flags, kinds[i]);
        cr_expect(same_bytes("run/last.safetensors", "graph/last.safetensors"), "%s", kinds[i]);
    }
}
