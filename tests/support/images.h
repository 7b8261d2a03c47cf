/* images.h - folders of small images that a model can tell apart. */
#ifndef TP_SUPPORT_IMAGES_H
#define TP_SUPPORT_IMAGES_H

/* Makes NAME/{train,val}/{blue,red} with n and 4 images, of 20 x 16 pixels of one colour. */
void make_colours(const char *name, int n);

#endif
