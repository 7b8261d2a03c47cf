/* launch.c - finds the processes that a launcher started together with this one. */
#include "train/peers/inner.h"

tp_peers *tp_peers_open(const tp_peers_opts *o)
{
    (void)o;
    return NULL;
}
