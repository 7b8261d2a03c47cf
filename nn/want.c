/* want.c - the check for a module passed as NULL. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>

bool tp_params_want_module(tp_params *P, const void *m, const char *name)
{
    if (!m) tp_params_raise(P, TP_E_STATE, "%s: NULL was given in place of a module", name);
    return m != NULL;
}

bool tp_want_module(tp_tape *T, const void *m, const char *name)
{
    return tp_want(T, m, name, "a module");
}

bool tp_want(tp_tape *T, const void *p, const char *name, const char *what)
{
    if (!p) tp_raise_here(T, TP_E_STATE, "%s: NULL was given in place of %s", name, what);
    return p != NULL;
}
