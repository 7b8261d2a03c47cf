/* test_lra_program.c - the program lra as a user runs it, on small drawn documents and a few files:
 * stopping and resuming gives the same bits, every bad input gives one clear message, rates are
 * those of the official code, padding changes no score. test_faults.c, test_kill.c and
 * test_signals.c test full disks, kills and signals. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tapegrad/listops.h>

#include "lra.h"
#include "support/checkpoint.h"
#include "support/program.h"

#define EXAMPLES "--examples 64 --valid-examples 20 --test-examples 20 --shortest 12 --longest 40 "
#define MODEL    "--length 64 --layers 1 --dim 16 --hidden 16 "
#define SMALL    EXAMPLES MODEL "--batch 8 --threads 1 "

static void begin(void)
{
    program_begin("lra");
}

TestSuite(lra_program, .init = begin, .fini = program_end, .timeout = 900);

/* ---- resuming ---- */

Test(lra_program, resume_is_exact)
{
    static const char *const runs[] = {
        "--attention ls --dropout 0.1 --ema 0.9 --clip 0.5 --recompute block",
        "--attention ls --packed no --dropout 0.1",
        "--attention softmax --bucket 3 --recompute attention",
        "--attention performer --accumulation 2 --bucket 3 --fixed-lr",
        "--attention reformer --recipe paper",
        "--attention linformer --rank 8 --dtype bf16",
        "--attention nystrom --rank 16 --dtype f64 --schedule cosine",
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const char *rest = "--eval-every 4 --log-every 3 --steps 11 --overwrite";
        succeed("train " SMALL "%s %s --run-dir a", rest, runs[i]);
        succeed("train " SMALL "%s %s --run-dir b --time 0.000001", rest, runs[i]);
        cr_expect_eq(update_in("b/last.safetensors"), 1, "%s", runs[i]);
        succeed("train --resume --run-dir b --threads 2");
        cr_expect_eq(update_in("b/last.safetensors"), 11, "%s", runs[i]);
        cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"), "%s", runs[i]);
    }
}

/* ---- recipes ---- */

static void expect_rate(const lra_settings *s, int64_t u, double rate, double beta1)
{
    cr_expect_float_eq(lra_rate(s, u) / rate, 1, 1e-8, "update %lld: %.10g, not %.10g",
                       (long long)u, lra_rate(s, u), rate);
    if (beta1 > 0) cr_expect_float_eq(lra_beta1(s, u), beta1, 1e-12, "%lld", (long long)u);
}

static int attention_named(const char *name)
{
    int i = 0;
    while (i < ATTENTIONS && strcmp(attention_name(i), name) != 0) i++;
    return i;
}

static lra_settings started_with(int attention, int task, lra_recipe recipe, int64_t steps)
{
    lra_settings s;
    char why[256];
    cr_assert(lra_start(&s, task, attention, recipe, steps, why, sizeof why), "%s", why);
    return s;
}

static lra_settings started(int task, lra_recipe recipe, int64_t steps)
{
    return started_with(ATTENTION_LS, task, recipe, steps);
}

/* Section 4 of the specification: values of the official schedules. */
Test(lra_program, rates_of_the_official_code)
{
    lra_settings s = started(0, RECIPE_CODE, 0);
    cr_expect_eq(s.train.steps, 5000);
    cr_expect_eq(s.train.batch, 32);
    expect_rate(&s, 0, 4e-6, 0.95);
    expect_rate(&s, 500, 5.204804804804805e-5, 0);
    expect_rate(&s, 999, 1e-4, 0.85);
    expect_rate(&s, 1000, 9.9975001e-5, 0.85 + 0.1 / 4000);
    expect_rate(&s, 3000, 4.99752001e-5, 0);
    expect_rate(&s, 4998, 2.5399900e-8, 0);
    expect_rate(&s, 4999, 4e-10, 0.95);
    s.fixed_lr = true;
    expect_rate(&s, 999, 1e-4, 0.85);
    expect_rate(&s, 1000, 9.9975001e-5, 0.85 + 0.1 / 4000);
    expect_rate(&s, 4999, 9.9975001e-5, 0.85 + 0.1 / 4000);
    tp_options_free(lra_options, &s);

    s = started(1, RECIPE_CODE, 0);
    expect_rate(&s, 4000, 5.200600075e-5, 0);
    expect_rate(&s, 7999, 1e-4, 0.85);
    expect_rate(&s, 14000, 4.99918667e-5, 0);
    cr_expect_eq(tp_train_get(&s.train, "weight_decay"), 0.01);
    tp_options_free(lra_options, &s);

    s = started(2, RECIPE_CODE, 0);
    expect_rate(&s, 7999, 1e-4, 0.85);
    expect_rate(&s, 19000, 4.999565456e-5, 0);
    tp_options_free(lra_options, &s);

    s = started_with(attention_named("nystrom"), 2, RECIPE_CODE, 0); /* its own code's */
    cr_expect_eq(s.train.warmup, 800);
    tp_options_free(lra_options, &s);
    s = started_with(attention_named("nystrom"), 2, RECIPE_PAPER, 0);
    cr_expect_eq(s.train.warmup, 8000);
    tp_options_free(lra_options, &s);

    s = started(1, RECIPE_PAPER, 0);
    expect_rate(&s, 7999, 1e-4, 0.9);
    expect_rate(&s, 19999, 1e-4, 0.9);
    cr_expect_eq(tp_train_get(&s.train, "weight_decay"), 0);
    tp_options_free(lra_options, &s);

    s = started(0, RECIPE_CODE, 100); /* the warm-up keeps its share */
    cr_expect_eq(s.train.warmup, 20);
    expect_rate(&s, 19, 1e-4, 0.85);
    tp_options_free(lra_options, &s);
}

/* Members changed by name are stored with the run, which resumes with them. */
Test(lra_program, members_by_name)
{
    succeed("train " SMALL
            "--steps 4 --time 0.000001 --set dual_ln=0,cls_mode=values --run-dir set");
    cr_expect(shell("grep -q 'dual_ln=0,cls_mode=values' set/config.json"));
    expect_refusal("train --resume --run-dir set --set dual_ln=1", 1,
                   "--set dual_ln=1 (checkpoint: dual_ln=0,cls_mode=values)");
    succeed("train --resume --run-dir set");
    succeed("train " SMALL "--steps 1 --set proj=linformer --run-dir fixed"); /* packs no batches */
}

/* The optimiser uses the schedule's beta1, which is logged and changes the weights. */
Test(lra_program, beta1_moves_with_the_rate)
{
    succeed("train " SMALL "--steps 10 --log-every 1 --run-dir a");
    slurp("a/log.jsonl", out, sizeof out);
    const char *line = out;
    for (int u = 0; u < 10; u++, line = strchr(line, '\n') + 1) {
        const double beta1 = u <= 1 ? 0.95 - 0.10 * u : 0.85 + 0.10 * (u - 1) / 8;
        const double rate = u <= 1 ? 4e-6 + 96e-6 * u : 1e-4 + (4e-10 - 1e-4) * (u - 1) / 8;
        cr_expect_float_eq(number_in(line, "beta1"), beta1, 1e-12, "%d", u);
        cr_expect_float_eq(number_in(line, "lr"), rate, 1e-15, "%d", u);
    }
    succeed("train " SMALL "--steps 10 --schedule linear --warmup 2 --run-dir b");
    slurp("b/log.jsonl", out, sizeof out);
    cr_expect_eq(number_in(out, "beta1"), 0.9);
}

/* ---- attentions and tasks ---- */

Test(lra_program, every_attention)
{
    for (int i = 0; attention_name(i); i++) {
        const char *name = attention_name(i);
        const char *more = strstr(name, "nystrom") ? "--rank 16" : "";
        succeed("train " SMALL "--attention %s %s --steps 2 --run-dir run --overwrite", name, more);
        succeed("eval --run-dir run --part valid --threads 1 --format json");
        const double accuracy = number_in(out, "accuracy"), loss = number_in(out, "loss");
        slurp("run/log.jsonl", errors, sizeof errors);
        cr_expect_float_eq(number_in(errors, "accuracy"), accuracy, 1e-9, "%s", name);
        cr_expect_float_eq(number_in(errors, "valid_loss"), loss, 1e-5, "%s", name);
        cr_expect(loss > 2 && loss < 3, "%s: %g", name, loss);
    }
}

/* A folder with small files of text, retrieval and listops. */
static void make_files(void)
{
    cr_assert(shell(
        "for p in train test; do for l in neg pos; do mkdir -p aclImdb/$p/$l;"
        "for i in 1 2 3 4 5 6 7 8; do echo \"a $l film, no. $i!\" > aclImdb/$p/$l/${i}_5.txt; done;"
        "done; done; mkdir aan ops;"
        "for p in train eval test; do for i in 1 2 3 4 5 6; do "
        "printf '%d.0\\tA%d\\tB%d\\tpaper %d, of %s\\tanother; %d\\n' $((i % 2)) $i $i $i $p $i;"
        "done > aan/new_aan_pairs.$p.tsv; done;"
        "for p in train val test; do { printf 'Source\\tTarget\\n'; for i in 1 2 3 4 5 6 7 8 9; do "
        "printf '( ( ( [MAX %d ) 2 ) ] )\\t%d\\n' $i $((i > 2 ? i : 2)); done; } "
        "> ops/basic_$p.tsv; done"));
}

/* One table serves all parts without shared examples. */
Test(lra_program, one_table_is_divided)
{
    make_files();
    cr_assert(shell("cat ops/basic_test.tsv > t.tsv; "
                    "for p in train val; do tail -n 9 ops/basic_$p.tsv >> t.tsv; done"));
    succeed("train --task listops " MODEL
            "--data t.tsv --batch 4 --threads 1 --steps 2 --run-dir run");
    cr_expect(strstr(out, "t.tsv is one table: every tenth example is for validation and test"),
              "%s", out);
    cr_expect(strstr(out, "25 examples") && strstr(out, "test: 2 examples"), "%s", out);
    succeed("eval --run-dir run --data t.tsv --threads 1");
    cr_expect(strstr(out, "2 test examples"), "%s", out);
    succeed("eval --run-dir run --data t.tsv --threads 1 --part train");
    cr_expect(strstr(out, "25 training examples"), "%s", out);
    succeed("eval --run-dir run --data ops/basic_test.tsv --threads 1");
    cr_expect(strstr(out, "9 test examples"), "%s", out);
}

Test(lra_program, every_task)
{
    static const struct {
        const char *name, *flags, *data;
    } tasks[] = {
        { "text", MODEL, "--data aclImdb" },
        { "retrieval", MODEL, "--data aan" },
        { "listops", MODEL "--brackets keep", "--data ops" },
        { "listops", MODEL, "--data ops/basic_test.tsv" },
        { "pathfinder", "--layers 1 --dim 16 --examples 8 --valid-examples 4 --test-examples 4",
          "" },
    };
    make_files();
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        const char *name = tasks[i].name;
        succeed("train --task %s %s %s --batch 4 --threads 1 --steps 2 --run-dir run --overwrite",
                name, tasks[i].flags, tasks[i].data);
        cr_expect(strstr(out, name), "%s", out);
        succeed("eval --run-dir run --threads 1 --batch 3 --format json %s", tasks[i].data);
        const double n = number_in(out, "examples"), accuracy = number_in(out, "accuracy");
        cr_expect_eq(number_in(out, "official_examples"), n - fmod(n, 3), "%s", name);
        slurp("run/test.json", errors, sizeof errors);
        cr_expect_eq(number_in(errors, "examples"), n, "%s", name);
        cr_expect_float_eq(number_in(errors, "accuracy"), accuracy, 1e-6, "%s", name);
    }
}

/* ---- scores ---- */

static tp_documents *draw(int n)
{
    return tp_documents_listops_drawn(
        TP_TRAIN, &(tp_listops_opts){
                      .seed = 3, .shortest = 5, .longest = 60, .train = n, .valid = 1, .test = 1 });
}

static tp_lra_cfg config(const char *attention)
{
    char name[80], why[256];
    tp_model_cfg m;
    tp_lra_cfg c;
    snprintf(name, sizeof name, "lra-listops-%s", attention);
    cr_assert(tp_model_preset(&m, name, why, sizeof why), "%s", why);
    memcpy(&c, &m.at, sizeof c);
    c.attn.length = 64;
    if (strstr(attention, "nystrom")) c.attn.rank = 16;
    return c;
}

/* Same scores for documents padded to full length, padded to their batch's longest, or packed. */
Test(lra_program, padding_changes_no_score)
{
    tp_documents *X = draw(37);
    for (int i = 0; attention_name(i); i++) {
        const tp_lra_cfg c = config(attention_name(i));
        if (!encoder_ignores_padding(&c)) continue;
        tp_device *D = tp_device_open("cpu", NULL);
        tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 5, .dtype = TP_F64 });
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_F64 });
        encoder m = { 0 };
        doc_score padded, sorted, small, packed;
        tp_record(T, false);
        encoder_init(P, &m, &c, 1);
        cr_assert(
            encoder_score(&padded, T, &m, X, (encoder_batching){ .batch = 8 }, (doc_watch){ 0 }),
            "%s", padded.why);
        cr_assert(encoder_score(&sorted, T, &m, X, (encoder_batching){ .batch = 8, .bucket = 2 },
                                (doc_watch){ 0 }),
                  "%s", sorted.why);
        cr_assert(encoder_score(&small, T, &m, X, (encoder_batching){ .batch = 5, .bucket = 2 },
                                (doc_watch){ 0 }),
                  "%s", small.why);
        cr_assert(tp_lra_packs(&c));
        cr_assert(encoder_score(&packed, T, &m, X, (encoder_batching){ .batch = 8, .packed = true },
                                (doc_watch){ 0 }),
                  "%s", packed.why);
        cr_expect_eq(padded.count, 37);
        cr_expect_eq(padded.right, sorted.right, "%s", attention_name(i));
        cr_expect_eq(padded.whole_count, 32);
        cr_expect_eq(padded.whole_right, sorted.whole_right, "%s", attention_name(i));
        cr_expect_eq(small.whole_count, 35);
        cr_expect_eq(padded.right, packed.right, "%s", attention_name(i));
        cr_expect_eq(padded.whole_right, packed.whole_right, "%s", attention_name(i));
        cr_expect_float_eq(doc_score_loss(&padded), doc_score_loss(&packed), 1e-6, "%s",
                           attention_name(i));
        cr_expect_float_eq(doc_score_loss(&padded), doc_score_loss(&sorted), 1e-6, "%s",
                           attention_name(i));
        cr_expect_float_eq(doc_score_loss(&padded), doc_score_loss(&small), 1e-6, "%s",
                           attention_name(i));
        encoder_free(&m);
        tp_tape_free(T);
        tp_params_free(P);
        tp_device_close(D);
    }
    tp_documents_close(X);
}

/* Batches are packed where results do not depend on padding; an evaluation may override it. */
Test(lra_program, packed_or_padded)
{
    static const struct {
        const char *flags, *message;
        bool packs;
    } runs[] = {
        { "--attention ls-best", "batches of 8 are packed, without padding", true },
        { "--attention none --packed no", "are padded to their longest document", true },
        { "--conv 3", "are padded to their longest document", false },
        { "--attention performer", "are padded to 64 tokens", false },
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        succeed("train " SMALL "--steps 2 --run-dir run --overwrite %s", runs[i].flags);
        cr_expect(strstr(out, runs[i].message), "%s", out);
        succeed("eval --run-dir run --threads 1 --packed no --format json");
        const double loss = number_in(out, "loss"), accuracy = number_in(out, "accuracy");
        for (int packed = 0; packed < 1 + runs[i].packs; packed++) {
            succeed("eval --run-dir run --threads 1 --format json %s",
                    packed ? "--packed yes" : "");
            cr_expect_float_eq(number_in(out, "loss"), loss, 1e-5, "%s", runs[i].flags);
            cr_expect_float_eq(number_in(out, "accuracy"), accuracy, 1e-9, "%s", runs[i].flags);
        }
    }
}

/* ---- bad input ---- */

Test(lra_program, bad_flags)
{
    static const struct {
        const char *args, *message;
    } bad[] = {
        { "", "'lra COMMAND --help' prints the manual" },
        { "trian", "did you mean 'train'?" },
        { "train --task lists", "--task: 'lists' is not one of listops|text|" },
        { "train --atention ls", "--atention: unknown flag; did you mean --attention?" },
        { "eval --part train --damage delete", "training documents are never damaged" },
        { "perturb --data x", "name the folders of the runs to measure" },
        { "perturb run", "--data PATH is required" },
        { "table --steps 3 --time 3", "--steps and --time are two budgets" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(bad[i].args, 2, bad[i].message);
}

Test(lra_program, bad_input)
{
    static const struct {
        const char *args, *message;
    } bad[] = {
        { "train --task text", "--data PATH is required: only documents of listops" },
        { "train --task text --data missing", "missing cannot be opened: No such file" },
        { "train --data bad.tsv", "bad.tsv" },
        { "train --preset lra-text", "--preset: 'lra-text' is not lra-TASK-ATTENTION" },
        { "train --preset lra-text-ls --task listops", "contradicts --task or --attention" },
        { "train --task image --attention dp --data ops",
          "no window and rank were published for the task image" },
        { "train --set dual=0", "--set: 'dual' is no member of" },
        { "train --set num_layers=3", "--set: --layers sets this member: give that" },
        { "train --set window_size=16", "--set: --window sets this member: give that" },
        { "train --task listops --attention softmax --set attn_type=linear",
          "--set: --attention sets this member: give that" },
        { "train --set vocab_size=99", "--set: vocab_size is set by --task" },
        { "train --set dual_ln=2", "--set: dual_ln = 2 is out of range" },
        { "train --length 100", "impossible model: 100 tokens are no multiple of the window 8" },
        { "train --attention reformer --length 100", "no multiple of a chunk of 64" },
        { "train --attention linformer --bucket 9", "fixed mixtures need documents of the full" },
        { "train --attention nystrom --packed yes",
          "--packed yes: only softmax, none, and ls, ls-best" },
        { "train --conv 3 --packed yes",
          "without a convolution take packed documents: leave it out" },
        { "eval --run-dir files --data ops --packed yes", "--packed no pads them" },
        { "train --task pathfinder --packed yes --examples 8 --valid-examples 4 --batch 4",
          "cannot be packed: it has the id 0" },
        { "train --shortest 9 --longest 8", "--shortest 9 is above --longest 8" },
        { "train --steps 9 --warmup 10", "--warmup 10 is longer than the run of --steps 9" },
        { "train " SMALL "--examples 3 --run-dir other", "too few for a batch of 8" },
        { "train --run-dir run", "already holds a run" },
        { "train --resume --run-dir run --steps 9", "its schedule ends at update 2" },
        { "train --resume --run-dir run --rank 3", "--rank 3 (checkpoint: 32)" },
        { "train --resume --run-dir run --data ops", "the documents differ from those" },
        { "train " SMALL "--attention softmax --init run/best.safetensors --run-dir other",
          "run/best.safetensors does not fit" },
        { "eval --run-dir missing", "missing/last.safetensors: cannot be opened" },
        { "eval --checkpoint ops/basic_val.tsv", "ops/basic_val.tsv" },
        { "eval --run-dir run --damage insert", "--damage is for text and retrieval" },
        { "eval --run-dir files", "--data PATH is required: files/best.safetensors was" },
        { "eval --run-dir run >/dev/full 2>err; exit $? #", "standard output" },
        { "perturb run --data aclImdb", "only text and retrieval have punctuation" },
        { "table --attentions ls,lz --run-dir t", "--attentions: 'lz' is no attention" },
        { "table --attentions ls,ls --run-dir t", "is there twice" },
        { "table --steps 2 --attentions ls --run-dir t --flags=--no-such", "failed with status 2" },
        { "scale --lengths 64,x", "--lengths: 'x'" },
        { "scale --attentions full", "--attentions: 'full' is not one of" },
    };
    make_files();
    succeed("train " SMALL "--steps 2 --run-dir run");
    succeed("train " MODEL "--attention linear --data ops --batch 4 --steps 1 --run-dir files");
    cr_assert(shell("printf 'Source\\tTarget\\n( [MAX 1 )\\t1\\n' > bad.tsv; cp -r run before"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(bad[i].args, 1, bad[i].message);
    cr_expect(shell("diff -r before run"), "nothing was written over");
}

/* A checkpoint with changed metadata gives a message. */
Test(lra_program, changed_metadata)
{
    succeed("train " SMALL "--steps 2 --run-dir run");
    change_number("run/best.safetensors", "sorted", 2);
    expect_refusal("eval --run-dir run", 1, "run/best.safetensors: 'sorted' is neither 0 nor 1");
    succeed("train " SMALL "--steps 2 --run-dir run --overwrite");
    change_number("run/best.safetensors", "packed", 7);
    expect_refusal("eval --run-dir run", 1, "run/best.safetensors: 'packed' is neither 0 nor 1");
    succeed("train " SMALL "--steps 2 --run-dir run --overwrite");
    change_number("run/best.safetensors", "documents.drawn", -3);
    expect_refusal("eval --run-dir run", 1, "'documents.drawn' is neither 0 nor 1");
    succeed("train " SMALL "--steps 2 --run-dir run --overwrite");
    change_number("run/best.safetensors", "documents.depth", 1000);
    expect_refusal("eval --run-dir run", 1, "'documents.depth': 1000 is out of range");
    change_number("run/last.safetensors", "tokens", -1);
    expect_refusal("train --resume --run-dir run", 1, "'tokens' is out of range");
}

/* ---- perturb ---- */

Test(lra_program, perturb)
{
    make_files();
    succeed("train --task text --attention linformer --data aclImdb " MODEL
            "--rank 8 --batch 4 --threads 1 --steps 3 --run-dir run");
    succeed("perturb run run/last.safetensors --data aclImdb --threads 1 --batch 3");
    cr_expect(strstr(out, "linformer") && strstr(out, "55.94"), "%s", out);
    succeed("perturb run --data aclImdb --threads 1 --format json");
    cr_expect_eq(number_in(out, "examples"), 16);
    const double damaged = number_in(out, "delete");
    succeed("eval --run-dir run --data aclImdb --threads 1 --damage delete --format json");
    cr_expect_float_eq(number_in(out, "accuracy"), damaged, 1e-9);
    succeed("perturb run --data aclImdb --threads 1 --format json --limit 4 --whole");
    cr_expect_eq(number_in(out, "examples"), 4);
}

/* ---- table and scale ---- */

#define TABLE                                                                                      \
    "table --attentions ls,none --threads 1 --run-dir all --flags='" EXAMPLES MODEL                \
    "--batch 8 --eval-every 2' "

Test(lra_program, table_is_resumed)
{
    succeed(TABLE "--steps 4 --seeds 2 --format json");
    int lines = 0;
    for (const char *s = out; (s = strstr(s, "\"seed\": ")); s++) lines++;
    cr_expect_eq(lines, 4, "%s", out);
    cr_expect_eq(number_in(out, "updates"), 4);
    cr_assert(shell("cp all/ls-2/log.jsonl before; rm all/none-2/test.json"));
    succeed(TABLE "--steps 4 --seeds 2");
    cr_expect(strstr(out, "\nls ") && strstr(out, "\nnone "), "%s", out);
    cr_expect(same_bytes("before", "all/ls-2/log.jsonl"), "not trained again");
    cr_expect(shell("test -s all/none-2/test.json -a -s all/table.jsonl"), "tested again");
    if (shell("command -v gnuplot >/dev/null"))
        cr_expect(shell("test -s all/accuracy.png -a -s all/memory.png"), "%s", errors);
    expect_refusal(TABLE "--steps 5", 1, "all holds a table of other settings");
    cr_assert(shell("echo '{' > all/table.json"));
    expect_refusal(TABLE "--steps 4", 1, "all/table.json: line ");
}

/* The time sets the number of updates. */
Test(lra_program, table_by_time)
{
    succeed(TABLE "--time 0.5");
    cr_expect(shell("test -s all/probe-ls/log.jsonl -a -s all/none-1/test.json"));
    const double ls = number_in((slurp("all/ls-1/config.json", out, sizeof out), out), "updates");
    const double none =
        number_in((slurp("all/none-1/config.json", out, sizeof out), out), "updates");
    cr_expect(ls >= 1 && none >= 1, "%g and %g updates", ls, none);
}

/* A signal reaches the training; the same command resumes it. */
Test(lra_program, table_is_stopped)
{
    int status;
    cr_assert(shell("mkdir -p all/none-1"));
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        freopen("err", "w", stderr);
        execl(TP_BIN_DIR "/lra", "lra", "table", "--attentions", "none", "--threads", "1",
              "--run-dir", "all", "--steps", "1000000", "--flags=" SMALL "--log-every 1",
              (char *)NULL);
        _exit(127);
    }
    await_reports("all/none-1/log.jsonl", 3);
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    slurp("err", errors, sizeof errors);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM, "%d\n%s", status, errors);
    cr_expect(strstr(errors, "stopped by SIGTERM after update "), "%s", errors);
    cr_expect(update_in("all/none-1/last.safetensors") >= 3);
}

Test(lra_program, scale)
{
    succeed("scale --dry --lengths 128,256 --attentions softmax,nystrom,ls --format json");
    int lines = 0;
    for (const char *s = out; (s = strstr(s, "\"ms\":null")); s++) lines++;
    cr_expect_eq(lines, 6, "%s", out);
    const double bytes = number_in(out, "bytes");
    succeed("scale --lengths 128 --attentions softmax --seconds 0.01 --threads 1 --format json "
            "--clock cpu");
    cr_expect(number_in(out, "ms") > 0, "%s", out);
    cr_expect_float_eq(number_in(out, "bytes") / bytes, 1, 0.5, "%s", out);
    succeed("scale --forward --dry --lengths 128 --attentions softmax --format json");
    cr_expect(number_in(out, "bytes") < 0.8 * bytes && strstr(out, "\"pass\":\"forward\""), "%s",
              out);
    succeed("scale --forward --lengths 128 --attentions ls --seconds 0.01");
    cr_expect(strstr(out, "ms a pass"), "%s", out);
    succeed("scale --dry --lengths 100 --attentions nystrom,none"); /* 100 / 128 landmarks: none */
    cr_expect(!strstr(out, "nystrom") && strstr(out, "none"), "%s", out);
    if (!shell("command -v gnuplot >/dev/null")) return;
    succeed("scale --lengths 128,256 --attentions none,ls --seconds 0.01 --picture scale.png");
    cr_expect(shell("test -s scale.png"));
}

/* ---- norms by layer ---- */

/* A number of the line of this layer, without or with DualLN. */
static double norm_of(int layer, bool dual, const char *key)
{
    char of[60];
    snprintf(of, sizeof of, "\"layer\":%d,\"dual_ln\":%s", layer, dual ? "true" : "false");
    const char *line = strstr(out, of);
    cr_assert(line, "%s: %s", of, out);
    return number_in(line, key);
}

/* Norms with initial weights, all 1, make rows of 64 elements 8 long. What enters them in the first
 * layer is what a model without them reads, of one document or of a pair. */
Test(lra_program, norms_of_initial_weights)
{
    static const char *const keys[] = { "keys", "projected_keys", "values", "projected_values" };
    static const char *const presets[] = { "lra-listops-ls", "lra-retrieval-ls-best" };
    for (size_t p = 0; p < sizeof presets / sizeof *presets; p++) {
        const char *flags = "--batch 2 --threads 1 --format json --dtype f64";
        double without[4];
        succeed("norms --fresh --preset %s %s", presets[p], flags);
        for (int k = 0; k < 4; k++) {
            without[k] = norm_of(0, false, keys[k]);
            for (int layer = 0; layer < 2; layer++)
                cr_expect_float_eq(norm_of(layer, true, keys[k]), 8, 0.01, "%s", out);
        }
        cr_expect(norm_of(0, false, "key_ratio") > 1.5, "averages are shorter: %s", out);
        succeed("norms --fresh --preset %s --set dual_ln=0 %s", presets[p], flags);
        cr_expect(!strstr(out, "true"), "%s", out);
        for (int k = 0; k < 4; k++)
            cr_expect_float_eq(norm_of(0, false, keys[k]) / without[k], 1, 1e-6, "%s, %s: %s",
                               presets[p], keys[k], out);
    }
}

/* Padding does not count, so batches of other documents give the same means. */
Test(lra_program, norms_of_a_run)
{
    static const char *const bad[][2] = {
        { "norms --run-dir none", "none/last.safetensors: cannot be opened" },
        { "norms --run-dir linear", "no layer of the model has long-short attention" },
        { "norms --run-dir a --preset lra-text-ls", "--preset is the model of --fresh" },
        { "norms --run-dir a --set dual_ln=0", "--set: it changes the model of --fresh" },
        { "norms --fresh", "--fresh: name the model with --preset" },
        { "norms --fresh --preset lra-text-lss", "did you mean 'lra-text-ls" },
        { "norms --fresh --preset cvt-13", "--preset cvt-13 is no model of the Long Range Arena" },
        { "norms --fresh --preset lra-text-ls --data x", "--fresh and --data exclude each other" },
        { "norms --fresh --preset lra-text-dp", "no layer of the model has long-short attention" },
    };
    const char *flags = "--threads 1 --format json --limit 12 --dtype f64";
    double one[2];
    succeed("train " SMALL "--attention ls --window 4 --rank 3 --steps 4 --run-dir a");
    succeed("train " SMALL "--attention linear --steps 1 --run-dir linear");
    succeed("norms --run-dir a %s --batch 1", flags);
    for (int dual = 0; dual < 2; dual++) one[dual] = norm_of(0, dual, "key_ratio");
    succeed("norms --run-dir a %s --batch 5 --picture norms.svg", flags);
    for (int dual = 0; dual < 2; dual++)
        cr_expect_float_eq(norm_of(0, dual, "key_ratio") / one[dual], 1, 1e-6, "%s", out);
    cr_expect(shell("grep -q 'up to 12 validation examples of listops' norms.svg"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_refusal(bad[i][0], 1, bad[i][1]);
}

/* ---- manuals ---- */

Test(lra_program, manuals)
{
    static const struct {
        const char *command, *text;
    } pages[] = {
        { "train", "ATTENTIONS\n" },   { "train", "--resume" },
        { "train", "test.json" },      { "eval", "--damage none|insert|delete" },
        { "perturb", "lra perturb" },  { "table", "--seeds N" },
        { "scale", "--lengths LIST" }, { "norms", "--preset NAME" },
    };
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        succeed("%s --help", pages[i].command);
        cr_expect(strstr(out, pages[i].text), "%s: %s", pages[i].command, pages[i].text);
    }
    succeed("--help");
    succeed("train " SMALL "--plan");
    cr_expect(strstr(out, "peak of a step") && strstr(out, "Time here"), "%s", out);
}
