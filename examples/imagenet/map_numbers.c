/* map_numbers.c - see the header. */
#include "map_numbers.h"

#include <math.h>

static double norm(const double *x, int64_t d)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* With u[i] = x[i] / |x[i]| the sum over all pairs is |sum of u|^2; pairs of a row with itself are
 * taken off. */
double mean_cosine(const double *x, int64_t n, int64_t d, double *work)
{
    double all = 0;
    for (int64_t c = 0; c < d; c++) work[c] = 0;
    for (int64_t i = 0; i < n; i++) {
        const double length = norm(x + i * d, d);
        if (length == 0) continue;
        for (int64_t c = 0; c < d; c++) work[c] += x[i * d + c] / length;
        all -= 1;
    }
    for (int64_t c = 0; c < d; c++) all += work[c] * work[c];
    return n > 1 ? all / ((double)n * (double)(n - 1)) : 0;
}

double mean_norm(const double *x, int64_t n, int64_t d)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += norm(x + i * d, d);
    return n > 0 ? sum / (double)n : 0;
}
