/* xml.h - the elements of an XML text in memory, in the order of the text. Attributes and declarations are passed
 * over. */
#ifndef TP_XML_H
#define TP_XML_H

#include <stdbool.h>
#include <stddef.h>

enum { TP_XML_DEPTH = 8, TP_XML_NAME = 32 };

/* Begin with bytes, end, and at = bytes. */
typedef struct tp_xml {
    const char *bytes, *end, *at;
    int depth; /* of the open elements, that of the last tag among them */
    char name[TP_XML_DEPTH][TP_XML_NAME]; /* theirs; deeper ones are only counted */
    bool closing;                         /* the last tag is </name>, or the end of <name/> */
    bool empty, closed;
    const char *text; /* after the last tag */
    char why[80];     /* what is wrong at `at` */
} tp_xml;

/* Goes to the next tag. False: the text ends, or why says what is wrong. */
bool tp__xml_next(tp_xml *x);
/* Are the open elements those of a path such as "annotation/size/width"? */
bool tp__xml_is(const tp_xml *x, const char *path);
/* The text between the last tag and the next one, without blanks at its ends: entities are replaced, comments left out.
 * False with the reason in why: it does not fit, or has an entity that XML does not define. */
bool tp__xml_text(tp_xml *x, char *to, size_t size);

#endif
