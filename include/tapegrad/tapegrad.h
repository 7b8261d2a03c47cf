/* tapegrad.h - the whole public API of the core library. */
#ifndef TAPEGRAD_H
#define TAPEGRAD_H

#include <tapegrad/base.h>
#include <tapegrad/capture.h>
#include <tapegrad/device.h>
#include <tapegrad/file.h>
#include <tapegrad/lora.h>
#include <tapegrad/metrics.h>
#include <tapegrad/nn.h>
#include <tapegrad/ops.h>
#include <tapegrad/optim.h>
#include <tapegrad/params.h>
#include <tapegrad/peers.h>
#include <tapegrad/tape.h>
#include <tapegrad/tensor.h>

#endif
