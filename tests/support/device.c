/* device.c - opens the device that tests run on. */
#include "support/device.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "support/amx.h"
#include "support/sanitized.h"

#ifdef TP_EMULATION
#include "cuda_emulation/emulation.h"
#endif

static const char *device_name(void)
{
    const char *name = getenv("TAPEGRAD_DEVICE");
    return name && *name ? name : "cpu";
}

tp_device *device_open(const tp_device_opts *o)
{
    if (strcmp(device_name(), "amx") != 0) return tp_device_open(device_name(), o);
    tp_device_opts tiles = o ? *o : (tp_device_opts){ 0 };
    if (tiles.isa == TP_ISA_AUTO) tiles.isa = TP_ISA_AMX;
    return amx_open(&tiles);
}

bool device_is_cuda(void)
{
    return strncmp(device_name(), "cuda", 4) == 0;
}

bool device_is_emulated(void)
{
#ifdef TP_EMULATION
    return device_is_cuda();
#else
    return false;
#endif
}

void device_cpu_only(void)
{
    if (device_is_cuda()) cr_skip_test("runs on the CPU regardless of TAPEGRAD_DEVICE");
}

tp_dtype device_real(void)
{
    return device_is_cuda() ? TP_F32 : TP_F64;
}

double device_limit(double f64, double f32)
{
    return device_is_cuda() ? f32 : f64;
}

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

int device_other_order(void)
{
    return sanitized() ? 2 : 1;
}
