/* browser.h - a headless Chromium with one page, for tests of pages: real keys, a real pointer, and
 * all complaints and network requests of the page. */
#ifndef TP_SUPPORT_BROWSER_H
#define TP_SUPPORT_BROWSER_H

#include <stdbool.h>
#include <stddef.h>

/* Starts Chromium in the current folder. False if not installed. */
bool browser_open(void);
void browser_close(void);

/* Opens a file of the current folder and waits for it to load. */
void browse(const char *path);

/* Sets the colour scheme ("dark", "light") and the window size. */
void browser_look(const char *scheme, int width, int height);
void browser_scripts(bool on); /* for later pages */

/* The value of an expression: its text ("" unless it is a string), its number (NaN unless it is one
 * or a boolean). A text lasts until the next call. */
const char *page_text(const char *expression);
double page_number(const char *expression);

void press(const char *key);                             /* "Tab", "ArrowRight", " ", "+" */
void point(const char *selector, double x, double y);    /* moves to this fraction of an element */
void drag(const char *selector, double from, double to); /* along the middle of an element */

/* Console messages, exceptions and requests that leave the machine, one per line. */
extern char complaints[4000];

#endif
