/* plan.h - what a run will take: memory, work and time, before it begins. */
#ifndef PLAN_H
#define PLAN_H

#include "trainer.h"

/* `enwik8 train --plan`: prints the plan of a trainer that has settings and text only. Returns the
 * exit status. */
int plan_main(const trainer *t);

/* The memory that is expected, in the introduction of a run; with a warning if the machine has less
 * to give. */
void plan_announce(trainer *t);

#endif
