/* parity_vil.h - what the case kinds of Vision Longformer share. */
#ifndef PARITY_VIL_H
#define PARITY_VIL_H

#include <tapegrad/vil.h>

#include "parity.h"

tp_tape *vil_tape(parity *p);

#endif
