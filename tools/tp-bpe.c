/* tp-bpe.c - byte-pair encoding on the command line: learns vocabularies, encodes, decodes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/bpe.h>
#include <tapegrad/file.h>
#include <tapegrad/options.h>
#include <unistd.h>

#include "print_text.h"

typedef struct request {
    tp_words files;
    char *vocab, *output;
    int64_t size, least;
    bool tokens, whole, specials, skip_specials;
} request;

#define S request

/* ---- train ---- */

static const tp_option train_table[] = {
    TP_HEADING("OPTIONS"),
    TP_ARGUMENTS(S, files, "FILE", "Texts, plain or compressed (.gz .xz .zip .zst .bz2)."),
    TP_STRING("output", S, output, "DIR", 0, "Where vocab.json and merges.txt are written."),
    TP_INT("size", S, size, 261, 1 << 22, 0, "Number of ids in the vocabulary."),
    TP_INT("least", S, least, 1, TP_BIG, 0, "A pair that occurs less often is not merged."),
    { 0 },
};

static bool check_train(const void *settings, char *why, size_t size)
{
    const request *r = settings;
    if (r->files.n == 0)
        snprintf(why, size, "no FILE is given");
    else if (!r->output)
        snprintf(why, size, "--output DIR is required");
    return r->files.n > 0 && r->output;
}

static const tp_command train_manual = {
    .name = "tp-bpe train",
    .summary = "learns a vocabulary from texts",
    .synopsis = "FILE... --output DIR [--size N]",
    .about =
        "Counts the words of the texts and repeatedly merges the pair of neighbouring symbols "
        "that occurs most "
        "often. Ids: 0 <s>, 1 <pad>, 2 </s>, 3 <unk>, the 256 bytes, the merges in order, <mask> "
        "last. "
        "The packages tokenizers and transformers read the same files; tokenizers learns the same "
        "merges. An "
        "existing vocabulary is not overwritten.",
    .table = train_table,
    .check = check_train,
    .more = "EXAMPLES\n"
            "    tp-bpe train reviews.txt enwik8.gz --size 8000 --output vocab\n",
};

typedef struct place {
    dev_t device;
    ino_t number;
    const char *path;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    return x->number != y->number ? (x->number < y->number ? -1 : 1) : 0;
}

/* A file that is named twice would count twice. Files that cannot be examined are left to their
 * reader. */
static bool are_different(const tp_words *files, char *why, size_t size)
{
    place *all = calloc((size_t)files->n + 1, sizeof *all);
    size_t n = 0;
    struct stat st;
    why[0] = '\0';
    for (int i = 0; all && i < files->n; i++)
        if (stat(files->at[i], &st) == 0) all[n++] = (place){ st.st_dev, st.st_ino, files->at[i] };
    if (all) qsort(all, n, sizeof *all, by_place);
    for (size_t i = 1; all && i < n && !why[0]; i++)
        if (by_place(&all[i - 1], &all[i]) == 0)
            snprintf(why, size, "%.400s and %.400s are one file: name it once", all[i - 1].path,
                     all[i].path);
    if (!all) snprintf(why, size, "out of memory");
    free(all);
    return !why[0];
}

static bool train(void *settings, char *why, size_t size)
{
    const request *r = settings;
    char path[4200];
    snprintf(path, sizeof path, "%s/vocab.json", r->output);
    if (access(path, F_OK) == 0) {
        snprintf(why, size, "%.600s already exists: choose another --output", path);
        return false;
    }
    if (!are_different(&r->files, why, size)) return false;
    tp_bpe_trainer *R = tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ r->size, r->least });
    bool ok = R;
    if (!R) snprintf(why, size, "out of memory");
    for (int i = 0; ok && i < r->files.n; i++)
        ok = tp_bpe_trainer_add_file(R, r->files.at[i], why, size);
    tp_bpe *X = ok ? tp_bpe_trainer_finish(R) : NULL;
    ok = X && tp_bpe_save(X, r->output, why, size);
    if (ok) {
        print_text(r->output, 0);
        printf(": %lld ids, %lld merges\n", (long long)tp_bpe_size(X), (long long)tp_bpe_merges(X));
    }
    tp_bpe_close(X);
    tp_bpe_trainer_free(R);
    return ok;
}

static int train_main(int argc, char **argv)
{
    request r = { .size = 50265, .least = 2 };
    return tp_command_main(&train_manual, argc, argv, &r, train);
}

/* ---- lines of files or of standard input ---- */

typedef struct run {
    const request *r;
    tp_bpe *X;
    tp_bpe_coder *C;
    const char *file;
    long long number;  /* of the line */
    long long unknown; /* bytes without a token */
    char *why;
    size_t size;
} run;

static bool check_code(const void *settings, char *why, size_t size)
{
    const request *r = settings;
    if (!r->vocab) snprintf(why, size, "--vocab DIR is required");
    return r->vocab;
}

enum { MOST_TEXT = 1 << 30 }; /* bytes that tp_bpe_encode takes */

/* Passes over a byte order mark at the start of a file. False: it is no text. */
static bool is_text(run *u, char **text, size_t *n)
{
    char reason[200];
    const char *at = *text;
    const bool zero = u->number > 1 && memchr(at, 0, *n);
    if (!zero && (u->number > 1 || tp_skip_bom(&at, n, reason, sizeof reason))) {
        *text += at - *text;
        return true;
    }
    snprintf(u->why, u->size, zero ? "%.600s, line %lld has a zero byte" : "%.600s, line %lld %s",
             u->file, u->number, reason);
    return false;
}

static bool unreadable(run *u)
{
    snprintf(u->why, u->size, "%.600s: cannot be read: %s", u->file, strerror(errno));
    return false;
}

/* Calls line() for all of the file, or for its beginning if that is too much already. */
static bool read_whole(run *u, FILE *f, bool (*line)(run *u, char *text, size_t n))
{
    char *text = NULL;
    enum { PIECE = 1 << 16 };
    size_t room = 0, n = 0, got = 1;
    bool ok = true;
    u->number = 1;
    while (ok && got > 0 && n <= MOST_TEXT) {
        ok = tp_reserve(&text, &room, n, PIECE, 1);
        if (ok) n += got = fread(text + n, 1, room - n, f);
    }
    if (!ok) snprintf(u->why, u->size, "%.600s: out of memory", u->file);
    ok = ok && (ferror(f) ? unreadable(u) : line(u, text, n));
    free(text);
    return ok;
}

/* Calls line() for each line, without its end. */
static bool read_lines(run *u, FILE *f, bool (*line)(run *u, char *text, size_t n))
{
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    bool ok = true;
    u->number = 0;
    while (ok && (n = getline(&text, &room, f)) >= 0) {
        u->number++;
        if (n > 0 && text[n - 1] == '\n') text[--n] = '\0';
        ok = line(u, text, (size_t)n);
    }
    if (ok && ferror(f)) ok = unreadable(u);
    free(text);
    return ok;
}

static const tp_command encode_manual;

static bool code(const request *r, bool (*line)(run *, char *, size_t), char *why, size_t size)
{
    run u = { .r = r, .X = tp_bpe_open(r->vocab), .why = why, .size = size };
    bool (*const each)(run *, FILE *, bool (*)(run *, char *, size_t)) =
        r->whole ? read_whole : read_lines;
    u.C = tp_bpe_coder_new(u.X);
    bool ok = tp_bpe_ok(u.X) && u.C;
    if (!ok) snprintf(why, size, "%s", tp_bpe_ok(u.X) ? "out of memory" : tp_bpe_why(u.X));
    if (r->files.n == 0 && ok) {
        u.file = "standard input";
        ok = each(&u, stdin, line);
    }
    for (int i = 0; ok && i < r->files.n; i++) {
        u.file = r->files.at[i];
        FILE *f = fopen(u.file, "rb");
        if (!f) snprintf(why, size, "%.600s: cannot be opened: %s", u.file, strerror(errno));
        ok = f && each(&u, f, line);
        if (f) fclose(f);
    }
    if (ok && fflush(stdout) != 0) {
        snprintf(why, size, "standard output: %s", strerror(errno));
        ok = false;
    }
    if (u.unknown > 0) {
        char said[900];
        snprintf(said, sizeof said, "%lld byte%s no token in %.600s and became <unk>", u.unknown,
                 u.unknown == 1 ? " has" : "s have", r->vocab);
        tp_command_complain(encode_manual.name, said);
    }
    tp_bpe_coder_free(u.C);
    tp_bpe_close(u.X);
    return ok;
}

/* ---- encode ---- */

static const tp_option encode_table[] = {
    TP_HEADING("OPTIONS"),
    TP_ARGUMENTS(S, files, "FILE", "Texts. If not given: standard input."),
    TP_STRING(
        "vocab", S, vocab, "DIR", 0,
        "The vocabulary: a folder with tokenizer.json, encoder.json and vocab.bpe (and fairseq's "
        "dict.txt), or vocab.json and merges.txt; or one of the .json files."),
    TP_FLAG("tokens", S, tokens, 0, "Print the tokens instead of their ids."),
    TP_FLAG("specials", S, specials, 0, "Put <s> before and </s> after each line."),
    TP_FLAG("whole", S, whole, 0, "Encode a file as one text, line ends included."),
    { 0 },
};

static const tp_command encode_manual = {
    .name = "tp-bpe encode",
    .summary = "turns text into ids",
    .synopsis = "--vocab DIR [FILE...]",
    .about = "Prints, for each line of text, a line with its ids, separated by spaces.",
    .table = encode_table,
    .check = check_code,
    .more = "EXAMPLES\n"
            "    echo 'Hello world!' | tp-bpe encode --vocab roberta --specials\n",
};

static void print_id(const run *u, int32_t id, bool first)
{
    if (!first) putchar(' ');
    if (u->r->tokens) /* byte characters, which no terminal executes */
        fputs(tp_bpe_token(u->X, id), stdout);
    else
        printf("%d", (int)id);
}

static bool encode_line(run *u, char *text, size_t n)
{
    int64_t count;
    if (!is_text(u, &text, &n)) return false;
    const int32_t *ids = tp_bpe_encode(u->C, text, n, &count);
    const int32_t begin = tp_bpe_special_id(u->X, TP_BPE_BEGIN),
                  end = tp_bpe_special_id(u->X, TP_BPE_END);
    const bool specials = u->r->specials;
    if (!ids || (specials && (begin < 0 || end < 0))) {
        snprintf(u->why, u->size, "%.600s, line %lld: %s", u->file, u->number,
                 ids ? "the vocabulary has no <s> and </s>"
                     : "it has more than 2^30 bytes, or memory is out");
        return false;
    }
    if (specials) print_id(u, begin, true);
    for (int64_t i = 0; i < count; i++) {
        u->unknown += ids[i] == tp_bpe_special_id(u->X, TP_BPE_UNKNOWN);
        print_id(u, ids[i], i == 0 && !specials);
    }
    if (specials) print_id(u, end, false);
    putchar('\n');
    return true;
}

static bool encode(void *settings, char *why, size_t size)
{
    return code(settings, encode_line, why, size);
}

static int encode_main(int argc, char **argv)
{
    request r = { 0 };
    return tp_command_main(&encode_manual, argc, argv, &r, encode);
}

/* ---- decode ---- */

static const tp_option decode_table[] = {
    TP_HEADING("OPTIONS"),
    TP_ARGUMENTS(S, files, "FILE", "Lines of ids. If not given: standard input."),
    TP_STRING("vocab", S, vocab, "DIR", 0, "The vocabulary, as for encode."),
    TP_FLAG("skip-specials", S, skip_specials, 0, "Leave <s>, <pad>, </s>, <unk> and <mask> out."),
    { 0 },
};

static const tp_command decode_manual = {
    .name = "tp-bpe decode",
    .summary = "turns ids into text",
    .synopsis = "--vocab DIR [FILE...]",
    .about = "Prints a line of text for each line of ids. What is not UTF-8 becomes U+FFFD.",
    .table = decode_table,
    .check = check_code,
    .more = "EXAMPLES\n"
            "    echo 31414 232 328 | tp-bpe decode --vocab roberta\n",
};

static bool bad_line(run *u, const char *at)
{
    snprintf(u->why, u->size, "%.600s, line %lld: '%.20s' is not an id from 0 to %lld", u->file,
             u->number, at, (long long)tp_bpe_size(u->X) - 1);
    return false;
}

static bool decode_line(run *u, char *text, size_t n)
{
    if (!is_text(u, &text, &n)) return false;
    int32_t *ids = malloc((n / 2 + 1) * sizeof *ids);
    int64_t count = 0;
    bool ok = ids;
    if (!ids) snprintf(u->why, u->size, "%.600s, line %lld: out of memory", u->file, u->number);
    for (char *at = text + strspn(text, " \t\r"); ok && *at; at += strspn(at, " \t\r")) {
        char *end = at;
        errno = 0;
        const long long id = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        if (id < 0 || id >= tp_bpe_size(u->X) || !strchr(" \t\r", *end))
            ok = bad_line(u, at);
        else
            ids[count++] = (int32_t)id;
        at = end;
    }
    size_t bytes = 0;
    const char *out =
        ok ? tp_bpe_decode(u->C, ids, count, u->r->skip_specials ? TP_BPE_SKIP_SPECIALS : 0, &bytes)
           : NULL;
    if (out) {
        fwrite(out, 1, bytes, stdout);
        putchar('\n');
    } else if (ok) {
        snprintf(u->why, u->size, "%.600s, line %lld: out of memory", u->file, u->number);
    }
    free(ids);
    return out;
}

static bool decode(void *settings, char *why, size_t size)
{
    return code(settings, decode_line, why, size);
}

static int decode_main(int argc, char **argv)
{
    request r = { 0 };
    return tp_command_main(&decode_manual, argc, argv, &r, decode);
}

static const tp_subcommand commands[] = {
    { "train", "learns a vocabulary from texts", train_main },
    { "encode", "turns text into ids", encode_main },
    { "decode", "turns ids into text", decode_main },
    { 0 },
};

int main(int argc, char **argv)
{
    return tp_subcommands_main("tp-bpe", "byte-pair encoding, as of GPT-2 and RoBERTa", commands,
                               argc, argv);
}
