/* profile.c - measures the time of each op, one line for each op and direction.
 *
 * The CPU's clock is read around each kernel. A CUDA device records marks in its stream. They
 * are read when none are left or the table is requested, so that measuring does not wait for
 * each op. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <time.h>

#include "tensor/left.h"

static _Thread_local double began; /* start of this thread's op, on the CPU */

int64_t tp__nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double tp_seconds(void)
{
    return 1e-9 * (double)tp__nanoseconds();
}

/* Finds or adds the line of an op; -1: out of memory, and the op is not counted. Names are compared
 * as text, since ops of several libraries may share one. */
static int line_of(tp_profile *p, const char *op, bool backward)
{
    for (int i = 0; i < p->n; i++)
        if (p->at[i].backward == backward && strcmp(p->at[i].op, op) == 0) return i;
    size_t room = (size_t)p->cap;
    if (!tp_reserve(&p->at, &room, (size_t)p->n, 1, sizeof *p->at)) return -1;
    p->cap = (int)room;
    p->at[p->n] = (tp_op_time){ .op = op, .backward = backward };
    return p->n++;
}

void tp__profile_add(tp_device *D, int line, double seconds)
{
    D->profile.at[line].calls++;
    D->profile.at[line].seconds += seconds;
}

void tp__op_begins(tp_device *D)
{
    tp__count(D->launches, 1);
    if (D->trace || (D->profile.on && !D->be->mark)) began = tp_seconds();
    if (!D->profile.on || !D->be->mark) return;
    tp__lock(&D->left->lock);
    D->be->mark(D, TP_OP_BEGINS, 0);
    tp__unlock(&D->left->lock);
}

tp_code tp__op_ends(tp_device *D, const char *op, bool backward)
{
    const double now = D->profile.on || D->trace ? tp_seconds() : 0.0;
    const int slice = D->trace ? tp__trace_op(D, op, backward, began, now) : -1;
    if (D->profile.on) {
        tp__lock(&D->left->lock);
        const int line = line_of(&D->profile, op, backward);
        if (line >= 0 && D->be->mark)
            D->be->mark(D, line, slice);
        else if (line >= 0)
            tp__profile_add(D, line, now - began);
        tp__unlock(&D->left->lock);
    }
    return D->be->ran ? D->be->ran(D, op, backward) : TP_OK;
}

static int by_time(const void *a, const void *b)
{
    const double x = ((const tp_op_time *)a)->seconds, y = ((const tp_op_time *)b)->seconds;
    return (x < y) - (x > y);
}

/* With the lock held. */
static void read_marks(tp_device *D)
{
    if (!D->profile.on || !D->be->read_marks) return;
    tp__count(D->syncs, 1);
    D->be->read_marks(D);
}

void tp__read_marks(tp_device *D)
{
    tp__lock(&D->left->lock);
    read_marks(D);
    tp__unlock(&D->left->lock);
}

int tp_device_profile(tp_device *D, tp_op_time *list, int n)
{
    if (!D || !D->be || !D->profile.on) return 0;
    tp__lock(&D->left->lock);
    read_marks(D);
    qsort(D->profile.at, (size_t)D->profile.n, sizeof *list, by_time);
    const int all = D->profile.n;
    if (n > all) n = all;
    if (n > 0) memcpy(list, D->profile.at, (size_t)n * sizeof *list);
    tp__unlock(&D->left->lock);
    return all;
}

void tp_device_reset_profile(tp_device *D)
{
    if (!D || !D->be) return;
    tp__lock(&D->left->lock);
    read_marks(D);
    D->profile.n = 0;
    tp__unlock(&D->left->lock);
}

void tp__profile_free(tp_device *D)
{
    free(D->profile.at);
}
