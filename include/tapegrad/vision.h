/* vision.h - the image models of the papers (models library). */
#ifndef TAPEGRAD_VISION_H
#define TAPEGRAD_VISION_H

#include <tapegrad/coat.h>
#include <tapegrad/convnet.h>
#include <tapegrad/cswin.h>
#include <tapegrad/cvt.h>
#include <tapegrad/mpvit.h>
#include <tapegrad/pvt.h>
#include <tapegrad/resnet.h>
#include <tapegrad/swin.h>
#include <tapegrad/vil.h>
#include <tapegrad/vit.h>
#include <tapegrad/vit_lsla.h>

#endif
