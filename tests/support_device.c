/* support_device.c - see the header. */
#include "support_device.h"

#include <dlfcn.h>

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

const char *device_cuda_missing(void)
{
#ifdef TP_EMULATION
    return NULL;
#elif defined TP_HAVE_CUDA
    return dlopen("libcuda.so.1", RTLD_LAZY)
               ? NULL
               : "device cuda:0: this machine has no NVIDIA driver (libcuda.so.1); use cpu";
#else
    return "device cuda: this build of tapegrad has no CUDA; use cpu";
#endif
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
