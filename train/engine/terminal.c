/* terminal.c - detects what a stream may show. The library's only reader of environment variables:
 * TERM and NO_COLOR, both terminal conventions. */
#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <tapegrad/file.h>
#include <unistd.h>

bool tp__is_terminal(FILE *out)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0 && isatty(fileno(out));
}

bool tp__has_colours(FILE *out)
{
    const char *unwanted = getenv("NO_COLOR");
    return !(unwanted && *unwanted) && tp__is_terminal(out);
}

int tp__columns(FILE *out)
{
    struct winsize size;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void tp__print_plain(FILE *out, const char *text)
{
    char shown[TP_PLAIN];
    for (size_t n; (n = tp_plain_at(text, shown)) > 0; text += n) fputs(shown, out);
}
