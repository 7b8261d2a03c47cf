/* custom_optim.c - adds an optimiser to a program and fits a line with it.
 *
 * The optimiser is AdaMax (Kingma, Ba 2015, section 7.1): Adam with the largest gradient in place
 * of the root mean square, here with decoupled weight decay:
 *
 *     m = b1 m + (1-b1) g        u = max(b2 u, |g|)
 *     p -= lr wd p               p -= lr / (1 - b1^n) m / (u + eps)
 *
 * The library provides the rest: tp_step, rate and decay factors, frozen parameters, options that
 * change, checkpoints. */
#include <math.h>
#include <stdio.h>
#include <tapegrad/optim_kind.h>
#include <tapegrad/tapegrad.h>

enum { WEIGHT_DECAY, BETA1, BETA2, EPS }; /* options */
enum { P, M, U };                         /* outputs of the kernel: values, then states */

/* Element k of the parameter is element i of the values and element j of both states. */
static void update(const tp_call *c, const tp_segment *s, int64_t k)
{
    const tp_optim_attr *a = c->attr;
    const int64_t i = s->at + k, j = s->own[0] + k;
    const double b1 = a->k[BETA1], b2 = a->k[BETA2], g = a->scale * tp_optim_grad(c, s, k);
    const double m = b1 * tp_ld(&c->y[M], j) + (1.0 - b1) * g;
    const double u = fmax(b2 * tp_ld(&c->y[U], j), fabs(g));
    const double p = tp_ld(&c->y[P], i), rate = s->lr / (1.0 - pow(b1, (double)s->updates));

    tp_st(&c->y[M], j, m);
    tp_st(&c->y[U], j, u);
    tp_st(&c->y[P], i, p - s->lr * s->decay * p - rate * m / (u + a->k[EPS]));
}

/* One call updates all parameters that have a gradient; each segment is one of them. */
static tp_code adamax_step(const tp_call *c)
{
    const tp_segments *all = &((const tp_optim_attr *)c->attr)->s;

    for (const tp_segment *s = all->at; s < all->at + all->n; s++)
        for (int64_t k = 0; k < s->numel; k++) update(c, s, k);
    return TP_OK;
}

static const tp_optim_kind adamax = {
    .name = "adamax",
    .options = { [WEIGHT_DECAY] = { .name = "weight_decay", .high = HUGE_VAL },
                 [BETA1] = { .name = "beta1", .usual = 0.9, .high = 1.0 }, /* in [0, 1) */
                 [BETA2] = { .name = "beta2", .usual = 0.999, .high = 1.0 },
                 [EPS] = { .name = "eps", .usual = 1e-8, .high = HUGE_VAL } },
    .states = { { .name = "m" }, { .name = "u" } },
    .counts = true,
    .elementwise = true,
    .step = { [TP_CPU] = adamax_step },
};

int main(void)
{
    enum { N = 8, STEPS = 400 };
    const float x[N] = { -2, -1.5f, -1, -0.5f, 0, 0.5f, 1, 1.5f };
    float y[N];
    double loss = 1.0;

    for (int i = 0; i < N; i++) y[i] = 3.0f * x[i] - 1.0f;
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *params = tp_params_new(D, NULL);
    const tp_tensor w = tp_param(params, "w", TP_SHAPE(1), (tp_init){ .kind = TP_INIT_ZERO }, 0);
    const tp_tensor b = tp_param(params, "b", TP_SHAPE(1), (tp_init){ .kind = TP_INIT_ZERO }, 0);
    const tp_optim_value values[] = { { "beta2", 0.9 }, { NULL, 0 } };
    tp_optim_register(&adamax);
    tp_optim *O = tp_optim_new(params, "adamax", &(tp_optim_opts){ .values = values });
    tp_tape *T = tp_tape_new(D, NULL);

    for (int step = 0; step < STEPS; step++, tp_reset(T)) {
        const tp_tensor line = tp_add(T, tp_mul(T, tp_from(T, TP_F32, TP_SHAPE(N), x), w), b);
        const tp_tensor error = tp_sub(T, line, tp_from(T, TP_F32, TP_SHAPE(N), y));
        const tp_tensor mean = tp_mean(T, tp_square(T, error), TP_ALL);
        loss = tp_item(T, mean);
        tp_backward(T, mean);
        if (step == STEPS / 2) tp_optim_set(O, "beta1", 0.5); /* options may change */
        if (!tp_step(O, 0.1 * (1.0 - (double)step / STEPS))) break;
    }
    const bool fits = tp_ok(T) && tp_optim_ok(O) && loss < 1e-6;
    if (fits) printf("adamax fits the line: loss %.1e after %d steps\n", loss, STEPS);
    if (!fits) printf("adamax: loss %g %s%s\n", loss, tp_why(T), tp_optim_why(O));
    tp_tape_free(T);
    tp_optim_free(O);
    tp_params_free(params);
    tp_device_close(D);
    return fits ? 0 : 1;
}
