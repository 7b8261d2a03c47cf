/* parity_vil.h - what the case kinds of Vision Longformer share. */
#ifndef PARITY_VIL_H
#define PARITY_VIL_H

#include <tapegrad/vision.h>

#include "parity.h"

tp_vil_cfg vil_model_cfg(parity *p);
tp_tape *vil_tape(parity *p);

#endif
