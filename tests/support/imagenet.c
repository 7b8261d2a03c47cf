/* imagenet.c - sets up runs of imagenet. */
#include "support/imagenet.h"

void imagenet_begin(void)
{
    program_begin("imagenet");
}
