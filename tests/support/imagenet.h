/* imagenet.h - the program imagenet on shapes that it draws. */
#ifndef TP_SUPPORT_IMAGENET_H
#define TP_SUPPORT_IMAGENET_H

#include "support/program.h"

/* Updates take milliseconds. */
#define SMALL "--threads 1 --shapes 40 --size 16 --batch 8 --epochs 2 --log-every 2 "

void imagenet_begin(void); /* makes the folder; program_end removes it */

#endif
