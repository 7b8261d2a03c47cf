/* parity_exceptions_roberta.c - the exceptions of parity_exceptions.c for RoBERTa. */
#include "parity_exceptions.h"

static bool no_dual_ln(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return !is(p, "attention_type", "ls");
}

static bool not_a_classifier(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "head", "mlm");
}

/* clang-format off */
const par_exception par_roberta_exceptions[] = {
    { "roberta.*", "mode", "without dropout nothing depends on it", NULL },
    { "roberta.*", "dual_ln", "only long-short attention has norms of its keys", no_dual_ln },
    { "roberta.*", "num_labels", "only a classifier has classes", not_a_classifier },
    { "roberta.*", "unused_params", "a parameter without a stored gradient need not be named", fewer_names },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
