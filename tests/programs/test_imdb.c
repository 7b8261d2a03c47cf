/* test_imdb.c - the program imdb as a user runs it, on small texts whose words determine their
 * class: resuming gives the same bits, rates are those of the specification, conversions keep what
 * they should, explanations add up. test_imdb_input.c tests bad input; test_faults.c, test_kill.c
 * and test_signals.c test full disks, kills and signals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tapegrad/random.h>

#include "support/checkpoint.h"
#include "support/program.h"
#include "support/texts.h"
#include "training.h"

#define MODEL "--tokenizer words --layers 1 --dim 32 --heads 2 --hidden 32 --threads 1 "
#define TRAIN "train --data reviews --length 16 --epochs 0 " MODEL "--batch 8 "
#define MLM   "pretrain --data reviews --length 16 " MODEL "--batch 4 "

static void begin(void)
{
    program_begin("imdb");
    review_data();
}

TestSuite(imdb, .init = begin, .fini = program_end, .timeout = 900);

/* ---- resuming ---- */

Test(imdb, resume_is_exact)
{
    static const char *const runs[] = {
        TRAIN "--ema 0.9 --clip 0.5 --recompute block --accumulation 2",
        TRAIN "--packed no --bucket 2 --smoothing 0.1 --balance",
        TRAIN "--preset longformer-mini --window 8 --length 24 --decay matrices",
        TRAIN "--preset roberta_ls-mini --window 4 --rank 2 --recompute attention --packed no",
        TRAIN "--preset roberta_ls-mini --window 4 --rank 2 --dual-ln off --dtype f64",
        MLM "--masks exact --power 3",
        MLM "--preset longformer-mini --window 8 --length 24 --sequence 16 --accumulation 2",
        MLM "--preset roberta_ls-mini --window 4 --rank 2 --recompute block --dtype bf16",
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const char *rest = "--eval-every 4 --log-every 3 --steps 11 --overwrite";
        succeed("%s %s --run-dir a", runs[i], rest);
        succeed("%s %s --run-dir b --time 0.000001", runs[i], rest);
        cr_expect_eq(update_in("b/last.safetensors"), 1, "%s", runs[i]);
        succeed("%.8s --resume --run-dir b --threads 2", runs[i][0] == 't' ? "train" : "pretrain");
        cr_expect_eq(update_in("b/last.safetensors"), 11, "%s", runs[i]);
        cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"), "%s", runs[i]);
    }
}

/* ---- low-rank adaptation ---- */

/* The encoder keeps its weights; the head and the adaptations learn, resume and are evaluated. */
Test(imdb, adaptations)
{
    static const char *const presets[] = { "", "--preset longformer-mini --window 8" };
    for (int k = 0; k < 2; k++) {
        const char *query = "roberta.encoder.layer.0.attention.self.query.weight";
        succeed(MLM "%s --steps 2 --run-dir base --overwrite", presets[k]);
        const char *flags = TRAIN "%s --init base/best.safetensors --lora 2 --lora-modules "
                                  "query,value,fc1,intermediate.dense --lr 0.01 --overwrite";
        char run_flags[800];
        snprintf(run_flags, sizeof run_flags, flags, presets[k]);
        succeed("%s --steps 6 --run-dir a", run_flags);
        cr_expect(strstr(out, "adaptations of rank 2 to "), "%s", out);
        succeed("%s --steps 6 --run-dir b --time 0.000001", run_flags);
        succeed("train --resume --run-dir b --threads 2");
        cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"));
        cr_expect_eq(tensor_distance("base/best.safetensors", "a/best.safetensors", query), 0);
        succeed("eval --data reviews --run-dir a --threads 1");
        cr_assert(shell("test $(stat -c %s a/adapter.safetensors) -lt "
                        "$(stat -c %s a/best.safetensors)"));
    }
}

/* ---- members by the names that checkpoints use ---- */

/* Flags and --set describe the same models, which a resumed run, evaluation and conversion keep. */
Test(imdb, members_by_name)
{
    succeed(TRAIN "--steps 2 --run-dir a --dropout 0 --attention-dropout 0.2");
    succeed(TRAIN
            "--steps 2 --run-dir b "
            "--set hidden_dropout_prob=0,attention_probs_dropout_prob=0.2,num_hidden_layers=1");
    cr_expect(same_bytes("a/best.safetensors", "b/best.safetensors"));
    succeed(TRAIN "--steps 2 --run-dir c --set pooler=0 --time 0.000001");
    succeed("train --resume --run-dir c");
    succeed("eval --data reviews --run-dir c --threads 1");
    succeed("convert c/best.safetensors c.safetensors --set max_tokens=24");
    cr_expect(strstr(out, "at most 24 tokens"), "%s", out);
    succeed(MLM "--steps 1 --run-dir d --set attention_type=ls,window=4,num_landmarks=2,dual_ln=0");
    cr_expect(strstr(out, "roberta_ls: 1 layers"), "%s", out);
    succeed(MLM "--steps 1 --run-dir e --set attention_type=longformer --window 8");
    cr_expect(strstr(out, "longformer: 1 layers"), "%s", out);
    expect_refusal("train --resume --run-dir c --set pooler=1", 1,
                   "--set pooler=1 (checkpoint: pooler=0)");
}

/* ---- accumulation ---- */

/* Batches have different numbers of masked tokens, and each token counts the same. */
Test(imdb, accumulated_batches_weigh_by_their_targets)
{
    double loss[2], norm[2];
    for (int k = 0; k < 2; k++) {
        char log[4000];
        succeed(
            "pretrain --data reviews --length 64 --sequence 64 " MODEL
            "--dropout 0 --attention-dropout 0 --dtype f64 --steps 3 --log-every 3 --eval-every 0 "
            "--overwrite --batch %d --accumulation %d --run-dir run",
            k ? 1 : 4, k ? 4 : 1);
        slurp("run/log.jsonl", log, sizeof log);
        loss[k] = number_in(log, "loss");
        norm[k] = number_in(log, "grad_norm");
    }
    cr_expect_float_eq(loss[1], loss[0], 1e-7, "%.9g, not %.9g", loss[1], loss[0]);
    cr_expect_float_eq(norm[1], norm[0], 1e-7, "%.9g, not %.9g", norm[1], norm[0]);
}

/* ---- rates ---- */

/* Section 8.5 of the specification: 3e-5 ((T - t) / (T - 500))^3, and 8.6: linear to 0. */
Test(imdb, rates_of_the_recipes)
{
    pretrain_settings s = { 0 };
    pretrain_take_recipe(&s, PRETRAIN_LONGFORMER, false);
    cr_expect_eq(s.base.train.batch * s.base.train.accumulation, 64);
    cr_expect_eq(s.base.train.steps, 65000);
    cr_expect_float_eq(text_rate(&s.base.train, &s.base.r, 0, 65000), 3e-5 / 500, 1e-15);
    cr_expect_float_eq(text_rate(&s.base.train, &s.base.r, 499, 65000), 3e-5, 1e-15);
    cr_expect_float_eq(text_rate(&s.base.train, &s.base.r, 32750, 65000), 3e-5 / 8, 1e-15);
    cr_expect_float_eq(text_rate(&s.base.train, &s.base.r, 64999, 65000), 3e-5 * pow(64500, -3),
                       1e-20);
    cr_expect_eq(text_rate(&s.base.train, &s.base.r, 65000, 65000), 0);

    train_settings t = { 0 };
    train_take_recipe(&t, TRAIN_ROBERTA);
    cr_expect_eq(t.base.train.batch * t.base.train.accumulation, 32);
    cr_expect_eq(t.passes, 10);
    cr_expect_eq(text_warmup(&t.base.train, 7812), 469);
    cr_expect_float_eq(text_rate(&t.base.train, &t.base.r, 468, 7812), 1e-5, 1e-15);
    cr_expect_float_eq(text_rate(&t.base.train, &t.base.r, 469, 7812), 1e-5, 1e-15);
    cr_expect_float_eq(text_rate(&t.base.train, &t.base.r, 7811, 7812), 1e-5 / 7343, 1e-15);
    train_take_recipe(&t, TRAIN_LONGFORMER);
    cr_expect_eq(text_warmup(&t.base.train, 1000), 100);
    cr_expect_eq(t.base.train.lr, 3e-5);
}

/* The recipe follows from the model, even if a file gives it. */
Test(imdb, recipe_of_the_model)
{
    static const struct {
        const char *flags, *says;
    } cases[] = {
        { "--preset roberta-base --layers 1 --dim 512 --heads 4 --hidden 8",
          "recipe roberta: 1 updates of 4 x 8 texts, packed; learning rate 1e-05" },
        { "--preset longformer-base --layers 1 --dim 512 --heads 4 --hidden 8 --length 24",
          "recipe longformer: 1 updates of 32 x 1 texts, packed; learning rate 3e-05" },
        { "--init run/best.safetensors --batch 4", "recipe mini: 1 updates of 8 x 4 texts" },
    };
    succeed(MLM "--steps 2 --run-dir run");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        succeed("train --data reviews --tokenizer words --threads 1 --steps 1 --warmup 0 "
                "--run-dir t --overwrite %s",
                cases[i].flags);
        cr_expect(strstr(out, cases[i].says), "%s: %s", cases[i].flags, out);
    }
}

/* ---- from pretraining to predictions ---- */

/* Each attention learns the reviews, and a checkpoint is self-contained. */
Test(imdb, every_attention)
{
    static const char *const kinds[] = { "roberta-mini", "longformer-mini --window 8",
                                         "roberta_ls-mini --window 8 --rank 4" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        succeed(MLM "--steps 30 --lr 0.003 --preset %s --run-dir mlm --overwrite", kinds[i]);
        slurp("mlm/log.jsonl", errors, sizeof errors);
        cr_expect(number_in(errors, "valid_bits") < 8, "%s", errors);
        succeed(
            "train --data reviews --init mlm/best.safetensors --batch 8 --accumulation 1 --steps "
            "120 --lr 0.01 --eval-every 120 --log-every 120 --threads 1 --run-dir run --overwrite");
        cr_assert(shell("mv words hidden"));
        succeed("eval --data reviews --run-dir run --threads 1 --format json");
        const double accuracy = number_in(out, "accuracy"), loss = number_in(out, "loss");
        slurp("run/log.jsonl", errors, sizeof errors);
        cr_expect_float_eq(number_in(errors, "accuracy"), accuracy, 1e-9, "%s", kinds[i]);
        cr_expect_float_eq(number_in(errors, "valid_loss"), loss, 1e-5, "%s", kinds[i]);
        cr_expect(accuracy > 90, "%s: %g", kinds[i], accuracy);
        cr_expect_eq(number_in(out, "texts"), 24);
        cr_expect_float_eq(number_in(out, "recall"), accuracy / 100, 1e-9, "12 texts a class");
        cr_expect(number_in(out, "f1") > 0.9 && number_in(out, "auc") >= number_in(out, "recall"),
                  "%s", out);
        succeed(
            "eval --data reviews --run-dir run --threads 1 --packed no --batch 5 --format json");
        cr_expect_float_eq(number_in(out, "loss"), loss, 1e-5, "%s", kinds[i]);
        succeed("predict reviews/test/pos --run-dir run --threads 1 --format csv");
        cr_expect(strstr(out, "text,class,probability\nreviews/test/pos/1000.txt,neg,"), "%s", out);
        succeed("predict reviews/test/neg --run-dir run --threads 1 --explain");
        cr_expect(strstr(out, "for:") && (strstr(out, "' dull' +") || strstr(out, "' bad' +")),
                  "%s: %s", kinds[i], out);
        cr_assert(shell("mv hidden words"));
    }
}

/* ---- data ---- */

/* CSV with other column names, three classes, a held-back part. */
Test(imdb, tables)
{
    cr_assert(
        shell("{ echo body,folder; for i in 1 2 3 4 5 6 7 8 9; do "
              "echo \"\\\"bad, $i\\\",spam\"; echo \"good $i,inbox\"; echo \"old $i,archive\"; "
              "done; } > mail.csv"));
    succeed("train --data mail.csv --text-column body --label-column folder --hold-back 3 "
            "--length 12 " MODEL "--batch 6 --accumulation 1 --steps 3 --run-dir run");
    cr_expect(strstr(out, "18 texts for training, 9 for validation"), "%s", out);
    succeed("predict mail.csv --text-column body --run-dir run --format json");
    cr_expect(strstr(out, "\"text\":\"mail.csv:2\"") && strstr(out, "\"archive\":") &&
                  strstr(out, "\"inbox\":") && strstr(out, "\"spam\":"),
              "%s", out);
    cr_assert(shell("mkdir -p box && cp mail.csv box/test.csv"));
    succeed("predict box/test.csv box --text-column body --run-dir run --format csv");
    cr_expect(strstr(out, "class,probability\nbox/test.csv:2,") && !strstr(out, "box/box"), "%s",
              out);
    succeed(
        "eval --data mail.csv --text-column body --label-column folder --run-dir run --part train "
        "--hold-back 3 --groups 2 --reliability r.png");
    cr_expect(strstr(out, "18 training texts") && strstr(out, "calibration: ECE") &&
                  strstr(out, "means of the classes: precision ") && !strstr(out, "ROC"),
              "%s", out);
}

/* Twelve texts of one class and two of another: balanced, a run reads other texts. */
Test(imdb, balance)
{
    cr_assert(shell("{ echo text,label; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do "
                    "echo \"good $i,in\"; done; echo bad,out; echo worse,out; } > rare.csv"));
    const char *flags = "train --data rare.csv --hold-back 7 --length 12 " MODEL
                        "--batch 4 --accumulation 1 --eval-every -1 --steps 6";
    succeed("%s --run-dir usual", flags);
    succeed("%s --run-dir balanced --balance", flags);
    cr_expect_not(same_bytes("usual/last.safetensors", "balanced/last.safetensors"));
}

/* Copies the tensors of a file without its metadata. */
static void strip_metadata(const char *from, const char *to)
{
    enum { MOST = 64 };
    void *host[MOST] = { NULL };
    tp_file *F = tp_file_open(from);
    tp_writer *W = tp_writer_new(to);
    const int n = tp_file_count(F);
    cr_assert(n <= MOST);
    for (int i = 0; i < n; i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        host[i] = malloc((size_t)t->numel * sizeof(float));
        cr_assert(tp_file_read(F, t, TP_F32, host[i]), "%s", tp_file_why(F));
        tp_writer_add(W, t->name, TP_F32, t->shape, host[i], false);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file_close(F);
    for (int i = 0; i < n; i++) free(host[i]);
}

/* At any rate, a trial has the batch's rows: 51 / 0.68 rounds to 75, the number of tokens. */
Test(imdb, plan)
{
    succeed("pretrain --data reviews --length 16 " MODEL
            "--batch 5 --sequence 15 --mask-rate 0.68 --plan");
}

/* A plan describes the texts as the run does, although its trial has longer ones. */
Test(imdb, plan_describes_the_run)
{
    char line[400];
    succeed(TRAIN "--steps 1 --run-dir run");
    const char *texts = strstr(out, "reviews:");
    cr_assert(texts && strstr(texts, "on average"), "%s", out);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(texts, "\n"), texts);
    succeed(TRAIN "--steps 1 --plan");
    cr_expect(strstr(out, line), "%s, not %s", out, line);
}

/* ---- convert ---- */

/* A converted Longformer whose window is wider than the texts computes what RoBERTa did. */
Test(imdb, convert_keeps_the_model)
{
    succeed(TRAIN "--steps 120 --lr 0.01 --accumulation 1 --tail 5 --run-dir run");
    succeed("eval --data reviews --run-dir run --threads 1 --format json");
    const double loss = number_in(out, "loss");
    succeed("eval --data reviews --run-dir run --threads 1 --length 6");
    succeed("eval --data reviews --run-dir run --threads 1 --length 8 --format json");
    const double short_loss = number_in(out, "loss");
    succeed("convert run/best.safetensors long.safetensors --preset longformer-mini --length 64 "
            "--window 64");
    cr_expect(strstr(out, "longformer: 1 layers, width 32, 2 heads, at most 64 tokens, window 64"),
              "%s", out);
    succeed(
        "eval --data reviews --checkpoint long.safetensors --length 16 --threads 1 --format json");
    cr_expect_float_eq(number_in(out, "loss"), loss, 2e-5);
    expect_refusal("convert run/best.safetensors long.safetensors", 1, "long.safetensors exists");
    expect_refusal("convert long.safetensors back.safetensors --vocabulary long.safetensors", 1,
                   "long.safetensors");
    cr_expect(access("back.safetensors", F_OK) != 0);
    succeed("convert long.safetensors back.safetensors --preset roberta-mini --length 16 "
            "--vocabulary again");
    cr_expect(same_bytes("words/vocab.json", "again/vocab.json") &&
              same_bytes("words/merges.txt", "again/merges.txt"));
    succeed("eval --data reviews --checkpoint back.safetensors --threads 1 --format json");
    cr_expect_float_eq(number_in(out, "loss"), loss, 2e-5);
    succeed(
        "eval --data reviews --checkpoint back.safetensors --threads 1 --length 8 --format json");
    cr_expect_float_eq(number_in(out, "loss"), short_loss, 2e-5, "texts are cut as before");
    succeed("convert run/best.safetensors ls.safetensors --preset roberta_ls-mini --length 64 "
            "--window 8 --rank 2 --dual-ln off --head mlm");
    succeed("pretrain --data reviews --init ls.safetensors --sequence 16 --batch 4 --steps 1 "
            "--threads 1 --run-dir mlm");
    cr_expect(
        strstr(out, "roberta_ls: 1 layers, width 32, 2 heads, at most 64 tokens, window 8, rank 2, "
                    "no DualLN"),
        "%s", out);
}

/* A published file: our names and shapes, no metadata, vocabulary and config.json beside it. */
Test(imdb, published_file)
{
    succeed(TRAIN "--steps 120 --lr 0.01 --accumulation 1 --heads 4 --run-dir run");
    succeed("predict reviews/test/pos --run-dir run --threads 1");
    static char before[sizeof out];
    snprintf(before, sizeof before, "%s", out);
    cr_assert(shell("cp -r words hub"));
    strip_metadata("run/best.safetensors", "hub/model.safetensors");
    cr_assert(shell("echo '{\"hidden_size\": 32, \"num_attention_heads\": 4}' > hub/config.json"));
    succeed("predict reviews/test/pos --checkpoint hub/model.safetensors --threads 1");
    const char *a = before, *b = out;
    for (int i = 0; i < 12; i++) { /* the same probabilities under other names */
        const double p = strtod(strstr(a, "neg ") + 4, NULL),
                     q = strtod(strstr(b, "class 0 ") + 8, NULL);
        cr_expect_float_eq(p, q, 0.011, "%g, not %g", q, p);
        a = strchr(a, '\n') + 1;
        b = strchr(b, '\n') + 1;
    }
    cr_assert(shell("echo '{\"hidden_size\": 32, \"num_attention_heads\": 4, \"id2label\": "
                    "{\"1\": \"good\", \"0\": \"bad\"}}' > hub/config.json"));
    succeed("predict reviews/test/pos --checkpoint hub/model.safetensors --threads 1");
    cr_expect(strstr(out, ":  bad ") && strstr(out, "  good ") && !strstr(out, "class 0"), "%s",
              out);
    static const char *const no_names[] = { "\"0\": \"bad\"", "\"0\": \"bad\", \"1\": \"bad\"",
                                            "\"0\": \"bad\", \"1\": 1",
                                            "\"1\": \"bad\", \"2\": \"good\"",
                                            "\"0\": \"LABEL_0\", \"1\": \"LABEL_1\"" };
    for (size_t i = 0; i < sizeof no_names / sizeof *no_names; i++) {
        char config[200];
        snprintf(config, sizeof config,
                 "echo '{\"hidden_size\": 32, \"num_attention_heads\": 4, \"id2label\": {%s}}' "
                 "> hub/config.json",
                 no_names[i]);
        cr_assert(shell(config));
        succeed("predict reviews/test/pos --checkpoint hub/model.safetensors --threads 1");
        cr_expect(strstr(out, "class 0 ") && !strstr(out, "bad"), "%s", out);
    }
    succeed("convert hub/model.safetensors new.safetensors --preset longformer-mini --length 64 "
            "--window 8");
    cr_expect(strstr(out, "width 32, 4 heads"), "%s", out);
    cr_assert(shell("echo '{\"hidden_size\": 32, \"num_attention_heads\": 5}' > hub/config.json"));
    expect_refusal("predict reviews/test/pos --checkpoint hub/model.safetensors", 1,
                   "hub/config.json: 5 heads do not divide the width 32");
    cr_assert(shell("echo '{\"hidden_size\": 32, \"hidden_act\": \"relu\"}' > hub/config.json"));
    expect_refusal("train --data reviews --init hub/model.safetensors --run-dir other", 1,
                   "hub/config.json: hidden_act 'relu' is not supported");
    cr_assert(shell("printf '\\357\\273\\277{\"hidden_size\": 32, \"hidden_act\": \"relu\"}' "
                    "> hub/config.json"));
    expect_refusal("predict reviews/test/pos --checkpoint hub/model.safetensors", 1,
                   "hub/config.json: hidden_act 'relu' is not supported");
    cr_assert(shell("printf '\\377\\376{\\0}\\0' > hub/config.json"));
    expect_refusal("predict reviews/test/pos --checkpoint hub/model.safetensors", 1,
                   "hub/config.json is UTF-16; convert");
    cr_assert(shell("echo '{\"hidden_size\": 32,' > hub/config.json"));
    expect_refusal("train --data reviews --init hub/model.safetensors --run-dir other", 1,
                   "hub/config.json, line 2");
    cr_assert(shell("cp new.safetensors hub"));
    succeed("predict reviews/test/pos --checkpoint hub/new.safetensors --threads 1");
    cr_assert(shell("rm hub/config.json && mkdir hub/config.json"));
    expect_refusal("train --data reviews --init hub/model.safetensors --run-dir other", 1,
                   "hub/config.json is a folder");
    cr_expect(access("other", F_OK) != 0);
}

static void publish(const char *names)
{
    char command[300];
    snprintf(command, sizeof command,
             "echo '{\"hidden_size\": 32, \"num_attention_heads\": 2, \"id2label\": {%s}}' "
             "> hub/config.json",
             names);
    cr_assert(shell(command));
}

/* The published file's accuracy on the texts. */
static double published_accuracy(void)
{
    succeed("eval --data reviews --checkpoint hub/model.safetensors --threads 1 --format json");
    const char *at = strstr(out, "\"accuracy\":");
    cr_assert(at, "%s", out);
    return strtod(at + 11, NULL);
}

/* Names of classes are matched with those of the texts in any order; otherwise classes correspond
 * by position. Converted models keep the names. */
Test(imdb, names_of_published_classes)
{
    succeed(TRAIN "--steps 120 --lr 0.01 --accumulation 1 --run-dir run");
    cr_assert(shell("cp -r words hub"));
    strip_metadata("run/best.safetensors", "hub/model.safetensors");
    publish("\"0\": \"neg\", \"1\": \"pos\"");
    const double right = published_accuracy();
    cr_expect(right > 60 && strstr(out, "\"classes\":[\"neg\",\"pos\"]"), "%s", out);
    publish("\"0\": \"pos\", \"1\": \"neg\"");
    cr_expect_float_eq(published_accuracy(), 100 - right, 1e-6, "%s", out);
    cr_expect(strstr(out, "\"classes\":[\"pos\",\"neg\"]"), "%s", out);
    publish("\"0\": \"bad\", \"1\": \"good\"");
    cr_expect_float_eq(published_accuracy(), right, 1e-6, "%s", out);
    cr_expect(strstr(errors, "imdb eval: hub/model.safetensors names its classes otherwise; in the "
                             "order of both: neg = bad, pos = good\n") &&
                  strstr(out, "\"classes\":[\"neg\",\"pos\"]"),
              "%s", out);
    succeed("convert hub/model.safetensors named.safetensors");
    succeed("predict reviews/test/pos --checkpoint named.safetensors --threads 1");
    cr_expect(strstr(out, ":  bad ") && strstr(out, "  good "), "%s", out);
    publish("\"0\": \"neg\", \"1\": \"pos\"");
    cr_assert(shell("cp -r reviews three && cp -r three/test/pos three/test/so-so"));
    expect_refusal("eval --data three --checkpoint hub/model.safetensors", 1, "so-so");
    cr_assert(shell("rm hub/config.json"));
    cr_expect_float_eq(published_accuracy(), right, 1e-6, "%s", out);
    cr_expect(strstr(out, "\"classes\":[\"neg\",\"pos\"]") && !strstr(errors, "otherwise"), "%s",
              out);
    expect_refusal("eval --data nowhere --checkpoint hub/model.safetensors", 1, "nowhere");
}

/* ---- reports ---- */

Test(imdb, groups_by_length)
{
    text_result r[7] = { { .length = 5, .loss = 1, .right = true, .scored = true },
                         { .length = 900, .loss = 2, .scored = true },
                         { .length = 10, .loss = 3, .right = true, .scored = true },
                         { .length = 20, .loss = 4, .scored = true },
                         { .length = 7, .loss = 5, .right = true, .scored = true },
                         { .length = 800, .loss = 6, .right = true, .scored = true },
                         { .length = 1, .loss = 100, .right = true } };
    length_group g[MOST_GROUPS];
    cr_assert_eq(length_groups(r, 7, 3, g), 3);
    cr_expect_eq(g[0].shortest, 5);
    cr_expect_eq(g[0].longest, 7);
    cr_expect_eq(g[0].right, 2);
    cr_expect_eq(g[1].longest, 20);
    cr_expect_eq(g[2].count, 2);
    cr_expect_eq(g[2].right, 1);
    cr_expect_eq(g[2].loss, 8);
    cr_assert_eq(length_groups(r, 7, 50, g), 6);
    cr_expect_float_eq(accuracy_error(50, 100), 5, 1e-12);
}

/* ---- explanations ---- */

/* The weights sum to the difference in log odds between the text and the text fully masked. */
Test(imdb, explanation_is_complete)
{
    char why[500];
    tp_roberta_cfg c;
    cr_assert(tp_model_roberta.preset(&c, "roberta-mini", why, sizeof why));
    c.layers = 2;
    c.dim = 16;
    c.heads = 2;
    c.hidden = 24;
    c.vocab = 300;
    c.length = 16;
    tp_bpe *X = tp_bpe_open("words");
    tp_bpe_coder *coder = tp_bpe_coder_new(X);
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3, .dtype = TP_F64 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_F64 });
    text_model m = { 0 };
    int64_t n;
    tp_record(T, false);
    model_init(P, &m, &c);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) { /* so that all tokens matter */
        const size_t size = (size_t)tp_numel(it.tensor);
        double *w = malloc(size * sizeof *w);
        cr_assert(tp_param_get(P, it.tensor, TP_F64, w, size * sizeof *w));
        for (size_t i = 0; i < size && it.shape.ndim == 2; i++) w[i] *= 10;
        cr_assert(tp_param_set(P, it.tensor, TP_F64, w, size * sizeof *w));
        free(w);
    }
    const int32_t *text = tp_bpe_encode(coder, "a fine film \xc3\xa9", 14, &n);
    int32_t ids[16] = { 0 };
    memcpy(ids + 1, text, (size_t)n * sizeof *ids);
    ids[n + 1] = 2;
    explanation e;
    const explain_opts o = { coder, 299, 100 };
    static double before[300 * 16], now[300 * 16];
    cr_assert(tp_param_get(P, model_of(&m)->words.weight, TP_F64, before, sizeof before));
    cr_assert(explain_text(&e, T, P, &m, &o, ids, n + 2, 1, why, sizeof why), "%s", why);
    double sum = 0;
    char all[100] = "";
    for (int i = 0; i < e.n; i++) {
        sum += e.at[i].weight;
        strcat(all, e.at[i].text);
    }
    cr_expect_str_eq(all, "a fine film \xc3\xa9");
    double z[2][2];
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 1; k && i < n + 1; i++) ids[i] = 299;
        tp_reset(T);
        const tp_tensor in = tp_from(T, TP_I32, TP_SHAPE(1, n + 2), ids);
        cr_assert(
            tp_read(T, tp_model_roberta.forward(T, model_of(&m), NULL, in), z[k], sizeof z[k]),
            "%s", tp_why(T));
    }
    const double odds = z[0][1] - z[0][0] - (z[1][1] - z[1][0]);
    cr_expect(fabs(odds) > 0.01, "%g", odds);
    cr_expect_float_eq(sum, odds, 0.01 * fabs(odds), "%g, not %g", sum, odds);
    cr_assert(tp_param_get(P, model_of(&m)->words.weight, TP_F64, now, sizeof now));
    cr_expect(memcmp(now, before, sizeof now) == 0, "the word table is restored");
    explanation_free(&e);
    model_free(&m);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    tp_bpe_coder_free(coder);
    tp_bpe_close(X);
}

/* Coloured text resets every colour, and no text controls the terminal. */
Test(imdb, explanations_are_printed)
{
    succeed(TRAIN "--steps 2 --run-dir run");
    cr_assert(shell("printf 'a good film\\033[31m\\n' > text.txt"));
    succeed("predict text.txt --run-dir run --explain --colour always");
    cr_expect(strstr(out, "\033[30;48;2;") && strstr(out, "\\x1b") && !strstr(out, "\033[31m"),
              "%s", out);
    succeed("predict text.txt --run-dir run --explain");
    cr_expect(strstr(out, "  for:") && strstr(out, "  against:") && !strstr(out, "\033"), "%s",
              out);
    cr_assert(shell("cp text.txt in"));
    succeed("predict --run-dir run --format json --explain < in");
    cr_expect(strstr(out, "\"text\":\"standard input\"") && strstr(out, "\"tokens\":[[\""), "%s",
              out);
    cr_assert(shell("printf 'one\\ntwo\\n' > in"));
    succeed("predict --run-dir run --lines < in");
    cr_expect(strstr(out, "line 1:") && strstr(out, "line 2:") && !strstr(out, "line 3"), "%s",
              out);
}

/* ---- norms by layer ---- */

/* Norms with initial weights, all 1, make rows of 256 elements 16 long; averages are shorter than
 * what they average. Batches do not matter, because padding does not count. */
Test(imdb, norms)
{
    static const char *const bad[][2] = {
        { "norms --run-dir a", "--data FILE is required" },
        { "norms --fresh", "--fresh: name the model with --preset" },
        { "norms --fresh --preset roberta_ls-min", "did you mean 'roberta_ls-mini'?" },
        { "norms --fresh --preset roberta-mini --length 8",
          "no layer of the model has long-short" },
        { "norms --fresh --preset roberta_ls-mini --data x", "exclude each other" },
        { "norms --run-dir a --data reviews --preset roberta_ls-mini", "--preset is the model of" },
    };
    double ratio;
    succeed("norms --fresh --preset roberta_ls-mini --length 64 --threads 1 --format json");
    const char *with = strstr(out, "\"layer\":3,\"dual_ln\":true");
    cr_assert(with, "%s", out);
    cr_expect_float_eq(number_in(with, "keys"), 16, 0.02, "%s", out);
    cr_expect_float_eq(number_in(with, "projected_values"), 16, 0.02, "%s", out);
    cr_expect(number_in(out, "key_ratio") > 1.1, "%s", out);
    succeed(TRAIN "--preset roberta_ls-mini --window 4 --rank 2 --steps 2 --run-dir a");
    succeed("norms --run-dir a --data reviews --threads 1 --dtype f64 --format json --batch 1");
    ratio = number_in(out, "key_ratio");
    succeed("norms --run-dir a --data reviews --threads 1 --dtype f64 --format json --batch 7");
    cr_expect_float_eq(number_in(out, "key_ratio") / ratio, 1, 1e-6, "%s", out);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_refusal(bad[i][0], 1, bad[i][1]);
}
