/* convert.c - `imdb convert`: changes the attention, length or head of a model and keeps its
 * weights. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/train.h>
#include <unistd.h>

#include "imdb.h"
#include "reports/plain_text.h"

typedef struct convert_settings {
    tp_words files;
    model_choice m;
    char *tokenizer, *vocabulary;
    int head;
    bool copy_global, overwrite;
    int64_t seed;
} convert_settings;

enum { HEAD_AS_IT_IS, HEAD_MLM };

#define S convert_settings

static const tp_option table[] = {
    TP_HEADING("FILES"),
    TP_ARGUMENTS(S, files, "FILE NEW",
                 "The weights: a checkpoint of this program, or a published file of RoBERTa or "
                 "Longformer (safetensors, .bin, .pt); and the checkpoint to write."),
    OPTION_TOKENIZER(S, tokenizer, 0),
    TP_STRING("vocabulary", S, vocabulary, "DIR", 0,
              "Also write the vocabulary into this folder: vocab.json and merges.txt, which "
              "--tokenizer and the package transformers read. Files of these names are replaced."),
    TP_FLAG("overwrite", S, overwrite, 0, "Replace NEW if it exists."),
    TP_HEADING("MODEL"),
    OPTIONS_MODEL(S, m, 0),
    TP_CHOICE("head", S, head, "as-it-is|mlm", 0,
              "mlm: a head that predicts tokens, in place of a classifier."),
    TP_FLAG(
        "copy-global", S, copy_global, 0,
        "longformer: copy query, key and value to the global projections once more, after training "
        "without global tokens."),
    TP_INT("seed", S, seed, 0, TP_BIG, 0, "Seed of weights that the file lacks."),
    { 0 },
};

static const tp_command manual = {
    .name = "imdb convert",
    .summary = "turns a model of text into one with another attention or length",
    .synopsis = "FILE NEW [--preset NAME] [--length N] [flag ...]",
    .about = "Writes a checkpoint that 'imdb pretrain', 'train' and 'predict' read: the weights of "
             "FILE in the model of --preset, with the layers and widths of FILE. The vocabulary is "
             "stored with them, and the names of a classifier's classes, those in the config.json "
             "beside a published FILE. This is how Longformer and long-short RoBERTa start from "
             "RoBERTa.\n\n"
             "More positions repeat those of FILE. Longformer's global projections are copies of "
             "query, key and value. The projections and norms of long-short attention are new: it "
             "needs training, unlike Longformer, and with --dual-ln off is closer to what it was.",
    .table = table,
    .more =
        "EXIT STATUS\n"
        "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
        "EXAMPLES\n"
        "    imdb convert roberta-base/model.safetensors base.safetensors\n"
        "    imdb convert base.safetensors long.safetensors --preset longformer-base\n"
        "    imdb convert runs/pretrain/best.safetensors ls.safetensors --preset roberta_ls-mini\n"
        "    imdb convert runs/imdb/best.safetensors copy.safetensors --vocabulary words\n",
};

typedef struct converter {
    const convert_settings *s;
    tp_device *D;
    tp_params *P;
    tp_bpe *vocab;
    class_list classes;
    int64_t tail; /* as the file's classifier cuts */
    tp_roberta_cfg cfg;
    text_model m;
} converter;

static bool fail(char *why, size_t size, const char *text)
{
    snprintf(why, size, "%s", text);
    return false;
}

/* Keeps the file's head: a classifier without texts has no meaning. */
static bool choose(converter *c, tp_file *F, char *why, size_t size)
{
    tp_roberta_cfg file;
    if (!model_describe(&file, F, why, size)) return false;
    const model_wish wish = { .head = c->s->head == HEAD_MLM ? TP_ROBERTA_MLM : file.head,
                              .vocab = tp_bpe_size(c->vocab),
                              .classes = file.classes };
    if (!model_choose(&c->cfg, &c->s->m, F, wish, why, size)) return false;
    if (wish.head == TP_ROBERTA_MLM) return true;
    return model_classes(&c->classes, &file, F, why, size) &&
           (tp_file_int(F, "text_tail", &c->tail) || fail(why, size, tp_file_why(F)));
}

static bool load(converter *c, tp_file *F, char *why, size_t size)
{
    c->D = tp_device_open("cpu", NULL);
    c->P = tp_params_new(c->D, &(tp_params_opts){ .seed = (uint64_t)c->s->seed });
    model_init(c->P, &c->m, &c->cfg);
    bool done = tp_params_ok(c->P) && tp_net_load(c->P, c->m.net, F, true);
    if (done && c->s->copy_global) done = tp_roberta_copy_global(c->P, model_of(&c->m));
    return done || fail(why, size, tp_params_why(c->P));
}

static bool save(const converter *c, const char *path, char *why, size_t size)
{
    tp_writer *W = tp_writer_new(path);
    model_write(&c->cfg, W);
    tokenizer_write(c->vocab, W);
    if (c->classes.n > 0) class_list_write(&c->classes, W);
    if (c->tail > 0) tp_writer_meta_int(W, "text_tail", c->tail);
    tp_writer_finite(W);
    const bool done = tp_params_write(c->P, W, "") && tp_writer_commit(W);
    if (!done) fail(why, size, tp_writer_why(W));
    tp_writer_free(W);
    return done;
}

static bool convert(converter *c, tp_file *F, const char *to, char *why, size_t size)
{
    char model[300], name[4200];
    if (!tp_file_ok(F)) return fail(why, size, tp_file_why(F));
    c->vocab = tokenizer_open(c->s->tokenizer, F, why, size);
    if (!c->vocab || !choose(c, F, why, size) || !load(c, F, why, size)) return false;
    if (!save(c, to, why, size)) return false;
    if (c->s->vocabulary && !tp_bpe_save(c->vocab, c->s->vocabulary, why, size)) {
        if (!c->s->overwrite) unlink(to); /* both or none */
        return false;
    }
    printf("%s: %s; %lld parameters\n", plain_line(to, name, sizeof name),
           model_text(&c->cfg, model, sizeof model), (long long)tp_params_count(c->P));
    return true;
}

static bool run(void *settings, char *why, size_t size)
{
    converter c = { .s = settings };
    const char *from = c.s->files.at[0], *to = c.s->files.at[1];
    if (!c.s->overwrite && (access(to, F_OK) == 0 || errno != ENOENT)) {
        snprintf(why, size, "%s exists: choose another name, or replace it with --overwrite", to);
        return false;
    }
    tp_file *F = tp_file_open(from);
    const bool done = convert(&c, F, to, why, size);
    tp_file_close(F);
    model_free(&c.m);
    tp_params_free(c.P);
    tp_device_close(c.D);
    tp_bpe_close(c.vocab);
    class_list_free(&c.classes);
    return done;
}

static bool check(const void *settings, char *why, size_t size)
{
    const convert_settings *s = settings;
    if (s->files.n == 2) return true;
    snprintf(why, size,
             "name the file of the weights and the file to write: imdb convert FILE NEW");
    return false;
}

int imdb_convert_main(int argc, char **argv)
{
    tp_command command = manual;
    convert_settings s = { .m = model_as_it_is, .seed = 1 };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
