/* image_plan.h - `imagenet train --plan`: what a run will take, before it begins. */
#ifndef IMAGE_PLAN_H
#define IMAGE_PLAN_H

#include "training.h"

/* Prints the plan of a training that has settings, pictures and a model's configuration only.
 * Returns the exit status. */
int image_plan_main(const training *t);

#endif
