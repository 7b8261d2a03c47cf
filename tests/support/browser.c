/* browser.c - speaks Chromium's debugging protocol over its pipe: zero-terminated JSON messages,
 * which it reads from descriptor 3 and writes to 4. */
#include "support/browser.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

char complaints[4000];

enum { PATIENCE = 120 * 1000 }; /* milliseconds for one message */

static pid_t chromium;
static int to, from, calls;
static char *inbox, session[100], text[100000];
static size_t held, room;
static bool loaded;

/* ---- messages ---- */

static void complain(const char *what, const char *detail)
{
    const size_t used = strlen(complaints);
    snprintf(complaints + used, sizeof complaints - used, "%s: %.300s\n", what, detail);
}

/* The string at a path of keys in an event. */
static const char *at(const json_t *j, const char *a, const char *b)
{
    const char *s = json_string_value(json_object_get(json_object_get(j, a), b));
    return s ? s : "";
}

static void hear(const json_t *event)
{
    const char *method = json_string_value(json_object_get(event, "method"));
    const json_t *p = json_object_get(event, "params");
    const char *url = at(p, "request", "url");
    if (strcmp(method, "Page.loadEventFired") == 0) loaded = true;
    if (strcmp(method, "Log.entryAdded") == 0) complain("log", at(p, "entry", "text"));
    if (strcmp(method, "Runtime.exceptionThrown") == 0)
        complain("exception",
                 at(json_object_get(p, "exceptionDetails"), "exception", "description"));
    if (strcmp(method, "Runtime.consoleAPICalled") == 0)
        complain("console", json_string_value(json_object_get(p, "type")));
    if (strcmp(method, "Network.requestWillBeSent") == 0 && strncmp(url, "file:", 5) != 0 &&
        strncmp(url, "data:", 5) != 0)
        complain("request", url);
}

static json_t *receive(void)
{
    char *end;
    while (!(end = memchr(inbox, '\0', held))) {
        struct pollfd p = { .fd = from, .events = POLLIN };
        cr_assert_eq(poll(&p, 1, PATIENCE), 1, "Chromium does not answer");
        if (room - held < 65536) inbox = realloc(inbox, room += 1 << 20);
        cr_assert(inbox);
        const ssize_t n = read(from, inbox + held, room - held);
        cr_assert(n > 0, "Chromium exited");
        held += (size_t)n;
    }
    json_t *message = json_loads(inbox, 0, NULL);
    cr_assert(message, "not JSON: %.200s", inbox);
    held -= (size_t)(end + 1 - inbox);
    memmove(inbox, end + 1, held);
    return message;
}

/* Calls a method and returns its result, which the caller frees. Takes ownership of params. */
static json_t *call(const char *method, json_t *params)
{
    json_t *m = json_pack("{s:i,s:s,s:o}", "id", ++calls, "method", method, "params", params);
    if (*session) json_object_set_new(m, "sessionId", json_string(session));
    char *line = json_dumps(m, JSON_COMPACT);
    json_decref(m);
    const size_t n = strlen(line) + 1;
    for (size_t i = 0; i < n;) {
        const ssize_t k = write(to, line + i, n - i);
        cr_assert(k > 0);
        i += (size_t)k;
    }
    free(line);
    for (;;) {
        json_t *answer = receive();
        if (json_integer_value(json_object_get(answer, "id")) != calls) {
            if (json_object_get(answer, "method")) hear(answer);
            json_decref(answer);
            continue;
        }
        json_t *result = json_incref(json_object_get(answer, "result"));
        cr_assert(result, "%s: %s", method, at(answer, "error", "message"));
        json_decref(answer);
        return result;
    }
}

static void tell(const char *method, json_t *params)
{
    json_decref(call(method, params));
}

/* ---- the browser ---- */

static void run_chromium(int in, int out)
{
    const int null = open("/dev/null", O_RDWR), high_in = fcntl(in, F_DUPFD, 10);
    const int high_out = fcntl(out, F_DUPFD, 10);
    for (int i = 0; i < 3; i++) dup2(null, i);
    dup2(high_in, 3);
    dup2(high_out, 4);
    execlp("chromium", "chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
           "--remote-debugging-pipe", "--user-data-dir=profile", "--no-first-run",
           "--disable-dev-shm-usage", "--disable-background-networking", (char *)NULL);
    _exit(127);
}

bool browser_open(void)
{
    int down[2], up[2];
    if (system("command -v chromium >/dev/null 2>&1") != 0) return false;
    signal(SIGPIPE, SIG_IGN);
    cr_assert(pipe(down) == 0 && pipe(up) == 0);
    chromium = fork();
    if (chromium == 0) run_chromium(down[0], up[1]);
    cr_assert(chromium > 0);
    close(down[0]);
    close(up[1]);
    to = down[1];
    from = up[0];
    inbox = malloc(room = 1 << 20);
    held = 0;
    session[0] = complaints[0] = '\0';
    json_t *page = call("Target.createTarget", json_pack("{s:s}", "url", "about:blank"));
    json_t *attached =
        call("Target.attachToTarget",
             json_pack("{s:O,s:b}", "targetId", json_object_get(page, "targetId"), "flatten", 1));
    snprintf(session, sizeof session, "%s",
             json_string_value(json_object_get(attached, "sessionId")));
    json_decref(page);
    json_decref(attached);
    const char *const domains[] = { "Page", "Runtime", "Log", "Network" };
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        char method[40];
        snprintf(method, sizeof method, "%s.enable", domains[i]);
        tell(method, json_object());
    }
    tell("Emulation.setFocusEmulationEnabled", json_pack("{s:b}", "enabled", 1));
    return true;
}

void browser_close(void)
{
    session[0] = '\0';
    tell("Browser.close", json_object());
    close(to);
    waitpid(chromium, NULL, 0);
    close(from);
    free(inbox);
    inbox = NULL;
}

void browse(const char *path)
{
    char url[5000], here[4096];
    cr_assert(getcwd(here, sizeof here));
    snprintf(url, sizeof url, "file://%s/%s", here, path);
    loaded = false;
    tell("Page.navigate", json_pack("{s:s}", "url", url));
    while (!loaded) {
        json_t *event = receive();
        if (json_object_get(event, "method")) hear(event);
        json_decref(event);
    }
}

void browser_look(const char *scheme, int width, int height)
{
    tell("Emulation.setEmulatedMedia",
         json_pack("{s:[{s:s,s:s}]}", "features", "name", "prefers-color-scheme", "value", scheme));
    tell("Emulation.setDeviceMetricsOverride",
         json_pack("{s:i,s:i,s:i,s:b}", "width", width, "height", height, "deviceScaleFactor", 1,
                   "mobile", width < 500));
}

void browser_scripts(bool on)
{
    tell("Emulation.setScriptExecutionDisabled", json_pack("{s:b}", "value", !on));
}

/* ---- the page ---- */

static json_t *value_of(const char *expression)
{
    json_t *result = call("Runtime.evaluate",
                          json_pack("{s:s,s:b}", "expression", expression, "returnByValue", 1));
    cr_assert(!json_object_get(result, "exceptionDetails"), "%s: %s", expression,
              at(json_object_get(result, "exceptionDetails"), "exception", "description"));
    json_t *value = json_incref(json_object_get(json_object_get(result, "result"), "value"));
    json_decref(result);
    return value;
}

const char *page_text(const char *expression)
{
    json_t *value = value_of(expression);
    snprintf(text, sizeof text, "%s", json_is_string(value) ? json_string_value(value) : "");
    json_decref(value);
    return text;
}

double page_number(const char *expression)
{
    json_t *value = value_of(expression);
    const double x = json_is_number(value)    ? json_number_value(value)
                     : json_is_boolean(value) ? json_is_true(value)
                                              : (double)NAN;
    json_decref(value);
    return x;
}

void press(const char *key)
{
    static const struct {
        const char *key, *text;
        int code;
    } keys[] = {
        { "Tab", NULL, 9 },        { "Enter", "\r", 13 },   { "Escape", NULL, 27 },
        { " ", " ", 32 },          { "End", NULL, 35 },     { "Home", NULL, 36 },
        { "ArrowLeft", NULL, 37 }, { "ArrowUp", NULL, 38 }, { "ArrowRight", NULL, 39 },
        { "ArrowDown", NULL, 40 }, { "PageUp", NULL, 33 },  { "PageDown", NULL, 34 },
        { "+", "+", 187 },         { "-", "-", 189 },
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(keys[i].key, key) != 0) continue;
        json_t *down = json_pack("{s:s,s:s,s:i}", "type", "keyDown", "key", key,
                                 "windowsVirtualKeyCode", keys[i].code);
        if (keys[i].text) json_object_set_new(down, "text", json_string(keys[i].text));
        tell("Input.dispatchKeyEvent", down);
        tell("Input.dispatchKeyEvent", json_pack("{s:s,s:s,s:i}", "type", "keyUp", "key", key,
                                                 "windowsVirtualKeyCode", keys[i].code));
        return;
    }
    cr_assert_fail("no key %s", key);
}

/* Sends a pointer event at a fraction of an element's box. */
static void mouse(const char *type, const char *selector, double x, double y, int held_buttons)
{
    char part[400];
    double box[4];
    const char *const sides[] = { "left", "top", "width", "height" };
    for (int i = 0; i < 4; i++) {
        snprintf(part, sizeof part, "document.querySelector('%s').getBoundingClientRect().%s",
                 selector, sides[i]);
        box[i] = page_number(part);
    }
    tell("Input.dispatchMouseEvent",
         json_pack("{s:s,s:f,s:f,s:s,s:i,s:i}", "type", type, "x", box[0] + x * box[2], "y",
                   box[1] + y * box[3], "button", held_buttons ? "left" : "none", "buttons",
                   held_buttons, "clickCount", held_buttons));
}

void point(const char *selector, double x, double y)
{
    mouse("mouseMoved", selector, x, y, 0);
}

void drag(const char *selector, double start, double end)
{
    mouse("mouseMoved", selector, start, 0.5, 0);
    mouse("mousePressed", selector, start, 0.5, 1);
    mouse("mouseMoved", selector, (start + end) / 2, 0.5, 1);
    mouse("mouseMoved", selector, end, 0.5, 1);
    mouse("mouseReleased", selector, end, 0.5, 1);
}
