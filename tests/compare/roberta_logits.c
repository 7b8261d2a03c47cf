/* roberta_logits.c - logits of a text model with published weights, for compare_published.py.
 *
 *     roberta_logits WEIGHTS f64|f32 same|other padded|packed KEY=VALUE ... < TEXTS
 *
 * KEY=VALUE are members of the configuration, as in checkpoints. `other`: the file may hold another
 * model of the family (tp_net_load). TEXTS are numbers: the number of texts, their length, ids and
 * codes (0 padding, 1 local, 2 global). Writes the logits of each text, or of each token that is
 * not padding, to the standard output as doubles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/roberta.h>

enum { MOST = 1 << 16 };

typedef struct texts {
    int B, n, real;
    int32_t ids[MOST], position[MOST], offset[MOST], row[MOST]; /* row: of each real token */
    uint8_t code[MOST];
} texts;

static int complain(const char *why)
{
    fprintf(stderr, "roberta_logits: %s\n", why);
    return 1;
}

static bool read_texts(texts *x)
{
    int code;
    if (scanf("%d %d", &x->B, &x->n) != 2 || x->B < 1 || x->n < 1 || x->B > MOST / x->n - 1)
        return false;
    for (int i = 0; i < x->B * x->n; i++)
        if (scanf("%d", &x->ids[i]) != 1) return false;
    for (int i = 0; i < x->B * x->n; i++) {
        if (scanf("%d", &code) != 1) return false;
        x->code[i] = (uint8_t)code;
        if (code) x->row[x->real++] = i;
    }
    return true;
}

/* The same without padding: ids, codes and rows restart at 0. */
static void pack(texts *x)
{
    int at = 0;
    for (int b = 0; b < x->B; b++) {
        x->offset[b] = at;
        for (int i = 0; i < x->n; i++) {
            const int from = b * x->n + i;
            if (!x->code[from]) continue;
            x->ids[at] = x->ids[from];
            x->code[at] = x->code[from];
            x->position[at] = at - x->offset[b];
            x->row[at] = at;
            at++;
        }
    }
    x->offset[x->B] = at;
}

/* The configuration of `base` with the given members, read as checkpoint metadata. */
static bool configure(tp_model_cfg *c, char **member, int n, char *why, size_t size)
{
    char path[] = "/tmp/roberta_logits_XXXXXX";
    const float zero = 0;
    const int fd = mkstemp(path);
    if (fd < 0) return false;
    fclose(fdopen(fd, "w"));
    tp_writer *W = tp_writer_new(path);
    tp_writer_meta(W, "model", "roberta");
    for (int i = 0; i < n; i++) {
        char *value = strchr(member[i], '=');
        if (!value) continue;
        *value = '\0';
        tp_writer_meta(W, member[i], value + 1);
    }
    tp_writer_add(W, "nothing", TP_F32, TP_SHAPE(1), &zero, true);
    bool ok = tp_writer_commit(W);
    tp_writer_free(W);
    tp_file *F = tp_file_open(path);
    ok = ok && tp_model_read(c, F, why, size);
    tp_file_close(F);
    remove(path);
    return ok;
}

static tp_tensor logits_of(tp_tape *T, const tp_roberta *m, const texts *x, bool packed)
{
    const bool windows = m->cfg.kind == TP_ROBERTA_LONGFORMER;
    if (packed) {
        tp_roberta_packed a = { .ids = tp_from(T, TP_I32, TP_SHAPE(x->real), x->ids),
                                .position = tp_from(T, TP_I32, TP_SHAPE(x->real), x->position),
                                .of = { tp_from(T, TP_I32, TP_SHAPE(x->B + 1), x->offset),
                                        m->cfg.length } };
        if (windows) a.global = tp_roberta_global_packed(T, x->code, x->offset, x->B);
        return tp_roberta_forward_packed(T, m, a);
    }
    tp_roberta_in in = { .ids = tp_from(T, TP_I32, TP_SHAPE(x->B, x->n), x->ids) };
    if (windows) in.global = tp_roberta_global_tokens(T, x->code, x->B, x->n);
    const tp_tensor y = tp_roberta_encode(T, m, in);
    if (m->cfg.head == TP_ROBERTA_CLS) return tp_roberta_classify(T, m, y);
    return tp_roberta_predict(T, m, y, tp_from(T, TP_I32, TP_SHAPE(x->real), x->row));
}

static int run(const tp_model_cfg *cfg, char **argv, const texts *x)
{
    const tp_dtype real = strcmp(argv[2], "f64") == 0 ? TP_F64 : TP_F32;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .dtype = real, .seed = 1 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = real });
    tp_net *net = tp_net_new(P, "", cfg);
    tp_file *F = tp_file_open(argv[1]);
    int bad = 1;
    if (!tp_net_load(P, net, F, strcmp(argv[3], "other") == 0)) {
        complain(tp_params_why(P));
    } else {
        tp_record(T, false);
        const tp_tensor z =
            tp_cast(T, logits_of(T, tp_net_module(net), x, strcmp(argv[4], "packed") == 0), TP_F64);
        const size_t n = (size_t)tp_numel(z);
        double *to = calloc(n + 1, sizeof *to);
        if (to && tp_read(T, z, to, n * sizeof *to))
            bad = fwrite(to, sizeof *to, n, stdout) != n;
        else
            complain(tp_why(T));
        free(to);
    }
    tp_file_close(F);
    tp_net_free(net);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    return bad;
}

int main(int argc, char **argv)
{
    static texts x;
    tp_model_cfg cfg;
    char why[512] = "no configuration";
    if (argc < 6) return complain("usage: WEIGHTS f64|f32 same|other padded|packed KEY=VALUE ...");
    if (!configure(&cfg, argv + 5, argc - 5, why, sizeof why)) return complain(why);
    if (!read_texts(&x)) return complain("the texts cannot be read");
    if (strcmp(argv[4], "packed") == 0) pack(&x);
    tp_file *F = tp_file_open(argv[1]);
    const bool ok = tp_model_adopt(&cfg, F, NULL, 0);
    if (!ok) complain(tp_file_why(F));
    tp_file_close(F);
    return ok ? run(&cfg, argv, &x) : 1;
}
