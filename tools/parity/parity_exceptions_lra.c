/* parity_exceptions_lra.c - the exceptions of parity_exceptions.c for the encoders of the Long Range Arena. */
#include "parity_exceptions.h"

/* True if the case's attention has that name before its dash. */
static bool attends(parity *p, const char *name)
{
    const char *text = par_text(p, "attention"), *type = text ? text : par_text(p, "attn_type");
    const size_t n = strlen(name);
    return type && strncmp(type, name, n) == 0 && (!type[n] || type[n] == '-');
}

static bool same_name(parity *p, const char *from, const char *to)
{
    const size_t n = strcspn(from, "-");
    (void)p;
    return from[n] && strncmp(from, to, n + 1) == 0;
}

static bool no_window(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "uses_window", "0");
}

static bool not_linformer_rank(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "linformer");
}

static bool not_performer(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "performer");
}

/* Only Reformer hashes, and only sequences of several chunks. */
static bool not_hashed(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "reformer") || is(p, "bucket_factors", "0");
}

static bool no_landmarks(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "lsta") && !attends(p, "nystrom");
}

/* With as many landmarks as tokens nothing is inverted. */
static bool not_inverted(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "nystrom") || number(p, "num_landmarks") == number(p, "seq_len");
}

static bool no_convolution(parity *p, const char *from, const char *to)
{
    if (strtoll(from, NULL, 10) <= 0 && strtoll(to, NULL, 10) <= 0) return true;
    return !attends(p, "lsta") && !attends(p, "linformer") && !attends(p, "nystrom");
}

static bool no_cls(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "lsta") ||
           !(is(p, "use_cls", "1") || is(p, "cls_token", "1") || is(p, "cls_last_layer", "1"));
}

static bool not_projected(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "lsta") || number(p, "num_landmarks") == 0;
}

static bool constant_rate(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "schedule", "constant");
}

static bool flat_cycle(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "div_factor", "1") && is(p, "final_div_factor", "1");
}

/* A document that fills the columns of its ids may count the CLS before them or not. */
static bool cls_counts(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "pooling_mode", "CLS");
}

/* clang-format off */
const par_exception par_lra_exceptions[] = {
    { "lra.*", "mode", "without dropout nothing depends on it", NULL },
    { "lra.*", "attention", "the number after the dash configures nothing", same_name },
    { "lra.*", "attn_type", "the number after the dash configures nothing", same_name },
    { "lra.*", "unused_params", "a parameter without a stored gradient need not be named", fewer_names },
    { "lra.*", "window_size", "there is no window", no_window },
    { "lra.*", "num_landmarks", "this attention has no landmarks", no_landmarks },
    { "lra.*", "linformer_k", "an option of Linformer", not_linformer_rank },
    { "lra.*", "rp_dim", "an option of Performer", not_performer },
    { "lra.*", "num_hash", "nothing is hashed", not_hashed },
    { "lra.*", "chunk_length", "nothing is hashed", not_hashed },
    { "lra.*", "inv_per_head", "nothing is inverted", not_inverted },
    { "lra.*", "conv_kernel_size", "there is no convolution", no_convolution },
    { "lra.*", "cls_mode", "long-short attention has no CLS here", no_cls },
    { "lra.*", "proj", "nothing is projected", not_projected },
    { "lra.trace", "beta1_max", "the rate is constant", constant_rate },
    { "lra.trace", "pct_start", "the rate is constant", constant_rate },
    { "lra.trace", "div_factor", "the rate is constant", constant_rate },
    { "lra.trace", "final_div_factor", "the rate is constant", constant_rate },
    { "lra.trace", "schedule", "the cycle is flat", flat_cycle },
    { "lra.*", "lengths", "a full document may count the CLS before it", cls_counts },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
