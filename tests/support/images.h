/* images.h - folders of small images that a model can classify. */
#ifndef TP_SUPPORT_IMAGES_H
#define TP_SUPPORT_IMAGES_H

/* Makes NAME/{train,val}/{blue,red} with n and 4 one-colour images of 20 x 16 pixels. */
void make_colours(const char *name, int n);

#endif
