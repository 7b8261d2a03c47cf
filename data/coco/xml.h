/* xml.h - walks the elements of an XML text in memory. Skips attributes and declarations. */
#ifndef TP_XML_H
#define TP_XML_H

#include <stdbool.h>
#include <stddef.h>

enum { TP_XML_DEPTH = 8, TP_XML_NAME = 32 };

/* Start with bytes, end, and at = bytes. */
typedef struct tp_xml {
    const char *bytes, *end, *at;
    int depth;                            /* of the open elements, including that of the last tag */
    char name[TP_XML_DEPTH][TP_XML_NAME]; /* of open elements; deeper ones only count */
    bool closing;                         /* the last tag is </name>, or ends <name/> */
    bool empty, closed;
    const char *text; /* after the last tag */
    char why[80];     /* what is wrong at `at` */
} tp_xml;

/* Advances to the next tag. False: the text ended, or why says what is wrong. */
bool tp__xml_next(tp_xml *x);
/* Do the open elements form a path such as "annotation/size/width"? */
bool tp__xml_is(const tp_xml *x, const char *path);
/* Copies the text between the last tag and the next, without blanks at its ends, with entities
 * replaced and comments left out. False, reason in why: it does not fit, or XML does not define an
 * entity. */
bool tp__xml_text(tp_xml *x, char *to, size_t size);

#endif
