/* test_gpt_program.c - the program gpt as a user runs it, on a small regular text: resuming gives
 * the same bits, scores agree, generation is what the model says, every bad input gives one
 * message. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "support/checkpoint.h"
#include "support/enwik8.h"
#include "support/program.h"

#define SHORT "--data text --threads 1 --tokens 32 --batch 4 --log-every 3 --eval-windows 20 "
#define TINY  SHORT "--set n_layer=2,n_embd=32,n_inner=64,n_head=2 "
#define LLAMA                                                                                      \
    SHORT "--model llama-mini --set num_hidden_layers=2,hidden_size=32,intermediate_size=48 "

/* words: a vocabulary of byte pairs. */
static void begin(void)
{
    program_begin("gpt");
    make_text("text", 20000);
    cr_assert(shell(TP_BIN_DIR "/tp-bpe train text --size 280 --output words > bpe.out 2>&1"));
}

TestSuite(gpt_program, .init = begin, .fini = program_end, .timeout = 900);

/* ---- resuming ---- */

Test(gpt_program, resume_is_exact)
{
    static const char *const runs[] = {
        TINY "--dropout 0.1 --ema 0.9 --clip 0.5 --recompute block --accumulation 2",
        TINY "--tokenizer words --cache tokens --dtype f64",
        LLAMA "--tokenizer words --documents line --dtype bf16",
        LLAMA "--attention ls --dropout 0.1",
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const char *rest = "--eval-every 4 --steps 11 --overwrite";
        succeed("train %s %s --run-dir a", runs[i], rest);
        succeed("train %s %s --run-dir b --time 0.000001", runs[i], rest);
        cr_expect_eq(update_in("b/last.safetensors"), 1, "%s", runs[i]);
        succeed("train --resume --run-dir b --threads 2");
        cr_expect_eq(update_in("b/last.safetensors"), 11, "%s", runs[i]);
        cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"), "%s", runs[i]);
    }
}

/* The tokens are kept in the cache and read again. */
Test(gpt_program, cache)
{
    succeed("train " TINY "--tokenizer words --cache tokens --steps 2 --run-dir a");
    cr_expect_null(strstr(out, "from the cache"), "%s", out);
    succeed("train " TINY "--tokenizer words --cache tokens --steps 2 --run-dir b");
    cr_expect(strstr(out, "from the cache"), "%s", out);
    cr_expect(same_bytes("a/best.safetensors", "b/best.safetensors"));
}

/* ---- scores ---- */

static void read_scores(double *tokens, double *bytes, double *bits, double *perplexity)
{
    cr_assert_eq(sscanf(out, "%lf tokens, %lf bytes: %lf bits per byte, perplexity %lf", tokens,
                        bytes, bits, perplexity),
                 4, "%s", out);
}

/* Evaluation repeats the validation; bits per byte and perplexity are the same sum. */
Test(gpt_program, scores_agree)
{
    static const char *const vocabularies[] = { "", "--tokenizer words " };
    for (int k = 0; k < 2; k++) {
        double tokens, bytes, bits, perplexity;
        char log[20000];
        succeed("train " TINY
                "%s--steps 80 --lr 0.01 --warmup 5 --eval-windows 0 --run-dir a --overwrite",
                vocabularies[k]);
        slurp("a/log.jsonl", log, sizeof log);
        const char *last = strstr(log, "valid_bpb");
        cr_assert(last);
        const double seen = number_in(log, "valid_bpb");
        succeed("eval --data text --run-dir a --part valid --threads 1 --batch 3");
        read_scores(&tokens, &bytes, &bits, &perplexity);
        cr_expect_float_eq(bits, seen, 2e-4, "%g, not %g", bits, seen);
        cr_expect_float_eq(log2(perplexity) * tokens / bytes, bits, 2e-3);
        cr_expect(k ? bytes > 1.5 * tokens : bytes <= tokens, "%g tokens, %g bytes", tokens, bytes);
        cr_expect_lt(bits, 4.5, "it has learnt something");
        succeed("eval --data text --run-dir a --threads 1");
        read_scores(&tokens, &bytes, &bits, &perplexity);
        cr_expect(k || bytes + tokens > 2 * 19990, "all of the text");
    }
}

/* The number of processes that share a batch does not matter, nor do accumulated batches. */
Test(gpt_program, accumulated_batches_are_one_batch)
{
    double norm[2];
    for (int k = 0; k < 2; k++) {
        char log[20000];
        succeed("train " TINY "--dtype f64 --steps 3 --overwrite --run-dir run --batch %d "
                "--accumulation %d",
                k ? 2 : 8, k ? 4 : 1);
        slurp("run/log.jsonl", log, sizeof log);
        norm[k] = number_in(log, "grad_norm");
    }
    cr_expect_float_eq(norm[1], norm[0], 1e-9, "%.12g, not %.12g", norm[1], norm[0]);
}

/* ---- generation ---- */

Test(gpt_program, generation)
{
    static char first[sizeof out];
    succeed("train " LLAMA "--tokenizer words --steps 60 --lr 0.01 --run-dir a");
    succeed("generate --run-dir a --prompt 'the river ' --length 100 --threads 1 --no-stop");
    cr_expect_eq(strncmp(out, "the river ", 10), 0, "%s", out);
    cr_expect_gt(strlen(out), 110, "beyond the %d tokens of a window: %s", 32, out);
    strcpy(first, out);
    succeed("generate --run-dir a --prompt 'the river ' --length 100 --threads 1 --no-stop");
    cr_expect_str_eq(out, first);
    succeed("generate --run-dir a --prompt 'the river ' --length 9 --seed 2 --no-echo --threads 1");
    cr_expect_neq(strncmp(out, "the river ", 10), 0);
    succeed("generate --run-dir a --length 9 --temperature 0 --context 4 --threads 1");
    succeed("train " SHORT "--attention ls --set "
            "n_layer=1,n_embd=32,n_inner=64,n_head=2,ls_chunk=4,ls_rank=1,ls_window=6 --steps 20 "
            "--run-dir l");
    cr_expect(strstr(out, "window 6, rank 1 for chunks of 4"), "%s", out);
    succeed("generate --run-dir l --prompt 'the river ' --length 60 --threads 1 --no-stop");
    FILE *f = fopen("prompt", "w");
    for (int i = 0; i < 100; i++) fputs("the old stone ", f);
    fclose(f);
    succeed("generate --run-dir a --prompt-file prompt --length 5 --threads 1");
    cr_expect_gt(strlen(out), 1400, "a prompt longer than a window");
}

/* ---- from weights ---- */

Test(gpt_program, weights_of_another_run)
{
    succeed("train " TINY "--tokenizer words --steps 3 --run-dir one");
    succeed("train --data text --threads 1 --tokens 16 --init one/best.safetensors --steps 1 "
            "--lr 1e-9 --accumulation 1 --run-dir two");
    cr_expect(strstr(out, "gpt2: 2 layers, width 32"), "%s", out);
    cr_expect(shell("grep -q '\"recipe\": *\"tune\"' two/config.json"), "its recipe");
    cr_expect_lt(tensor_distance("one/best.safetensors", "two/best.safetensors", "wte.weight"),
                 1e-6);
}

/* Adaptations are trained, saved apart, merged and added to the base: the score is the same. */
Test(gpt_program, adaptations)
{
    double tokens, bytes, bits[4], perplexity;
    static const char *const models[] = {
        "--run-dir two",
        "--checkpoint one/best.safetensors --adapter two/adapter.safetensors",
        "--checkpoint merged.safetensors",
        "--run-dir one",
    };
    succeed("train " TINY "--tokenizer words --steps 8 --lr 0.01 --warmup 2 --run-dir one");
    const char *flags =
        "--data text --threads 1 --tokens 32 --init one/best.safetensors --lora 2 "
        "--lora-alpha 8 --lora-modules 'c_fc,mlp.c_proj' --batch 4 --accumulation 1 "
        "--recipe mini --lr 0.05 --steps 30 --eval-every 15 --ema 0.5 --overwrite";
    succeed("train %s --run-dir two", flags);
    cr_expect(strstr(out, "adaptations of rank 2 to 4 modules: 768 parameters are trained"), "%s",
              out);
    succeed("train %s --run-dir b --time 0.000001", flags);
    succeed("train --resume --run-dir b --threads 2");
    cr_expect(same_bytes("two/last.safetensors", "b/last.safetensors"));
    cr_expect_eq(
        tensor_distance("one/best.safetensors", "two/best.safetensors", "h.0.mlp.c_fc.weight"), 0);
    succeed("merge --run-dir two --output merged.safetensors");
    succeed("merge --checkpoint one/best.safetensors --adapter two/adapter.safetensors "
            "--output again.safetensors");
    cr_expect_lt(tensor_distance("merged.safetensors", "again.safetensors", "h.1.mlp.c_fc.weight"),
                 1e-6);
    cr_expect_gt(
        tensor_distance("merged.safetensors", "one/best.safetensors", "h.1.mlp.c_fc.weight"), 1e-4);
    for (int k = 0; k < 4; k++) {
        succeed("eval --data text --part valid --threads 1 %s", models[k]);
        read_scores(&tokens, &bytes, &bits[k], &perplexity);
        if (k < 3) cr_expect_float_eq(bits[k], bits[0], 2e-4, "%s", models[k]);
    }
    cr_expect_lt(bits[0], bits[3] - 0.001, "%g, not below %g", bits[0], bits[3]);
    expect_refusal("merge --run-dir one --output x", 1, "has no adaptations; name some");
    for (int k = 0; k < 2; k++)
        expect_refusal(k ? "merge --run-dir two --adapter two/adapter.safetensors --output x"
                         : "eval --data text --run-dir two --adapter two/adapter.safetensors",
                       1, "has adaptations itself: merge them ('gpt merge')");
    expect_refusal("train --data text --init two/best.safetensors", 1,
                   "'gpt merge', or train them on with --lora 2 --lora-alpha 8");
    expect_refusal("train --data text --init two/best.safetensors --lora 2", 1,
                   "of rank 2 and alpha 8, not --lora 2 --lora-alpha 2");
    succeed("train --data text --threads 1 --tokens 32 --init two/best.safetensors --lora 2 "
            "--lora-alpha 8 --lora-modules 'c_fc,mlp.c_proj' --batch 4 --accumulation 1 --steps 1 "
            "--run-dir on");
    expect_refusal("merge --run-dir two", 1, "--output FILE is required");
    expect_refusal("train --data text --lora 2", 1, "--lora adapts trained weights");
    expect_refusal("train --data text --init one/best.safetensors --lora 2 --lora-modules x", 1,
                   "no linear module matches 'x'");
    expect_refusal("eval --data text --run-dir one --adapter one/best.safetensors", 1,
                   "one/best.safetensors has no adaptations");
}

static void describe_adapter(const char *config)
{
    FILE *f = fopen("p/adapter_config.json", "w");
    cr_assert(f && fputs(config, f) >= 0 && fclose(f) == 0);
}

/* A copy of the adaptations as peft writes them: without metadata. */
static void publish_adapter(const char *from, const char *to)
{
    tp_file *F = tp_file_open(from);
    tp_writer *W = tp_writer_new(to);
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        float *v = malloc((size_t)t->numel * sizeof *v);
        cr_assert(v && tp_file_read(F, t, TP_F32, v), "%s", tp_file_why(F));
        tp_writer_add(W, t->name, TP_F32, t->shape, v, true);
        free(v);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file_close(F);
}

/* The scale of peft's file lies in adapter_config.json. */
Test(gpt_program, published_adaptations)
{
#define ADAPTER "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": "
#define APPLIED "--checkpoint one/best.safetensors --adapter p/adapter_model.safetensors"
    static const struct {
        const char *config, *message;
    } bad[] = {
        { "{", "p/adapter_config.json, line 1" },
        { ADAPTER "0}", "'lora_alpha' is not positive" },
        { ADAPTER "1.7e308, \"use_rslora\": true}", "'lora_alpha' is not positive, or too large" },
        { "{\"r\": 8, \"lora_alpha\": 8}", "r is 8, but base_model.model.h.0." },
        { ADAPTER "8, \"use_dora\": true}", "'use_dora' is not supported" },
        { ADAPTER "8, \"alpha_pattern\": {\"c_fc\": 2}}", "'alpha_pattern' is not supported" },
        { ADAPTER "8, \"use_rslora\": 1}", "'use_rslora' is neither true nor false" },
        { ADAPTER "8, \"init_lora_weights\": \"pissa\"}",
          "init_lora_weights 'pissa' is not supported" },
        { "{\"peft_type\": \"LOHA\"}", "peft_type 'LOHA' is not supported; what is: LORA" },
    };
    static const char *const same[] = {
        ADAPTER "16, \"use_dora\": false, \"rank_pattern\": {}, \"fan_in_fan_out\": true, "
                "\"init_lora_weights\": true}",
        ADAPTER "8, \"use_rslora\": true}",
    };
    succeed("train " TINY "--tokenizer words --steps 3 --run-dir one");
    succeed("train --data text --threads 1 --tokens 32 --init one/best.safetensors --lora 4 "
            "--lora-alpha 16 --batch 4 --accumulation 1 --lr 0.05 --steps 4 --run-dir two");
    succeed("merge --run-dir two --output merged.safetensors");
    cr_assert(shell("mkdir p"));
    publish_adapter("two/adapter.safetensors", "p/adapter_model.safetensors");
    expect_refusal("eval --data text " APPLIED, 1,
                   "does not say its alpha, nor does an adapter_config.json beside it");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        describe_adapter(same[i]);
        succeed("merge " APPLIED " --output again.safetensors");
        cr_expect_lt(
            tensor_distance("merged.safetensors", "again.safetensors", "h.1.mlp.c_fc.weight"),
            1e-6);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        describe_adapter(bad[i].config);
        expect_refusal("eval --data text " APPLIED, 1, bad[i].message);
    }
}

Test(gpt_program, a_plan)
{
    succeed("train " TINY "--steps 3 --plan --run-dir none");
    cr_expect(strstr(out, "memory, MB"), "%s", out);
}

/* ---- published weights ---- */

static void describe_published(const char *config)
{
    FILE *f = fopen("w/config.json", "w");
    cr_assert(f && fputs(config, f) >= 0 && fclose(f) == 0);
}

/* The config.json beside the weights says what their names do not. */
Test(gpt_program, published_weights)
{
#define LLAMA_JSON(more)                                                                           \
    "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 32, "                       \
    "\"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "            \
    "\"num_key_value_heads\": 2, \"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5, "       \
    "\"tie_word_embeddings\": true" more "}"
    static const struct {
        const char *config, *message;
    } bad[] = {
        { "{\"model_type\": \"mistral\"}", "model_type 'mistral' is not supported; what is: gpt2" },
        { "{}", "'model_type' is missing" },
        { "{", "w/config.json, line 1" },
        { LLAMA_JSON(", \"hidden_act\": \"gelu\""), "hidden_act 'gelu' is not supported" },
        { LLAMA_JSON(", \"attention_bias\": true"), "attention_bias = true is not supported" },
        { LLAMA_JSON(", \"head_dim\": 16"), "4 heads of 16 are not the width 32" },
        { LLAMA_JSON(", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}"),
          "type 'yarn' is not supported; what is: default linear llama3" },
        { LLAMA_JSON(", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2}"),
          "'original_max_position_embeddings' is missing" },
        { LLAMA_JSON(", \"rope_theta\": \"x\""), "'rope_theta' is no number" },
        { LLAMA_JSON(", \"rope_scaling\": \"linear\""), "'rope_scaling' is no object" },
        { LLAMA_JSON(", \"rope_scaling\": {\"type\": 1}"), "'type' is no text" },
        { LLAMA_JSON(", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2, "
                     "\"original_max_position_embeddings\": 1e30}"),
          "'original_max_position_embeddings' is no whole number" },
        { LLAMA_JSON(", \"hidden_act\": 5"), "'hidden_act' is no text" },
        { LLAMA_JSON(", \"mlp_bias\": 1"), "'mlp_bias' is neither true nor false" },
        { "{\"model_type\": \"gpt2\", \"n_layer\": 0}",
          "'n_layer' is no whole number from 1 to 1e9; correct it, or put the publisher's file" },
        { "{\"model_type\": \"gpt2 llama\"}", "model_type 'gpt2 llama' is not supported" },
        { "{\"model_type\": \"gpt2\", \"n_embd\": 16777216}",
          "n_inner = 67108864 must be 1 to 16777216" },
        { "{\"model_type\": \"llama\", \"hidden_size\": 4, \"num_attention_heads\": 8}",
          "the width 4 does not divide into 8 heads; correct it" },
        { "{\"model_type\": \"gpt2\", \"scale_attn_by_inverse_layer_idx\": true}",
          "scale_attn_by_inverse_layer_idx = true is not supported" },
        { "{\"model_type\": \"gpt2\", \"tie_word_embeddings\": false}",
          "tie_word_embeddings = false is not supported" },
        { "{\"model_type\": \"gpt2\"}", "has no 'wte.weight'" },
    };
    double tokens, bytes, bits[2], perplexity;
    succeed("train " LLAMA "--tokenizer words --steps 8 --lr 0.01 --warmup 2 --run-dir a");
    cr_assert(shell("mkdir w && cp words/vocab.json words/merges.txt w"));
    publish_weights("a/best.safetensors", "w/model.safetensors");
    static const char *const from[] = { "--run-dir a", "--checkpoint w/model.safetensors" };
    for (int k = 0; k < 2; k++) {
        if (k == 1) describe_published(LLAMA_JSON(", \"rope_theta\": 10000.0"));
        succeed("eval --data text --threads 1 --tokens 32 %s", from[k]);
        read_scores(&tokens, &bytes, &bits[k], &perplexity);
    }
    cr_expect_float_eq(bits[1], bits[0], 2e-4);
    succeed("train --data text --threads 1 --init w/model.safetensors --tokens 32 --batch 2 "
            "--accumulation 1 --steps 1 --run-dir b");
    cr_expect(strstr(out, "llama: 2 layers, width 32, 4 heads over 2 of keys"), "%s", out);
    expect_refusal("eval --data text --checkpoint w/model.safetensors --model smollm-135m", 1,
                   "is another model than the config.json beside");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        describe_published(bad[i].config);
        expect_refusal("eval --data text --checkpoint w/model.safetensors", 1, bad[i].message);
    }
}

/* ---- refusals ---- */

Test(gpt_program, refusals)
{
    static const struct {
        const char *args, *message;
    } bad[] = {
        { "train", "--data FILE is required" },
        { "train --data none", "none cannot be opened" },
        { "train --data text --model gpt3", "'gpt2'" },
        { "train --data text --model cvt-13", "neither a GPT-2 nor a Llama" },
        { "train --data text --tokenizer none", "none: No such file" },
        { "train --data text --set n_layr=1", "did you mean 'n_layer'" },
        { "train --data text --set vocab_size=9", "vocab_size is set by the vocabulary" },
        { "train --data text --set n_head=3", "does not divide into 3 heads" },
        { "train --data text --set embd_pdrop=0.1 --dropout 0.2", "contradicts the rest" },
        { "train --data text --attention ls --set ls_chunk=1", "chunks of at least 2" },
        { "train --data text --attention full --set ls_chunk=4,ls_rank=1,ls_window=8",
          "ls_chunk=4 contradicts" },
        { "train --data text --init a/best.safetensors --attention ls --tokens 16",
          "h.0.attn.proj_query.weight" },
        { "train --data text --batch 4000", "too few for 4000 windows of 128" },
        { "train --data text --init text", "text" },
        { "train --data text --init w/model.safetensors", "name it with --model" },
        { "train --data text --init w/model.safetensors --model gpt2",
          "holds no vocabulary, nor is one beside it" },
        { "train --data text --init a/best.safetensors --tokens 64",
          "--tokens 64: the model has only 32 positions" },
        { "eval --run-dir a", "--data FILE is required" },
        { "eval --run-dir a --data text --tokens 33", "the model has only 32 positions" },
        { "generate --run-dir a --context 33", "the model has 32 positions" },
        { "generate --run-dir a --prompt x --prompt-file text", "cannot be combined" },
        { "generate --checkpoint a/best.safetensors --tokenizer words",
          "tokens, the model in a/best.safetensors only 257" },
        { "eval --data text --checkpoint w/model.safetensors --model llama-mini",
          "has no 'model.embed_tokens.weight'" },
    };
    succeed("train " TINY "--set n_positions=32,n_layer=2,n_embd=32,n_inner=64,n_head=2 --steps 1 "
            "--run-dir a");
    cr_assert(shell("mkdir w"));
    publish_weights("a/best.safetensors", "w/model.safetensors");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char args[600];
        snprintf(args, sizeof args, "%s --threads 1", bad[i].args);
        expect_refusal(args, 1, bad[i].message);
    }
}
