/* support_device.c - see the header. */
#include "support_device.h"

#ifdef TP_EMULATION
#include "cuda_emulation/emulation.h"
#endif

tp_device *device_cuda(void)
{
    return tp_device_open("cuda", &(tp_device_opts){ .exact = true });
}

bool device_has_cuda(void)
{
    tp_device *D = tp_device_open("cuda", NULL);
    const bool ok = tp_device_ok(D);
    tp_device_close(D);
    return ok;
}

bool device_set_order(int order)
{
#ifdef TP_EMULATION
    emulation.order = (emulation_order)(order % EMULATION_ORDERS);
    return order < EMULATION_ORDERS;
#else
    return order == 0;
#endif
}
