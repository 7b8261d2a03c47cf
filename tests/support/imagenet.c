/* imagenet.c - see the header. */
#include "support/imagenet.h"

void imagenet_begin(void)
{
    program_begin("imagenet");
}
