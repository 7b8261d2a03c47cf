/* browser.h - a headless Chromium with one page, for tests of pages: real keys, a real pointer,
 * and everything that the page complains of or asks the network for. */
#ifndef TP_SUPPORT_BROWSER_H
#define TP_SUPPORT_BROWSER_H

#include <stdbool.h>
#include <stddef.h>

/* Starts it in the current folder. False if there is none on this machine. */
bool browser_open(void);
void browser_close(void);

/* Opens a file of the current folder and waits until it is loaded. */
void browse(const char *path);

/* Prefers this scheme ("dark", "light") in a window of this size. */
void browser_look(const char *scheme, int width, int height);
void browser_scripts(bool on); /* of pages opened from now on */

/* The value of an expression: its text ("" unless it is a string), its number (NaN unless it is one
 * or a boolean). A text lasts until the next call. */
const char *page_text(const char *expression);
double page_number(const char *expression);

void press(const char *key);                             /* "Tab", "ArrowRight", " ", "+" */
void point(const char *selector, double x, double y);    /* moves to this fraction of an element */
void drag(const char *selector, double from, double to); /* along the middle of an element */

/* Messages of the console, exceptions, and requests that leave the machine, one a line. */
extern char complaints[4000];

#endif
