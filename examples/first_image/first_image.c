/* first_image.c - a small convolutional image classifier; docs/tutorial.md explains it. */
#include <stdio.h>
#include <tapegrad/image_set.h>
#include <tapegrad/train.h>

enum { LAYERS = 4, WIDTH = 16 };

typedef struct settings {
    tp_train_settings train; /* the settings of every training program */
    char *data;
    int64_t size;
} settings;

static const tp_option flags[] = {
    TP_HEADING("DATA"),
    TP_STRING("data", settings, data, "DIR", TP_FREE, "Images: DIR/CLASS/NAME.jpg."),
    TP_INT("size", settings, size, 8, 512, TP_SAVED, "Resize images to size x size pixels."),
    TP_ROWS(tp_train_options),
    { 0 },
};

typedef struct state {
    tp_image_set *train, *valid;
    tp_loader *loader;
    tp_tensor batch[2], valid_batch[2]; /* [B,size,size,3], [B,classes] */
    tp_conv2d_m conv[LAYERS];
    tp_batchnorm_m norm[LAYERS];
    tp_linear_m head;
} state;

static tp_image_set *open_part(const settings *s, tp_part part)
{
    if (s->data) return tp_image_set_open(s->data, TP_LAYOUT_AUTO, part);
    return tp_image_set_shapes(part == TP_TRAIN ? 4000 : 500, s->size, part);
}

static tp_loader *new_loader(tp_run *R, const tp_image_set *X, bool train)
{
    const settings *s = R->settings;
    tp_augment a;
    tp_image_loader_opts o = { &a, s->train.batch, (uint64_t)s->train.seed, .train = train };
    o.bad = tp_run_left_out;
    o.env = R;
    o.share = tp_run_share(R);
    tp_augment_recipe(&a, train ? "small" : "eval", s->size);
    return tp_image_loader_new(X, &o);
}

static void open_images(tp_run *R, tp_file *from)
{
    settings *s = R->settings;
    state *t = R->state;
    (void)from; /* the checkpoint of --resume or --init, or NULL */
    tp_absolute_path(&s->data);
    t->train = open_part(s, TP_TRAIN);
    t->valid = open_part(s, TP_VALID);
    if (tp_image_set_note(t->train)[0]) tp_run_say(R, "%s", tp_image_set_note(t->train));
    t->loader = new_loader(R, t->train, true);
    R->batches = tp_loader_steps(t->loader);
    R->data_hash = tp_image_set_hash(t->train);
    if (!tp_loader_ok(t->loader)) tp_run_fail(R, "%s", tp_loader_why(t->loader));
    if (!tp_image_set_ok(t->valid)) tp_run_fail(R, "%s", tp_image_set_why(t->valid));
}

static void build(tp_run *R)
{
    static const char *const name[LAYERS] = { "layers.0", "layers.1", "layers.2", "layers.3" };
    const tp_conv_cfg half = { .stride = { 2, 2 }, .pad = { 1, 1 } };
    state *t = R->state;
    int64_t in = 3, out = WIDTH;
    for (int i = 0; i < LAYERS; i++, in = out, out *= 2) {
        tp_push(R->P, name[i]);
        tp_conv2d_init(R->P, &t->conv[i], "conv", in, out, 3, false, half);
        tp_batchnorm_init(R->P, &t->norm[i], "norm", out, 1e-5);
        tp_pop(R->P);
    }
    tp_linear_init(R->P, &t->head, "head", in, tp_image_set_classes(t->train), true);
}

/* x [B,size,size,3] -> logits [B,classes] */
static tp_tensor forward(tp_tape *T, const state *t, tp_tensor x)
{
    x = tp_cast(T, x, tp_compute_dtype(T)); /* --dtype */
    for (int i = 0; i < LAYERS; i++)
        x = tp_relu(T, tp_batchnorm_forward(T, &t->norm[i], tp_conv2d_forward(T, &t->conv[i], x)));
    return tp_linear_forward(T, &t->head, tp_mean(T, tp_mean(T, x, 1), 1));
}

static void next(tp_run *R)
{
    state *t = R->state;
    tp_loader_feed(t->loader, R->T, R->epoch, R->batch, t->batch);
}

static tp_tensor loss(tp_run *R)
{
    const state *t = R->state;
    const tp_tensor z = forward(R->T, t, t->batch[0]);
    return tp_cross_entropy(R->T, z, tp_cast(R->T, t->batch[1], tp_dtype_of(z)), TP_MEAN);
}

static double validate(tp_run *R, char *text, size_t size)
{
    state *t = R->state;
    tp_tape *E = R->E;
    tp_loader *L = new_loader(R, t->valid, false);
    double n, sum[2] = { 0 }; /* images, and those with the right class */
    for (int64_t i = 0; !tp_run_stopped(R); sum[0] += n, i++) {
        tp_reset(E);
        n = (double)tp_loader_feed(L, E, 0, i, t->valid_batch);
        if (n == 0) break;
        const tp_tensor best = tp_argmax(E, forward(E, t, t->valid_batch[0]), 1);
        const tp_tensor hit = tp_eq(E, best, tp_argmax(E, t->valid_batch[1], 1));
        sum[1] += tp_item(E, tp_sum(E, hit, TP_ALL));
    }
    tp_loader_free(L);
    tp_run_total(R, sum, 2);
    snprintf(text, size, "accuracy %.2f %% of %.0f images", 100 * sum[1] / sum[0], sum[0]);
    return 100 * sum[1] / sum[0];
}

static void close_images(tp_run *R)
{
    state *t = R->state;
    tp_loader_free(t->loader);
    tp_image_set_close(t->train);
    tp_image_set_close(t->valid);
}

static const tp_training training = {
    .command = { .name = "first_image",
                 .summary = "trains a small image classifier",
                 .about =
                     "Trains a small convolutional network on --data, or on drawn shapes if it "
                     "is not given.",
                 .table = flags },
    .unit = "images",
    .score = "accuracy",
    .score_text = "accuracy %.2f %%",
    .higher = true,
    .settings_size = sizeof(settings),
    .state_size = sizeof(state),
    .defaults = "--epochs 8 --lr 0.002 --ema 0.99 --size 32",
    .open = open_images,
    .build = build,
    .next = next,
    .loss = loss,
    .validate = validate,
    .close = close_images,
};

int main(int argc, char **argv)
{
    return tp_train_main(&training, argc - 1, argv + 1);
}
