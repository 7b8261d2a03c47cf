/* support_imagenet.c - see the header. */
#include "support_imagenet.h"

void imagenet_begin(void)
{
    program_begin("imagenet");
}
