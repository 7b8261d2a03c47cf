/* parity_exceptions.c - changes of metadata that rightly make no difference, with their reasons: those of all
 * areas. parity_exceptions_AREA.c has those of an area.
 *
 * An exception is as narrow as its reason: if a value matters in only some cases of a kind, a function
 * decides which. */
#include "parity_exceptions.h"

static bool one_program(parity *p, const char *from, const char *to)
{
    (void)p;
    return are(from, to, "lm.attention", "lm.attention_options") ||
           are(from, to, "vil.window_attention", "vil.global_attention") ||
           are(from, to, "vil.model", "vil.ls_model") || are(from, to, "vil.full", "vil.ls_full") ||
           are(from, to, "lra.attention", "lra.ls_attention") ||
           are(from, to, "lra.encoder", "lra.retrieval") ||
           are(from, to, "cvt.full", "cvt.ls_full") ||
           are(from, to, "detection.fpn", "detection.mm_fpn");
}

/* True if a name was removed whose gradient is stored as zeros, or not at all. */
static bool stored_as_zeros(parity *p, const char *from, const char *to)
{
    const int n = (int)strcspn(from, " ");

    if (strlen(to) >= strlen(from)) return false;
    for (int i = 0; i < 2; i++) {
        const char *name = par_name(p, "%s.%.*s", i ? "gradnorm" : "grad", n, from);
        tp_shape s;
        const double *x = par_has(p, name) ? par_values(p, name, &s) : NULL;
        for (int64_t k = 0; x && k < par_numel(s); k++)
            if (x[k] != 0.0) return false;
    }
    return true;
}

/* clang-format off */
const par_exception par_exceptions[] = {
    { "*", "kind", "both kinds run the same code, and the other keys decide what it computes", one_program },
    { "*", "zero_grads", "a gradient that is stored as zeros need not be named", stored_as_zeros },
    { "*", "*eps", "lost in rounding next to the variances", small_change },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
