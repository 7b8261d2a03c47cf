/* published.c - writes files like a publisher's. */
#include "support/published.h"

#include <criterion/criterion.h>

#include "support/folder.h"

tp_writer *published_file(void)
{
    return tp_writer_new(in_folder("w.safetensors"));
}

tp_params *published_params(const tp_model_cfg *cfg, tp_device *D, tp_net **N)
{
    tp_params *P = tp_params_new(D, NULL);
    *N = tp_net_new(P, "", cfg);
    cr_assert(tp_params_ok(P), "%s", tp_params_why(P));
    return P;
}
