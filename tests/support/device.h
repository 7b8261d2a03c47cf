/* device.h - the device that tests run on: the CPU, a GPU, or a GPU's emulation. */
#ifndef SUPPORT_DEVICE_H
#define SUPPORT_DEVICE_H

#include <stdbool.h>
#include <tapegrad/device.h>

/* Opens the suite's device: cpu, or the one in the environment variable TAPEGRAD_DEVICE; "amx": the
 * CPU with tiles (amx.h). */
tp_device *device_open(const tp_device_opts *o);
bool device_is_cuda(void);
bool device_is_emulated(void); /* the emulation is much slower, so tests do less */
/* Skips a CPU-only test on CUDA; the CPU suite runs it. */
void device_cpu_only(void);
/* The most precise dtype of the suite's device, TP_F64 or TP_F32, and its error limit. */
tp_dtype device_real(void);
double device_limit(double f64, double f32);

/* True if a GPU or its emulation exists. */
bool device_has_cuda(void);
/* The error of opening a GPU if there is neither driver nor emulation, else NULL. */
const char *device_cuda_missing(void);
/* Opens the GPU with one allocation per buffer; the emulation poisons them. */
tp_device *device_cuda(void);

/* Sets the emulation's order of threads; 0 is the default. False if there is no such order. */
bool device_set_order(int order);
/* The first order to compare with the default: 1, or with sanitizers, where a run takes seconds,
 * the shuffled one, which is the last. */
int device_other_order(void);

#endif
