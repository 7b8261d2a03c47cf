/* test_imdb_input.c - bad input of the program imdb: flags, texts, vocabularies, damaged
 * checkpoints. Each gives one message and overwrites nothing. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/checkpoint.h"
#include "support/program.h"
#include "support/texts.h"

#define MODEL "--tokenizer words --layers 1 --dim 32 --heads 2 --hidden 32 --threads 1 --length 16 "
#define TRAIN "train --data reviews " MODEL "--batch 8 "
#define MLM   "pretrain --data reviews " MODEL "--batch 4 "

static void begin(void)
{
    program_begin("imdb");
    review_data();
}

TestSuite(imdb_input, .init = begin, .fini = program_end, .timeout = 900);

Test(imdb_input, bad_flags)
{
    static const struct {
        const char *args, *message;
    } bad[] = {
        { "", "'imdb COMMAND --help' prints the manual" },
        { "trian", "did you mean 'train'?" },
        { "train --lenght 5", "--lenght: unknown flag; did you mean --length?" },
        { "pretrain --masks all", "--masks: 'all' is not one of independent|exact" },
        { "eval", "--data FILE is required" },
        { "convert one", "imdb convert FILE NEW" },
        { "predict --format xml", "--format: 'xml' is not one of table|json|csv" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(bad[i].args, 2, bad[i].message);
}

Test(imdb_input, bad_input)
{
    static const struct {
        const char *args, *message;
    } bad[] = {
        { "train", "--data FILE is required" },
        { "train --data reviews", "--tokenizer PATH is required" },
        { "train --data missing --tokenizer words", "missing" },
        { "train --data reviews --tokenizer reviews", "reviews" },
        { "train --data reviews --tokenizer gpt2", "<s> is not id 0" },
        { "train --data bad.csv --tokenizer words", "bad.csv" },
        { "train --data reviews --tokenizer words --preset roberta-tiny",
          "no model of text is called 'roberta-tiny'" },
        { "train --data reviews " MODEL "--heads 3", "3 heads do not divide the width 32" },
        { "train --data reviews " MODEL "--set poler=0",
          "--set: 'poler' is no member of roberta; did you mean 'pooler'?" },
        { "train --data reviews " MODEL "--set max_tokens=24 --length 16",
          "--set: max_tokens=24 contradicts the rest of the command line, which asks for 16" },
        { "train --data reviews " MODEL "--set head=mlm",
          "--set: head=mlm contradicts the rest of the command line, which asks for cls" },
        { "train --data reviews " MODEL "--set num_labels=9",
          "--set: num_labels is set by the classes of the texts" },
        { "pretrain --data reviews " MODEL "--set vocab_size=9",
          "--set: vocab_size is set by the vocabulary" },
        { "convert run/best.safetensors new.safetensors --set max_tokens=0", "--set: " },
        { "train --data reviews --tokenizer words --init reviews/train/neg/1000.txt",
          "reviews/train/neg/1000.txt" },
        { "train --data one.csv --tokenizer words --run-dir other",
          "one.csv: all texts have the class 'x': a classifier needs at least two" },
        { TRAIN "--batch 500", "too few" },
        { TRAIN "--run-dir run", "already holds a run" },
        { TRAIN "--run-dir other --steps 5 --warmup 9", "--warmup 9 is longer than the run of 5" },
        { "train --resume --run-dir run --steps 9", "its schedule ends at update 2" },
        { "train --resume --run-dir run --lr 3", "--lr 3 (checkpoint: 0.0003)" },
        { "train --resume --run-dir run --data more", "the texts differ from those" },
        { "train --resume --run-dir mlm", "is a checkpoint of imdb pretrain, not of imdb train" },
        { "train --data reviews --init mlm/best.safetensors --tokenizer large",
          "the vocabulary has 301 entries, the model in mlm/best.safetensors only 300" },
        { "pretrain --data reviews", "--tokenizer PATH is required" },
        { "pretrain --tokenizer words", "--data FILE is required" },
        { "pretrain --data missing.txt --tokenizer words", "missing.txt" },
        { "pretrain --data run/best.safetensors --tokenizer words --run-dir other",
          "run/best.safetensors has a zero byte at offset" },
        { "pretrain --data reviews,reviews/train/neg/1000.txt --tokenizer words --run-dir other",
          "1000.txt is among the texts twice" },
        { "pretrain --data wide.txt --tokenizer words --run-dir other",
          "wide.txt is UTF-16; convert" },
        { "train --data wide.csv --tokenizer words --run-dir other",
          "wide.csv is UTF-16LE; convert" },
        { "predict --run-dir run <wide.txt", "standard input is UTF-16; convert" },
        { "train --data one.csv --tokenizer words --batch 40 --run-dir other", "one.csv: " },
        { MLM "--sequence 17 --run-dir other",
          "--sequence 17 is longer than the model's 16 tokens" },
        { MLM "--batch 4000 --run-dir other", "too few" },
        { MLM "--graph --run-dir other", "--graph needs --masks exact" },
        { "eval --data reviews --run-dir missing", "missing/last.safetensors: cannot be opened" },
        { "eval --data reviews --run-dir mlm", "mlm/best.safetensors predicts masked tokens" },
        { "eval --data reviews --run-dir run --length 17",
          "--length 17 is longer than the model's 16" },
        { "eval --data other.csv --run-dir run", "other.csv" },
        { "eval --data reviews --run-dir run >/dev/full 2>err; exit $? #", "standard output" },
        { "predict reviews/test/neg --run-dir run >/dev/full 2>err; exit $? #", "standard output" },
        { "predict missing.txt --run-dir run", "missing.txt" },
        { "predict empty --run-dir run", "empty contains no texts: there should be files .txt" },
        { "predict --run-dir run </dev/null", "standard input is empty" },
        { "convert missing.pt new.safetensors", "missing.pt" },
        { "convert words/vocab.json new.safetensors", "words/vocab.json" },
        { "convert run/best.safetensors run/last.safetensors", "run/last.safetensors exists" },
        { "convert run/best.safetensors no/new.safetensors", "no/new.safetensors" },
    };
    succeed(TRAIN "--steps 2 --run-dir run");
    succeed(MLM "--steps 2 --run-dir mlm");
    make_vocabulary("large", 400);
    make_reviews("more", 25, 12);
    cr_assert(shell("mkdir gpt2; sed 's/\"<s>\"/\"<x>\"/' words/vocab.json > gpt2/vocab.json;"
                    "cp words/merges.txt gpt2; printf 'text,label\\n\"open,1\\n' > bad.csv;"
                    "printf 'text,label\\nfine,other\\n' > other.csv; mkdir empty;"
                    "printf '\\377\\376a\\0b\\0' > wide.txt; printf 't\\0e\\0x\\0t\\0' > wide.csv;"
                    "{ echo text,label; yes fine,x | head -30; } > one.csv;"
                    "cp -r run before; cp -r mlm before-mlm"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(bad[i].args, 1, bad[i].message);
    cr_expect(shell("diff -r before run && diff -r before-mlm mlm && test ! -e new.safetensors"),
              "nothing was written over");
}

/* A run is also tied to its validation texts. */
Test(imdb_input, other_texts_for_validation)
{
    succeed(TRAIN "--steps 2 --run-dir run");
    cr_assert(shell("for f in reviews/test/pos/*.txt; do echo other >> $f; break; done"));
    expect_refusal("train --resume --run-dir run", 1, "the texts differ from those");
}

/* A checkpoint with changed metadata gives a message. */
Test(imdb_input, changed_metadata)
{
    succeed(TRAIN "--steps 2 --run-dir run");
    change_number("run/best.safetensors", "text_tail", -2);
    expect_refusal("eval --data reviews --run-dir run", 1, "'text_tail' is out of range");
    succeed(TRAIN "--steps 2 --run-dir run --overwrite");
    change_number("run/best.safetensors", "num_labels", 3);
    expect_refusal("predict reviews/test/pos --run-dir run", 1, "2 names for 3 classes");
    succeed(TRAIN "--steps 2 --run-dir run --overwrite");
    change_number("run/last.safetensors", "tokens", -1);
    expect_refusal("train --resume --run-dir run", 1, "'tokens' is out of range");
    change_number("run/best.safetensors", "vocab_size", 250);
    expect_refusal("predict reviews/test/pos --run-dir run", 1,
                   "the vocabulary has 300 entries, the model in run/best.safetensors only 250");
}

/* A wrong byte anywhere in a checkpoint is detected or harmless, and never a crash. */
Test(imdb_input, damaged_checkpoint)
{
    succeed(TRAIN "--steps 2 --run-dir run");
    FILE *f = fopen("run/best.safetensors", "rb");
    cr_assert(f && fseek(f, 0, SEEK_END) == 0);
    const long bytes = ftell(f);
    fclose(f);
    for (int i = 0; i < 24; i++) {
        const long at = i < 16 ? 8 + i * 700L : bytes * (i - 15) / 9 - 1;
        cr_assert(shell("cp run/best.safetensors damaged.safetensors"));
        f = fopen("damaged.safetensors", "r+b");
        cr_assert(f && fseek(f, at, SEEK_SET) == 0);
        const int was = fgetc(f);
        cr_assert(fseek(f, at, SEEK_SET) == 0 && fputc(was ^ 4, f) != EOF && fclose(f) == 0);
        expect_refusal("predict reviews/test/pos --checkpoint damaged.safetensors", 1,
                       "damaged.safetensors");
    }
    cr_assert(shell("head -c 5000 run/best.safetensors > damaged.safetensors"));
    expect_refusal("eval --data reviews --checkpoint damaged.safetensors", 1,
                   "damaged.safetensors");
}
