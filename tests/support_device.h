/* support_device.h - the CUDA device that tests run on: a card or its emulation. */
#ifndef SUPPORT_DEVICE_H
#define SUPPORT_DEVICE_H

#include <stdbool.h>
#include <tapegrad/device.h>

/* Is there a card, or its emulation? */
bool device_has_cuda(void);
/* What opening it says where there is neither driver nor emulation; else NULL. */
const char *device_cuda_missing(void);
/* Opens it, each buffer an allocation of its own, which is poisoned by the emulation. */
tp_device *device_cuda(void);

/* Emulation: chooses one of the orders of threads, 0 being the usual one. False: no such order. */
bool device_set_order(int order);

#endif
