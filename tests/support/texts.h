/* texts.h - small reviews whose class follows from their words, and a vocabulary for them. */
#ifndef TP_SUPPORT_TEXTS_H
#define TP_SUPPORT_TEXTS_H

/* Writes NAME/train/{neg,pos}/N.txt and NAME/test/...: `train` and `test` texts of each class. */
void make_reviews(const char *name, int train, int test);

/* Learns a vocabulary of `size` ids from such reviews and writes it into a folder. */
void make_vocabulary(const char *folder, int size);

/* Makes both for imdb: "reviews" and "words" (300 ids). */
void review_data(void);
void long_review_data(void); /* with 600 test texts of each class */

#endif
