/* parity_resnet.h - kinds of ResNet and ResNeXt. */
#ifndef PARITY_RESNET_H
#define PARITY_RESNET_H

#include "parity_case.h"

void resnet_declare_block(parity *p, void *self);
void resnet_run_block(parity *p, void *self);
void resnet_declare(parity *p, void *self); /* variant 1: without head */
void resnet_run(parity *p, void *self);
void resnet_run_features(parity *p, void *self);

#endif
