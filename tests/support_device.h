/* support_device.h - the device that tests run on: the CPU, a GPU, or a GPU's emulation. */
#ifndef SUPPORT_DEVICE_H
#define SUPPORT_DEVICE_H

#include <stdbool.h>
#include <tapegrad/device.h>

/* The device of the suite: cpu, or the one that the environment variable TAPEGRAD_DEVICE names. */
tp_device *device_open(const tp_device_opts *o);
bool device_is_cuda(void);
bool device_is_emulated(void); /* a GPU's emulation, slower by far: tests do less */
/* Skips a test of the CPU alone where the device is CUDA: the suite of the CPU has it. */
void device_cpu_only(void);
/* The most exact dtype that it computes in, TP_F64 or TP_F32, and the limit that goes with it. */
tp_dtype device_real(void);
double device_limit(double f64, double f32);

/* Is there a GPU, or its emulation? */
bool device_has_cuda(void);
/* The error of opening it if there is neither driver nor emulation; else NULL. */
const char *device_cuda_missing(void);
/* Opens it, each buffer an allocation of its own, which is poisoned by the emulation. */
tp_device *device_cuda(void);

/* Emulation: chooses one of the orders of threads, 0 being the usual one. False: no such order. */
bool device_set_order(int order);

#endif
