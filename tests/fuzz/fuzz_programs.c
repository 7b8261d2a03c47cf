/* fuzz_programs.c - the input damages a run's folder (folder_damage), which one of the programs
 * enwik8, imagenet, lra, imdb, coco and gpt then resumes, evaluates, retrains or uses. The first
 * byte selects a row of `commands`; folder_damage takes the rest.
 *
 * The following must hold: the program exits with 0 or 1; a run that succeeds has a complete
 * checkpoint; a resumed run that is refused leaves its checkpoint unchanged; a command that only
 * reads the run changes no file. */
#include <stdio.h>
#include <tapegrad/bpe.h>

#include "coco_commands.h"
#include "enwik8.h"
#include "folder.h"
#include "fuzz.h"
#include "gpt_commands.h"
#include "image_commands.h"
#include "imdb.h"
#include "lra.h"

enum { ENWIK8, IMAGENET, LRA, IMDB, MLM, COCO, GPT, LORA, PROGRAMS };

#define TEXT_MODEL                                                                                 \
    "--layers 1 --dim 8 --hidden 8 --heads 1 --chunk 4 --window 4 --tokens 8 --mem-len 8 "
#define TEXT_RUN                                                                                   \
    "--run-dir text-run --data text --threads 1 --batch 2 --warmup 2 --schedule constant "         \
    "--log-every 1 --eval-every 2 --eval-tokens 50 --checkpoint-every 1 " TEXT_MODEL
#define IMAGE_RUN                                                                                  \
    "--run-dir image-run --shapes 10 --size 16 --threads 1 --workers 1 --batch 2 --epochs 1000 "   \
    "--flip 0 --schedule constant --log-every 1 --eval-every 2 --checkpoint-every 1 "

#define LRA_RUN                                                                                    \
    "--run-dir lra-run --examples 8 --valid-examples 4 --test-examples 4 --shortest 3 "            \
    "--longest 15 --length 16 --layers 1 --dim 8 --hidden 8 --rank 2 --batch 4 --threads 1 "       \
    "--recipe paper --warmup 1 --log-every 1 --eval-every 2 --checkpoint-every 1 "

#define IMDB_MODEL                                                                                 \
    "--tokenizer words --length 12 --layers 1 --dim 8 --heads 1 --hidden 8 --threads 1 "           \
    "--schedule constant --warmup 1 --log-every 1 --eval-every 2 --checkpoint-every 1 "
#define IMDB_RUN                                                                                   \
    "--run-dir imdb-run --data mail.csv --batch 4 --accumulation 1 --epochs 0 " IMDB_MODEL
#define MLM_RUN "--run-dir mlm-run --data text --batch 2 " IMDB_MODEL
#define COCO_RUN                                                                                   \
    "--run-dir coco-run --scenes 4 --valid-scenes 2 --scene-size 64 --sizes 64 --size 64 "         \
    "--longest 64 --batch 2 --threads 1 --warmup 1 --schedule constant --log-every 1 "             \
    "--eval-every 1 --checkpoint-every 1 "

#define GPT_RATES                                                                                  \
    "--tokens 8 --batch 2 --accumulation 1 --threads 1 --warmup 1 --schedule constant "            \
    "--log-every 1 --eval-every 2 --eval-windows 2 --checkpoint-every 1 "
#define GPT_RUN                                                                                    \
    "--run-dir gpt-run --data text --model gpt2-mini "                                             \
    "--set n_layer=1,n_embd=8,n_inner=8,n_head=1,n_positions=8 " GPT_RATES
#define LORA_RUN                                                                                   \
    "--run-dir adapted-run --data text --init gpt-run/last.safetensors --lora 2 " GPT_RATES

typedef enum effect { READS, RESUMES, REPLACES } effect;

static const struct {
    int program;
    effect effect;
    int (*run)(int argc, char **argv);
    const char *flags;
} commands[] = {
    { ENWIK8, RESUMES, train_main, "--run-dir text-run --resume --steps 4" },
    { ENWIK8, READS, eval_main, "--run-dir text-run --data text --threads 1 --limit 40" },
    { ENWIK8, READS, generate_main, "--run-dir text-run --threads 1 --length 3" },
    { ENWIK8, REPLACES, train_main, TEXT_RUN "--overwrite --steps 1" },
    { ENWIK8, READS, train_main,
      TEXT_RUN "--init text-run/last.safetensors --steps 1 --run-dir other --overwrite" },
    { IMAGENET, RESUMES, image_train_main, "--run-dir image-run --resume --steps 4" },
    { IMAGENET, READS, image_eval_main,
      "--run-dir image-run --threads 1 --shapes 2 --workers 1 --by-class --format json" },
    { IMAGENET, READS, predict_main, "image.png --run-dir image-run --threads 1" },
    { IMAGENET, REPLACES, image_train_main, IMAGE_RUN "--overwrite --steps 1" },
    { IMAGENET, READS, image_train_main,
      IMAGE_RUN "--init image-run/last.safetensors --steps 1 --run-dir other --overwrite" },
    { IMAGENET, READS, image_train_main,
      IMAGE_RUN "--teacher image-run --steps 1 --run-dir other --overwrite" },
    { LRA, RESUMES, lra_train_main, "--run-dir lra-run --resume --steps 4" },
    { LRA, READS, lra_eval_main, "--run-dir lra-run --threads 1 --format json" },
    { LRA, REPLACES, lra_train_main, LRA_RUN "--overwrite --steps 1" },
    { LRA, READS, lra_train_main,
      LRA_RUN "--init lra-run/last.safetensors --steps 1 --run-dir other --overwrite" },
    { IMDB, RESUMES, imdb_train_main, "--run-dir imdb-run --resume --steps 4" },
    { IMDB, READS, imdb_eval_main, "--run-dir imdb-run --data mail.csv --threads 1 --format json" },
    { IMDB, READS, imdb_predict_main, "mail.csv --run-dir imdb-run --threads 1 --explain" },
    { IMDB, REPLACES, imdb_train_main, IMDB_RUN "--overwrite --steps 1" },
    { IMDB, READS, imdb_train_main,
      IMDB_RUN "--init imdb-run/last.safetensors --steps 1 --run-dir other --overwrite" },
    { MLM, RESUMES, imdb_pretrain_main, "--run-dir mlm-run --resume --steps 4" },
    { MLM, READS, imdb_convert_main,
      "mlm-run/last.safetensors new.safetensors --preset longformer-mini --window 4 --overwrite" },
    { COCO, RESUMES, coco_train_main, "--run-dir coco-run --resume --steps 4" },
    { COCO, READS, coco_eval_main, "--run-dir coco-run --threads 1 --format json" },
    { COCO, READS, coco_predict_main, "image.png --run-dir coco-run --threads 1" },
    { COCO, REPLACES, coco_train_main, COCO_RUN "--overwrite --steps 1" },
    { GPT, RESUMES, gpt_train_main, "--run-dir gpt-run --resume --steps 4" },
    { GPT, READS, gpt_eval_main, "--run-dir gpt-run --data text --threads 1 --windows 4" },
    { GPT, READS, gpt_generate_main, "--run-dir gpt-run --threads 1 --length 3" },
    { GPT, REPLACES, gpt_train_main, GPT_RUN "--overwrite --steps 1" },
    { GPT, READS, gpt_train_main,
      GPT_RUN "--init gpt-run/last.safetensors --steps 1 --run-dir other --overwrite" },
    { LORA, RESUMES, gpt_train_main, "--run-dir adapted-run --resume --steps 4" },
    { LORA, READS, gpt_merge_main,
      "--run-dir adapted-run --threads 1 --output merged.safetensors" },
};

static void make_text(void)
{
    FILE *f = fopen("text", "w");
    fuzz_demand(f, "a text is made");
    for (int i = 0; i < 6000; i++) putc(i % 6 ? 'a' + i * i / 7 % 13 : ' ', f);
    fuzz_demand(fclose(f) == 0, "a text is written");
}

/* Labelled texts, and a vocabulary. */
static void make_mail(void)
{
    static const char text[] = "a dull film, a fine film, good, bad";
    char why[300];
    FILE *f = fopen("mail.csv", "w");
    fuzz_demand(f && fprintf(f, "text,label\n") > 0, "texts are made");
    for (int i = 0; i < 20; i++) fprintf(f, "a %s film %d,%d\n", i % 2 ? "fine" : "dull", i, i % 2);
    fuzz_demand(fclose(f) == 0, "texts are written");
    tp_bpe_trainer *R = tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ .size = 270, .least = 1 });
    tp_bpe_trainer_add(R, text, sizeof text - 1);
    tp_bpe *X = tp_bpe_trainer_finish(R);
    fuzz_demand(tp_bpe_save(X, "words", why, sizeof why), "a vocabulary is written");
    tp_bpe_close(X);
    tp_bpe_trainer_free(R);
}

/* Makes a complete run of each program, and an image of a confusion matrix. */
static void begin(folder run[PROGRAMS])
{
    folder_workplace();
    make_text();
    make_mail();
    fuzz_demand(folder_run(train_main, TEXT_RUN "--steps 2") == 0, "enwik8 runs");
    fuzz_demand(folder_run(image_train_main, IMAGE_RUN "--steps 2") == 0, "imagenet runs");
    fuzz_demand(folder_run(lra_train_main, LRA_RUN "--steps 2") == 0, "lra runs");
    fuzz_demand(folder_run(imdb_train_main, IMDB_RUN "--steps 2") == 0, "imdb train runs");
    fuzz_demand(folder_run(imdb_pretrain_main, MLM_RUN "--steps 2") == 0, "imdb pretrain runs");
    fuzz_demand(folder_run(coco_train_main, COCO_RUN "--steps 2") == 0, "coco runs");
    fuzz_demand(folder_run(gpt_train_main, GPT_RUN "--steps 2") == 0, "gpt runs");
    fuzz_demand(folder_run(gpt_train_main, LORA_RUN "--steps 2") == 0, "gpt adapts weights");
    fuzz_demand(rename("image-run/confusion.png", "image.png") == 0, "there is an image");
    for (int i = 0; i < PROGRAMS; i++) folder_read(&run[i]);
}

static void demand_effect(effect e, int status, const folder *F, uint64_t before)
{
    fuzz_demand(status == 0 || status == 1, "a program succeeds or refuses");
    if (e != READS && status == 0)
        fuzz_demand(folder_is_whole(F), "a run that is done has a whole checkpoint");
    if (e == RESUMES && status == 1)
        fuzz_demand(folder_checkpoint(F) == before, "a refused run leaves the checkpoint alone");
    if (e == READS) fuzz_demand(folder_content(F) == before, "what reads a run changes no file");
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static folder run[PROGRAMS] = { { .path = "text-run" }, { .path = "image-run" },
                                    { .path = "lra-run" },  { .path = "imdb-run" },
                                    { .path = "mlm-run" },  { .path = "coco-run" },
                                    { .path = "gpt-run" },  { .path = "adapted-run" } };
    if (size < 3) return 0;
    if (!run[0].file[0].bytes) begin(run);
    const int k = input[0] % (int)(sizeof commands / sizeof *commands);
    const folder *F = &run[commands[k].program];
    const effect e = commands[k].effect;
    folder_damage(F, input + 1, size - 1);
    const uint64_t before = e == READS ? folder_content(F) : folder_checkpoint(F);
    demand_effect(e, folder_run(commands[k].run, commands[k].flags), F, before);
    return 0;
}
