/* tp-models.c - lists the models of the library: parameters, FLOPs, activation memory, beside what
 * the papers print. Nothing is computed or allocated: parameters are declared, costs closed forms.
 */
#include <stdio.h>
#include <string.h>

#include <tapegrad/model.h>

static const char usage[] =
    "usage: tp-models [MODEL]\n"
    "       tp-models --params MODEL\n"
    "\n"
    "Lists every model of the library, or those whose name begins with MODEL. --params lists the\n"
    "names and shapes of one model's parameters.\n"
    "\n"
    "  params       parameters; tied ones count once\n"
    "  GFLOPs       one forward pass of one sample of the given input, by fvcore's rule:\n"
    "               multiply-adds, plus what the paper counts an element of LayerNorm (5) and of\n"
    "               BatchNorm (2)\n"
    "  activations  MiB that a training step keeps for backward, one sample, f32: everything, and\n"
    "               with blocks recomputed\n"
    "  paper        parameters and GFLOPs as the paper prints them, - where it does not\n";

static void print_paper(double x, double unit, int digits)
{
    if (x > 0)
        printf(" %9.*f", digits, x / unit);
    else
        printf(" %9s", "-");
}

/* "224 x 224", "2048 tokens, cache 2048" */
static void describe_input(const tp_model_cfg *c, char *text, size_t size)
{
    const tp_model_opts o = tp_model_get(c);
    if (c->model->input == TP_IMAGES)
        snprintf(text, size, "%lld x %lld", (long long)o.image[0], (long long)o.image[1]);
    else
        snprintf(text, size, "%lld tokens, %s %lld", (long long)o.cache, c->model->carried,
                 (long long)o.cache);
}

static double mib(tp_model_cfg *c, tp_recompute recompute)
{
    tp_model_opts o = tp_model_get(c);
    o.recompute = recompute;
    tp_model_set(c, &o);
    return tp_model_activations(c, 0, 0) / 1048576.0;
}

static void print_model(const tp_model_row *row, tp_device *D)
{
    char input[64], why[512];
    tp_model_cfg c;
    if (!tp_model_preset(&c, row->name, why, sizeof why)) {
        printf("%-34s %s\n", row->name, why);
        return;
    }
    tp_params *P = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", &c);
    const tp_flops f = tp_model_flops(&c, 0, 0);
    const double flops = f.paper + row->norm_cost * f.norm + 2.0 * f.batchnorm;

    describe_input(&c, input, sizeof input);
    printf("%-34s %-24s %12lld", row->name, input, (long long)tp_params_count(P));
    print_paper(row->params, 1e6, 1);
    printf(" %9.2f", flops / 1e9);
    print_paper(row->flops, 1e9, 2);
    printf(" %9.1f", mib(&c, TP_RECOMPUTE_NONE));
    printf(" %9.1f\n", mib(&c, TP_RECOMPUTE_BLOCK));
    tp_net_free(N);
    tp_params_free(P);
}

static int list(const char *prefix)
{
    int n = 0;
    tp_device *D = tp_device_open("cpu", NULL);
    printf("%-34s %-24s %12s %9s %9s %9s %9s %9s\n", "model", "input", "params", "paper, M",
           "GFLOPs", "paper", "MiB", "recompute");
    for (int i = 0; tp_model_at(i); i++)
        if (strncmp(tp_model_at(i)->name, prefix, strlen(prefix)) == 0) {
            print_model(tp_model_at(i), D);
            n++;
        }
    tp_device_close(D);
    if (n) return 0;
    fprintf(stderr, "tp-models: no model's name begins with '%s'\n", prefix);
    return 1;
}

static void print_shape(const tp_shape *s)
{
    printf("[");
    for (int i = 0; i < s->ndim; i++) printf("%s%lld", i ? "," : "", (long long)s->dim[i]);
    printf("]");
}

static int list_params(const char *name)
{
    char why[512];
    tp_model_cfg c;
    if (!tp_model_preset(&c, name, why, sizeof why)) {
        fprintf(stderr, "tp-models: %s\n", why);
        return 1;
    }
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", &c);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        printf("%-44s ", it.name);
        print_shape(&it.shape);
        if (it.alias_of) printf(" = %s", it.alias_of);
        if (it.buffer) printf(" buffer %s", tp_dtype_name(it.dtype));
        printf("\n");
    }
    printf("%lld parameters\n", (long long)tp_params_count(P));
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1) return list("");
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc == 2 && argv[1][0] != '-') return list(argv[1]);
    if (argc == 3 && strcmp(argv[1], "--params") == 0) return list_params(argv[2]);
    fputs(usage, stderr);
    return 2;
}
