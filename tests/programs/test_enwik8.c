/* test_enwik8.c - the program enwik8 as a user runs it, on a small synthetic text: stopping and
 * resuming gives the same bits, every bad input gives one clear message, evaluation and generation
 * work as documented. test_faults.c, test_kill.c and test_signals.c test signals, kills and full
 * disks. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tapegrad/file.h>

#include "support/checkpoint.h"
#include "support/enwik8.h"

TestSuite(enwik8, .init = enwik8_begin, .fini = program_end, .timeout = 900);

/* ---- resuming ---- */

/* A run stopped after 5 updates and resumed on 2 threads equals 12 uninterrupted updates. */
Test(enwik8, resume_is_exact)
{
    static const struct {
        const char *name, *flags;
    } runs[] = {
        { "dropout, averages, clipping",
          "--dropout 0.1 --emb-dropout 0.1 --att-dropout 0.1 --ema 0.9 --clip 0.5 "
          "--recompute block" },
        { "accumulation, masked cache",
          "--accumulation 2 --masked --mem-len 96 --targets official" },
        { "momentum, steps of the rate",
          "--optimizer sgd --momentum 0.9 --nesterov --schedule step "
          "--lr-every 3 --style bytes" },
        { "Transformer-XL", "--model txl --schedule constant --dropout 0.1 --att-dropout 0.1" },
        { "double precision", "--dtype f64 --recompute attention" },
        { "bf16", "--dtype bf16" },
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const char *rest = "--data text --eval-every 4 --log-every 3";
        succeed("train " SMALL "%s %s --steps 12 --run-dir a --overwrite", rest, runs[i].flags);
        succeed("train " SMALL "%s %s --steps 5 --run-dir b --overwrite", rest, runs[i].flags);
        cr_expect_eq(update_in("b/last.safetensors"), 5, "%s", runs[i].name);
        succeed("train --resume --steps 12 --run-dir b --threads 2");
        cr_expect_eq(update_in("b/last.safetensors"), 12, "%s", runs[i].name);
        cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"), "%s", runs[i].name);
    }
}

Test(enwik8, time_limit_and_more_steps)
{
    succeed("train " SMALL "--data text --steps 1000000 --time 0.3 --run-dir a");
    cr_expect(strstr(out, "time is up after update "), "%s", out);
    const int64_t update = update_in("a/last.safetensors");
    cr_expect(update > 0);
    succeed("train --resume --run-dir a --steps %lld", (long long)update);
    cr_expect(strstr(out, "Done: "), "nothing is left to do: %s", out);
    succeed("train --resume --run-dir a --steps %lld", (long long)update + 2);
    cr_expect_eq(update_in("a/last.safetensors"), update + 2);
}

/* ---- members by the names that checkpoints use ---- */

/* Flags and --set describe the same models, which a resumed run keeps. */
Test(enwik8, members_by_name)
{
    static const struct {
        const char *flags, *set;
    } pairs[] = {
        { "--layers 1 --dim 32 --hidden 48 --heads 2 --chunk 8 --window 16 --mem-len 64 --rank 2",
          "n_layer=1,d_model=32,d_inner=48,n_head=2,chunk_size=8,window_len=16,mem_len=64,"
          "chunk_rank=2" },
        { "--layers 1 --bias --no-pre-ln --no-gelu --dropout 0.1 --emb-dropout 0.2 "
          "--att-dropout 0.3 "
          "--masked --segment-window --ln-local --project-first --no-dual-ln --clamp 8 "
          "--chunk-clamp 4 --window-heads 1",
          "n_layer=1,use_bias=1,pre_ln=0,use_gelu=0,dropout=0.1,emb_dropout=0.2,dropatt=0.3,"
          "empty_cache=masked,window=segment,dproj_input=ln_local,cache_dproj=project_first,"
          "dual_ln=off,clamp_len=8,cpos_clamp_len=4,window_heads=1" },
        { "--model txl --layers 1 --dim 32 --hidden 48 --heads 2 --d-head 8 --mem-len 32 --clamp 9 "
          "--pre-ln --same-length --dropout 0.1 --att-dropout 0.3",
          "n_layer=1,d_model=32,d_inner=48,n_head=2,d_head=8,mem_len=32,clamp_len=9,pre_lnorm=1,"
          "same_length=1,dropout=0.1,dropatt=0.3 --model txl" },
    };
    const char *rest =
        "--data text --threads 1 --tokens 64 --batch 2 --eval-tokens 200 --overwrite";
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        succeed("train %s --steps 2 --run-dir a %s", rest, pairs[i].flags);
        succeed("train %s --steps 2 --run-dir b --set %s", rest, pairs[i].set);
        cr_expect(same_bytes("a/best.safetensors", "b/best.safetensors"), "%s", pairs[i].set);
    }
    succeed("train %s --steps 1 --run-dir b --set n_layer=1,dual_ln=off --layers 1", rest);
    succeed("train --resume --steps 2 --run-dir b");
    succeed("eval --data text --run-dir b --protocol fast --threads 1");
    expect_refusal("train --resume --run-dir b --set dual_ln=on", 1,
                   "--set dual_ln=on (checkpoint: n_layer=1,dual_ln=off)");
}

Test(enwik8, members_that_are_refused)
{
    static const struct {
        const char *set, *message;
    } bad[] = {
        { "n_layr=1",
          "--set: 'n_layr' is no member of transformer-ls-lm; did you mean 'n_layer'?" },
        { "n_layer=1 --layers 2",
          "--set: n_layer=1 contradicts the rest of the command line, which asks for 2" },
        { "dual_ln=on --no-dual-ln",
          "--set: dual_ln=on contradicts the rest of the command line, which asks for off" },
        { "dual_ln=maybe", "--set: dual_ln = 'maybe' is not known" },
        { "vocab_size=9", "--set: vocab_size is set by the dictionary of the text" },
        { "n_layer=1,chunk_rank=2000", "--set: --rank: 2000 is out of range (0 to 1024)" },
        { "n_layer=1,clamp_len=-1", "--set: --clamp: -1 is out of range" },
        { "n_head=3", "--set: the width 128 does not divide into 3 heads" },
        { "chunk_size=8 --tokens 100", "--tokens 100 is not a multiple of --chunk 8" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char args[300];
        snprintf(args, sizeof args, "train --data text --set %s", bad[i].set);
        expect_refusal(args, 1, bad[i].message);
    }
}

/* ---- phases ---- */

Test(enwik8, next_phase_starts_from_weights)
{
    succeed("train " SMALL "--data text --steps 3 --run-dir one");
    succeed("train " SMALL "--data text --steps 1 --run-dir two --init one/best.safetensors "
            "--tokens 64 --mem-len 64 --lr 1e-9");
    cr_expect_eq(update_in("two/last.safetensors"), 1);
    tp_file *a = tp_file_open("one/best.safetensors"), *b = tp_file_open("two/best.safetensors");
    float x[32], y[32];
    const tp_file_tensor *t = tp_file_find(a, "layers.0.norm1.weight");
    cr_assert(t && t->numel == 32 && tp_file_read(a, t, TP_F32, x));
    cr_assert(tp_file_read(b, tp_file_find(b, "layers.0.norm1.weight"), TP_F32, y));
    for (int i = 0; i < 32; i++) cr_expect_float_eq(x[i], y[i], 1e-6f);
    tp_file_close(a);
    tp_file_close(b);
}

/* ---- bad input ---- */

Test(enwik8, bad_flags)
{
    static const struct {
        const char *args, *message;
    } bad[] = {
        { "", "'enwik8 COMMAND --help' prints the manual" },
        { "trian", "enwik8: 'trian' is not a command; did you mean 'train'?\n" },
        { "frob", "enwik8: 'frob' is not a command\n" },
        { "train --layrs 3", "enwik8 train: --layrs: unknown flag; did you mean --layers?\n" },
        { "train --qqqqqqqqqqqq 3", "enwik8 train: --qqqqqqqqqqqq: unknown flag\nTry" },
        { "train --no-layers", "--no-layers: unknown flag; did you mean --layers?\n" },
        { "train --no-dualln", "--no-dualln: unknown flag; did you mean --no-dual-ln?\n" },
        { "train --learning-rate 1", "--learning-rate: unknown flag; did you mean --lr?\n" },
        { "generate --tokens 3", "--tokens: unknown flag; did you mean --length?\n" },
        { "train --preset smal", "not one of tiny|mini|small|large; did you mean 'small'?\n" },
        { "train -layers 3", "'-layers' is not a flag; did you mean --layers?\n" },
        { "train -x", "'-x' is not a flag; flags begin with --\n" },
        { "train -", "'-' is not a flag; flags begin with --\n" },
        { "train --", "'--' is not a flag; flags begin with --\n" },
        { "train data", "'data' is not a flag; flags begin with --" },
        { "train --layers", "--layers: a value is missing" },
        { "train --layers --dim 4", "--layers: a value is missing" },
        { "train --layers=", "--layers: '' is not a whole number" },
        { "train --layers 3x", "--layers: '3x' is not a whole number" },
        { "train --layers 0", "--layers: 0 is out of range (1 to 128)" },
        { "train --layers 99999999999999999999", "is out of range (1 to 128)" },
        { "train --steps 0", "--steps: 0 is out of range (at least 1)" },
        { "train --lr 1e-4q", "--lr: '1e-4q' is not a number" },
        { "train --lr nan", "--lr: nan is out of range (0 to 1000)" },
        { "train --dropout 1", "--dropout: 1 is out of range (0 to 0.99)" },
        { "train --model gpt", "--model: 'gpt' is not one of ls|txl\n" },
        { "train --resume=yes", "--resume: takes no value" },
        { "eval --protocol quick",
          "--protocol: 'quick' is not one of stream|official|windows|fast" },
        { "generate --top-p 1.5", "--top-p: 1.5 is out of range (0 to 1)" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_refusal(bad[i].args, 2, bad[i].message);
}

Test(enwik8, bad_input)
{
    static const struct {
        const char *args, *message;
    } bad[] = {
        { "train", "enwik8 train: --data FILE is required" },
        { "train --data missing", "/missing: cannot be opened: No such file or directory" },
        { "train --data empty", "/empty: is empty" },
        { "train --data 'da\xff.txt'", "--data is not UTF-8, so a checkpoint cannot hold it" },
        { "train --data words.gz", "/words.gz: is named .gz but is not a gzip file" },
        { "train --data .", "is a folder" },
        { "train --data short", "too few for 8 streams of 256" },
        { "train --data text --phase 2", "--phase 2: this preset has only one phase" },
        { "train --data text --dim 30 --heads 4", "impossible model: " },
        { "train --data text --chunk 16 --mem-len 40", "impossible model: " },
        { "train --data text --window 512", "shorter than the window" },
        { "train --data text --tokens 100", "--tokens 100 is not a multiple of --chunk 16" },
        { "train --data text --tokens 96", "--tokens 96 is longer than --window 64" },
        { "train --data text --device cuda", "device cuda" },
        { "train --data text --device tpu", "device 'tpu' is unknown" },
        { "train --data text --run-dir empty/x", "run folder empty/x: cannot be made" },
        { "train --data text --run-dir /proc/self/x", "run folder /proc/self/x: cannot be made" },
        { "train --resume --run-dir fresh", "cannot resume: " },
        { "train --data text --run-dir run", "run folder run already holds a run" },
        { "train --resume --run-dir run --lr 7 --layers 3 --steps 9",
          "--layers 3 (checkpoint: 2), --lr 7 (checkpoint: 0.003)" },
        { "train --resume --run-dir run --data other",
          "differs from the one this run was trained on" },
        { "train --resume --run-dir run --overwrite", "--resume continues a run" },
        { "train --data text --init text --run-dir fresh", "text" },
        { "train " SMALL
          "--data text --init run/best.safetensors --run-dir fresh --layers 3 --window 8",
          "holds another model: --layers 3 (checkpoint: 2), --window 8 (checkpoint: 16)" },
        { "train " SMALL "--data text --init run/best.safetensors --run-dir fresh --model txl",
          "holds another model: --model txl (checkpoint: ls)" },
        { "train --resume --run-dir cut", "cannot resume: " },
        { "train --resume --run-dir weights", "it lacks 'train." },
        { "eval --run-dir run", "--data FILE is required" },
        { "eval --data text --run-dir fresh", "fresh/last.safetensors" },
        { "eval --data text --checkpoint text", "text" },
        { "eval --data text --checkpoint cut/last.safetensors", "cut/last.safetensors" },
        { "eval --data text --run-dir run --segment 12", "--segment 12 is not a multiple" },
        { "eval --data text --run-dir run --segment 24", "longer than --window 16" },
        { "generate --run-dir run --segment 20", "--segment 20 is not a multiple" },
        { "eval --data text --run-dir run --context 12", "impossible model: " },
        { "eval --data text --run-dir run --context 64 --protocol windows --step 4096",
          "at least 4097" },
        { "eval --data text --run-dir run --context 64 --protocol windows --step 65",
          "--step 65 is longer than the windows (--context 64)" },
        { "generate --checkpoint missing", "missing" },
        { "generate --run-dir run --prompt a --prompt-file b", "cannot be combined with" },
        { "generate --run-dir run --prompt-file missing", "missing: No such file" },
        { "generate --run-dir run --prompt-file pipe", "pipe: is a pipe; give a regular file" },
        { "generate --run-dir run --prompt-file run", "run: is a folder; give a regular file" },
        { "generate --run-dir run --length 10 >/dev/full 2>err; exit $? #", "standard output" },
    };
    succeed("train " SMALL "--data text --steps 2 --run-dir run");
    cr_assert(shell("touch empty; mkfifo pipe; echo words > words.gz; head -c 300 text > short;"
                    "sed s/river/brook/ text > other; mkdir cut weights;"
                    "head -c 3000 run/last.safetensors > cut/last.safetensors;"
                    "cp run/best.safetensors weights/last.safetensors; cp -r run before"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_refusal(bad[i].args, 1, bad[i].message);
    cr_expect(shell("cmp before/last.safetensors run/last.safetensors &&"
                    "cmp before/best.safetensors run/best.safetensors &&"
                    "cmp before/log.jsonl run/log.jsonl"),
              "nothing was written over");
}

/* A text position that no run reaches is refused. */
Test(enwik8, extreme_positions)
{
    const int64_t most = INT64_C(1) << 60, bad[] = { most + 1, INT64_MAX, -1, INT64_MIN };
    succeed("train " SMALL "--data text --steps 2 --run-dir run");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        change_number("run/last.safetensors", "position", bad[i]);
        expect_refusal("train --resume --run-dir run --steps 4", 1,
                       "run/last.safetensors: 'position' is out of range");
    }
    change_number("run/last.safetensors", "position", most);
    succeed("train --resume --run-dir run --steps 4");
}

/* Is every floating number of the file finite? */
static bool all_finite(const char *path)
{
    static double x[1 << 16];
    bool finite = true;
    tp_file *F = tp_file_open(path);
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        if (t->stored[0] != 'F') continue;
        cr_assert(t->numel <= 1 << 16 && tp_file_read(F, t, TP_F64, x), "%s", t->name);
        for (int64_t k = 0; k < t->numel; k++) finite = finite && x[k] - x[k] == 0.0;
    }
    cr_expect(tp_file_ok(F), "%s", tp_file_why(F));
    tp_file_close(F);
    return finite;
}

/* The learning rate makes training diverge. The run stops, keeps the last good checkpoint and gives
 * advice, which works. Rounding decides whether the loss or a gradient becomes NaN first. */
Test(enwik8, nan_loss)
{
    static const struct {
        const char *name, *flags, *message;
    } runs[] = {
        { "every checkpoint", "--checkpoint-every 1", " is " },
        { "few checkpoints", "--checkpoint-every 2 --log-every 50", " is " },
        { "named op", "--checkpoint-every 1 --check-finite", ": element " },
        { "no clipping", "--checkpoint-every 1 --clip 0 --lr 1e3 --optimizer adamw", " is " },
    };
    char args[1024];
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        snprintf(args, sizeof args,
                 "train " SMALL "--data text --steps 50 --optimizer sgd --lr 1000 --warmup 0 "
                 "--momentum 0.99 --run-dir run --overwrite %s",
                 runs[i].flags);
        expect_refusal(args, 1, runs[i].message);
        cr_expect(strstr(errors, "run/last.safetensors still holds update ") &&
                      strstr(errors, "--init and a lower --lr"),
                  "%s: %s", runs[i].name, errors);
        cr_expect(update_in("run/last.safetensors") >= 1 && all_finite("run/last.safetensors"),
                  "%s", runs[i].name);
    }
    cr_assert(shell("cp run/last.safetensors before"));
    expect_refusal("train --resume --run-dir run --lr 0.001", 1, "--lr 0.001 (checkpoint: ");
    cr_expect(same_bytes("before", "run/last.safetensors"));
    succeed("train " SMALL
            "--data text --steps 3 --lr 1e-6 --clip 0.25 --init run/last.safetensors --run-dir "
            "next");
    cr_expect(all_finite("next/last.safetensors"));
}

/* ---- evaluation and generation ---- */

Test(enwik8, eval_protocols)
{
    static const struct {
        const char *flags;
        int64_t tokens;
    } cases[] = {
        { "--protocol stream --segment 64 --context 128 --limit 500", 500 },
        { "--protocol official --segment 64 --context 128 --limit 500", 500 - 7 },
        { "--protocol windows --segment 32 --context 128 --step 64 --limit 500", 448 },
        { "--protocol fast --limit 500", 500 },
        { "--protocol stream --segment 32 --context 32 --limit 500", 500 }, /* equals fast */
        { "--protocol windows --segment 32 --context 96 --step 50 --limit 500", 500 },
        { "--protocol fast --split valid", 1000 },
    };
    double bpc[sizeof cases / sizeof cases[0]];
    succeed("train " SMALL "--data text --steps 40 --run-dir run --lr 0.01 --eval-tokens 0");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t tokens;
        succeed("eval --data text --run-dir run --threads 1 %s", cases[i].flags);
        bpc[i] = bpc_printed(&tokens);
        cr_expect_eq(tokens, cases[i].tokens, "%s: %lld", cases[i].flags, (long long)tokens);
        cr_expect(bpc[i] > 1 && bpc[i] < 5, "%s: %f", cases[i].flags, bpc[i]);
    }
    cr_expect_eq(bpc[3], bpc[4], "fast is a stream with the geometry of training");
    cr_expect_float_eq(bpc[0], bpc[2], 0.2);
    cr_expect(strstr(out, "validation text"));
}

/* Bytes that the dictionary lacks are reported and cost the bits that distinguish them: a text of
 * such bytes scores no better than one of random bytes. */
Test(enwik8, unknown_bytes_are_paid_for)
{
    static const char *const models[] = { "--model ls", "--model txl", "--model txl --style txl" };
    cr_assert(shell("head -c 3000 text > mixed; "
                    "for i in $(seq 300); do printf '\\200\\201\\377e'; done >> mixed;"
                    "head -c 100 text >> mixed; cat mixed > train; head -c 4000 text >> train;"
                    "head -c 4000 text >> train"));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        int64_t tokens;
        succeed("train " SMALL "--data text --steps 20 --run-dir run --overwrite --lr 0.01 %s",
                models[i]);
        succeed("eval --data mixed --run-dir run --threads 1 --split valid");
        const double bpc = bpc_printed(&tokens);
        cr_expect(strstr(errors, "bytes of the text are not in the model's dictionary"), "%s: %s",
                  models[i], errors);
        cr_expect(bpc > 6 && bpc < 20, "%s: %g", models[i], bpc);
        succeed("eval --data text --run-dir run --threads 1");
        cr_expect_not(strstr(errors, "dictionary"), "%s", errors);
    }
    succeed("train " SMALL "--data text --steps 2 --run-dir run --overwrite");
    succeed("train " SMALL
            "--data train --init run/last.safetensors --steps 2 --log-every 1 --run-dir on");
    cr_expect(strstr(out, "900 bytes of the training text are not in the model's dictionary"), "%s",
              out);
}

/* Texts in other encodings are refused by name; any file can be read as bytes. */
Test(enwik8, encodings)
{
    cr_assert(shell("printf '\\377\\376' > wide; iconv -f ASCII -t UTF-16LE text >> wide;"
                    "printf '\\357\\273\\277' > marked; cat text >> marked"));
    succeed("train " SMALL "--data text --steps 2 --run-dir a");
    succeed("train " SMALL "--data marked --steps 2 --run-dir b");
    slurp("a/log.jsonl", out, sizeof out);
    slurp("b/log.jsonl", errors, sizeof errors);
    cr_expect_eq(number_in(out, "valid_bpc"), number_in(errors, "valid_bpc"),
                 "the mark is no text");
    expect_refusal("train " SMALL "--data wide --run-dir c", 1,
                   "wide is UTF-16; convert it to UTF-8");
    succeed("train " SMALL "--data wide --style bytes --steps 2 --run-dir d");
    expect_refusal("generate --run-dir a --prompt-file wide", 1,
                   "wide: is UTF-16; convert it to UTF-8");
}

/* Memory depends on the text, not flags. */
Test(enwik8, lengths_beyond_the_text)
{
    static const char *const models[] = { "", "--masked", "--model txl" };
    for (int i = 0; i < 3; i++) {
        int64_t tokens;
        double bpc[2];
        succeed("train " SMALL "--data text --steps 20 --run-dir run --overwrite --lr 0.01 %s",
                models[i]);
        succeed("eval --data text --run-dir run --threads 1 --segment 1008");
        bpc[0] = bpc_printed(&tokens);
        succeed("eval --data text --run-dir run --threads 1 --segment 16777216 --context 16777216");
        bpc[1] = bpc_printed(&tokens);
        cr_expect_float_eq(bpc[0], bpc[1], 1e-3, "%s: %g and %g", models[i], bpc[0], bpc[1]);
        cr_expect(strstr(errors, "a cache of 32768 is used"), "%s", errors);
    }
    succeed("generate --run-dir run --threads 1 --length 60 --segment 16777216 --context 16777216");
    expect_refusal("train " SMALL "--data text --run-dir new --mem-len 16777216", 1,
                   "the training text has only");
}

static void generate(const char *flags, char *text, size_t size)
{
    succeed("generate --run-dir run --threads 1 --length 60 %s", flags);
    snprintf(text, size, "%.*s", (int)size - 1, out);
}

Test(enwik8, generation)
{
    char a[200], b[200];
    succeed("train " SMALL "--data text --steps 40 --run-dir run --lr 0.01");
    generate("--prompt 'the old '", a, sizeof a);
    cr_expect(strncmp(a, "the old ", 8) == 0 && strlen(a) == 8 + 60 + 1, "'%s'", a);
    generate("--prompt 'the old ' --seed 1", b, sizeof b);
    cr_expect_str_eq(a, b, "the same seed");
    generate("--prompt 'the old ' --seed 2", b, sizeof b);
    cr_expect_str_neq(a, b, "another seed");
    generate("--prompt 'the old ' --temperature 0", a, sizeof a);
    generate("--prompt 'the old ' --top-k 1 --seed 5", b, sizeof b);
    cr_expect_str_eq(a, b, "one candidate is the best one");
    generate("--prompt 'the old ' --top-p 0 --seed 6", b, sizeof b);
    cr_expect_str_eq(a, b, "so is the head of the distribution");
    cr_assert(shell("printf 'the old ' > prompt"));
    generate("--prompt-file - --temperature 0 <prompt", b, sizeof b);
    cr_expect_str_eq(a, b, "prompt from the standard input");
    generate("--prompt-file prompt --temperature 0", b, sizeof b);
    cr_expect_str_eq(a, b, "prompt from a file");
    generate("--prompt 'the old ' --temperature 0 --no-echo", b, sizeof b);
    cr_expect_str_eq(a + 8, b, "without the prompt");
    generate("", b, sizeof b);
    cr_expect_eq(strlen(b), 61, "without a prompt: '%s'", b);
    generate("--prompt 'Q9'", b, sizeof b);
    cr_expect(strstr(errors, "2 bytes of the prompt are not in the model's dictionary"), "%s",
              errors);
}

Test(enwik8, generation_by_transformer_xl)
{
    char a[200], b[200];
    succeed("train " SMALL "--data text --model txl --steps 4 --run-dir run");
    generate("--prompt 'the ' --temperature 0.5", a, sizeof a);
    generate("--prompt 'the ' --temperature 0.5", b, sizeof b);
    cr_expect(strlen(a) == 65 && strcmp(a, b) == 0, "'%s'", a);
}

/* ---- cost by length ---- */

/* The number behind a key, in or after the first line that has `of`. */
static double number_of(const char *of, const char *key)
{
    const char *line = strstr(out, of);
    cr_assert(line, "%s: %s", of, out);
    return number_in(line, key);
}

/* Memory grows in proportion to the length, and nearly so to the batch, whose peaks are in other
 * places; it grows with the cache, too, and is that of `train --plan`. */
Test(enwik8, scale_counts_memory)
{
    succeed("scale --preset tiny --dry --format json --lengths 256,512,1024 --batches 1,2");
    for (int m = 0; m < 2; m++) {
        const char *model = m ? "Transformer-XL" : "Transformer-LS";
        double bytes[2][3];
        for (int b = 0; b < 2; b++)
            for (int k = 0; k < 3; k++) {
                char of[120];
                snprintf(of, sizeof of, "\"model\":\"%s\",\"batch\":%d,\"tokens\":%d,\"cache\":%d",
                         model, b + 1, 256 << k, 256 << k);
                bytes[b][k] = number_of(of, "bytes");
                cr_expect(strstr(strstr(out, of), "\"ms\":null"), "%s", out);
            }
        const double step = bytes[0][1] - bytes[0][0];
        cr_expect_float_eq((bytes[0][2] - bytes[0][1]) / step, 2, 0.05, "%s: %s", model, out);
        cr_expect_float_eq((bytes[1][1] - bytes[1][0]) / step, 2, 0.4, "%s: %s", model, out);
    }
    succeed("scale --preset tiny --dry --lengths 256 --batches 1 --models txl --format json");
    const double same = number_of("Transformer-XL", "bytes");
    succeed("scale --preset tiny --dry --lengths 256 --batches 1 --models txl --mem-len 1024 "
            "--format json");
    cr_expect(number_of("Transformer-XL", "bytes") > 1.3 * same, "%s", out);
    succeed("scale --preset tiny --dry --lengths 256 --batches 8 --models ls");
    const double mb = strtod(strstr(out, " - ") + 3, NULL);
    succeed("train --data text --preset tiny --plan");
    const double plan = strtod(strstr(out, "peak of a step") + 14, NULL);
    cr_expect_float_eq(mb / plan, 1, 0.05, "%g, %g: %s", mb, plan, out);
}

Test(enwik8, scale_measures_and_refuses)
{
    static const char *const bad[][2] = {
        { "--models ls,xl", "--models: 'xl' is not one of ls|txl; did you mean 'txl'?" },
        { "--models ls,ls", "--models: 'ls' is there twice" },
        { "--lengths 64,x", "--lengths: 'x' is not a whole number from 1 to " },
        { "--lengths 64,", "--lengths: '64,' is not a list like one,two" },
        { "--batches 0", "--batches: '0' is not a whole number from 1 to 65536" },
        { "--preset tiny --lengths 100", "Transformer-LS, segments of 100 tokens: " },
        { "--preset tiny --lengths 256 --mem-len 32", "the cache of 32 rows is shorter" },
        { "--preset tiny --lengths 256 --dry --picture a.gif", "end the name in .png or .svg" },
    };
    succeed("scale --preset tiny --lengths 64,128 --batches 2 --seconds 0.01 --threads 1 "
            "--clock cpu --format json --picture scale.svg");
    cr_expect(number_of("Transformer-LS", "ms") > 0 && number_of("Transformer-XL", "ms") > 0, "%s",
              out);
    cr_expect(shell("grep -q 'Transformer-XL, batch 2' scale.svg"));
    succeed("scale --preset tiny --lengths 64,128 --batches 1 --limit 0 --seconds 0.01 "
            "--models txl");
    cr_expect(strstr(out, " - "), "the second length exceeds the limit: %s", out);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char args[200];
        snprintf(args, sizeof args, "scale %s", bad[i][0]);
        expect_refusal(args, 1, bad[i][1]);
    }
}

/* A size that memory is too small for is counted and not timed; the picture shows what there is. */
Test(enwik8, scale_where_memory_ends)
{
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("the address sanitizer wants terabytes of addresses");
#endif
    cr_expect_eq(run_under("ulimit -v 900000;",
                           "scale --preset tiny --models ls --lengths 64,16384 --batches 1 "
                           "--threads 1 --seconds 0.01 --limit 10000 --picture scale.svg"),
                 0, "%s", errors);
    cr_expect(strstr(out, "Transformer-LS       1     16384            -  "), "%s", out);
    cr_expect(shell("grep -q '>Training step by the length of a segment<' scale.svg"));
}

/* ---- norms by layer ---- */

/* A number of the line of this layer, without or with DualLN. */
static double norm_of(int layer, bool dual, const char *key)
{
    char of[60];
    snprintf(of, sizeof of, "\"layer\":%d,\"dual_ln\":%s", layer, dual ? "true" : "false");
    return number_of(of, key);
}

#define SHORT "norms --fresh --preset ls_lm-tiny --segments 2 --threads 1 --format json "

/* Norms with initial weights make rows of 128 elements sqrt(128) long, up to the noise of those
 * weights. What enters them in the first layer is what a model without them reads, in each form of
 * the projection. Averages are shorter than what they average. */
Test(enwik8, norms_of_initial_weights)
{
    static const char *const keys[] = { "keys", "projected_keys", "values", "projected_values" };
    static const char *const forms[] = { "", ",cache_dproj=project_first", ",empty_cache=masked" };
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        double without[4];
        succeed(SHORT "--set mem_len=512%s", forms[f]);
        for (int k = 0; k < 4; k++) {
            without[k] = norm_of(0, false, keys[k]);
            for (int layer = 0; layer < 4; layer++)
                cr_expect_float_eq(norm_of(layer, true, keys[k]) / sqrt(128), 1, 0.02, "%s", out);
        }
        cr_expect(norm_of(3, false, "key_ratio") > 1.5 && norm_of(3, false, "value_ratio") > 1.5);
        cr_expect_float_eq(norm_of(3, true, "key_ratio"), 1, 0.02, "%s", out);
        succeed(SHORT "--set mem_len=512,dual_ln=off%s", forms[f]);
        cr_expect(!strstr(out, "true"), "%s", out);
        for (int k = 0; k < 4; k++)
            cr_expect_float_eq(norm_of(0, false, keys[k]) / without[k], 1, 1e-5, "%s%s: %s",
                               keys[k], forms[f], out);
    }
}

Test(enwik8, norms_of_a_run)
{
    static const char *const bad[][2] = {
        { "norms --run-dir none --data text", "none/last.safetensors: cannot be opened" },
        { "norms --run-dir a", "--data FILE is required" },
        { "norms --run-dir a --data text --segments 9999", "are needed for 9999 segments" },
        { "norms --run-dir a --data text --set dual_ln=off", "--set: it changes the model of" },
        { "norms --run-dir xl --data text", "no layer of the model has long-short attention" },
        { "norms --fresh", "--fresh: name the model with --preset" },
        { "norms --fresh --preset ls_lm-tiney", "did you mean 'ls_lm-tiny" },
        { "norms --fresh --preset cvt-13", "--preset cvt-13 is no language model" },
        { "norms --fresh --preset ls_lm-tiny --set dual=off", "--set: " },
        { "norms --fresh --preset ls_lm-tiny --checkpoint f", "exclude each other" },
    };
    succeed("train " SMALL "--data text --steps 20 --lr 3e-3 --run-dir a");
    succeed("train " SMALL "--model txl --data text --steps 1 --run-dir xl");
    succeed("norms --run-dir a --data text --threads 1 --format json --picture norms.svg");
    cr_expect(
        shell("grep -q 'keys without DualLN' norms.svg && grep -q '4 segments of' norms.svg"));
    cr_expect(norm_of(1, true, "keys") > 0);
    succeed("norms --run-dir a --data text --threads 2");
    cr_expect(strstr(out, "    1 without "), "%s", out);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_refusal(bad[i][0], 1, bad[i][1]);
}

/* ---- manuals and records ---- */

Test(enwik8, manuals)
{
    static const char *const common[] = {
        "--preset",    "--data",   "--device", "--dtype",    "--threads",          "--seed",
        "--steps",     "--batch",  "--lr",     "--run-dir",  "--checkpoint-every", "--eval-every",
        "--log-every", "--resume", "NAME\n",   "SYNOPSIS\n", "EXIT STATUS\n"
    };
    succeed("train --help");
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        cr_expect(strstr(out, common[i]), "%s", common[i]);
    succeed("eval --help");
    cr_expect(strstr(out, "--protocol stream|official|windows|fast"));
    succeed("generate --help");
    cr_expect(strstr(out, "--temperature X"));
    succeed("norms --help");
    cr_expect(strstr(out, "--segments N"));
    succeed("scale --help");
    cr_expect(strstr(out, "--mem-len N") && strstr(out, "--clock wall|cpu"));
    succeed("--help");
    succeed("--version");
}

/* Extra text changes the training split and the dictionary but not the validation split. A resumed
 * run keeps the extra text, and the seconds in its log continue. */
Test(enwik8, extra_text)
{
    cr_assert(shell("head -c 3000 text > more"));
    cr_assert(shell("echo '#' >> more; gzip -c more > more.gz"));
    succeed("train " SMALL "--data text --extra more.gz --steps 3 --log-every 1 --run-dir run");
    cr_expect(strstr(out, "/text and /") && strstr(out, "/more.gz: 21"), "%s", out);
    cr_expect(strstr(out, " + 1000 + 1000 bytes for training, validation and test"), "%s", out);
    succeed("eval --data text --run-dir run --protocol fast");
    cr_expect(strstr(out, "test text, 9"), "%s", out);
    succeed("train --resume --run-dir run --steps 5");
    slurp("run/log.jsonl", out, sizeof out);
    double passed = 0;
    int lines = 0;
    for (const char *s = out; (s = strstr(s, "\"seconds\":")); lines++) {
        const double x = strtod(s += 10, NULL);
        cr_expect(x > passed, "%g seconds after %g", x, passed);
        passed = x;
    }
    cr_expect_eq(lines, 5);
    tp_file *F = tp_file_open("run/last.safetensors");
    cr_expect(strstr(tp_file_meta(F, "vocab"), ",35"), "%s", tp_file_meta(F, "vocab"));
    tp_file_close(F);
    expect_refusal("train --resume --run-dir run --steps 7 --extra run/log.jsonl", 1,
                   "differs from the one this run was trained on");
    expect_refusal(
        "train --resume --run-dir run --steps 7 --extra text", 1,
        "it begins with the whole text, so validation and test text would be trained on");
    expect_refusal("train " SMALL "--data text --extra none --run-dir other", 1, "none: ");
}

Test(enwik8, log_and_config)
{
    succeed("train " SMALL "--data text --steps 6 --log-every 2 --eval-every 4 --run-dir run");
    slurp("run/log.jsonl", out, sizeof out);
    static const char *const lines[] = { "{\"step\":2,\"tokens\":128,\"seconds\":",
                                         "{\"step\":4,\"tokens\":256,\"seconds\":",
                                         "{\"step\":6,\"tokens\":384,\"seconds\":" };
    static const char *const keys[] = { "\"bpc\":", "\"lr\":", "\"grad_norm\":",
                                        "\"tokens_per_s\":", "\"memory\":" };
    double seconds = 0;
    const char *line = out;
    for (int i = 0; i < 3; i++) {
        const char *next = strchr(line, '\n');
        cr_assert(next && strncmp(line, lines[i], strlen(lines[i])) == 0, "%s", line);
        for (int k = 0; k < 5; k++) {
            const char *key = strstr(line, keys[k]);
            cr_expect(key && key < next, "%s: %s", keys[k], line);
        }
        const double passed = strtod(line + strlen(lines[i]), NULL);
        cr_expect(passed > seconds, "%g seconds after %g", passed, seconds);
        seconds = passed;
        const char *valid = strstr(line, "\"valid_bpc\":");
        cr_expect_eq(valid && valid<next, i> 0, "line %d", i);
        line = next + 1;
    }
    cr_expect_str_eq(line, "");
    slurp("run/config.json", out, sizeof out);
    cr_expect(strstr(out, "\"layers\": 2") && strstr(out, "\"optimizer\": \"adamw\""), "%s", out);
}

/* The comparison has one row for each variant. The slowest variant's value at its own number of
 * updates is its last validation. Complete runs are not trained again. */
Test(enwik8, comparison)
{
    static const char command[] =
        TP_SOURCE_DIR "/examples/enwik8/compare.sh --bin " TP_BIN_DIR "/enwik8 --data text "
                      "--run-dir all --seconds 0.2 --variants 'ls window-only txl' -- " SMALL
                      "--log-every 20 --eval-every 20 >table 2>errors";
    static const char *const names[] = { "ls", "window-only", "txl" };
    static char table[20000];
    cr_assert(shell(command));
    slurp("table", table, sizeof table);
    long long steps[3], least = 0;
    char after[3][32]; /* "-" where a faster variant had no validation by then */
    double tested;
    for (int i = 0; i < 3; i++) {
        char start[40];
        snprintf(start, sizeof start, "\n| %s | ", names[i]);
        const char *row = strstr(table, start);
        cr_assert(row && sscanf(row + strlen(start), "%*d | %*d | %lld | %*s | %31s | %lf",
                                &steps[i], after[i], &tested) == 3,
                  "%s in\n%s", names[i], table);
        cr_expect(tested > 0 && tested < 7, "%g", tested);
        if (i == 0 || steps[i] < steps[least]) least = i;
    }
    char log[40];
    snprintf(log, sizeof log, "all/%s/log.jsonl", names[least]);
    slurp(log, out, sizeof out);
    double last = 0;
    for (const char *s = out; (s = strstr(s, "\"valid_bpc\":"));) last = strtod(s += 12, NULL);
    cr_expect_float_eq(strtod(after[least], NULL), last, 6e-5, "%s, not %g", after[least], last);
    slurp("all/txl/log.jsonl", errors, sizeof errors);
    cr_assert(shell(command));
    slurp("all/txl/log.jsonl", out, sizeof out);
    cr_expect_str_eq(out, errors);
}
