/* sinusoid.c - the sinusoidal relative-position table and its frequencies.
 *
 *     pe(p) = [sin(p w_0) .. sin(p w_{n-1}), cos(p w_0) .. cos(p w_{n-1})],  w_k = 10000^(-k/n)
 *
 * Computes angles in double: at position 8000 a float angle is off by 5e-4. */
#include <math.h>
#include <tapegrad/nn.h>

void tp_frequencies(int64_t n, double *inv_freq)
{
    for (int64_t k = 0; inv_freq && k < n; k++) inv_freq[k] = pow(10000.0, -(double)k / (double)n);
}

void tp_sinusoid(int64_t rows, int64_t n, const double *inv_freq, int64_t clamp, double *out)
{
    for (int64_t i = 0; inv_freq && out && i < rows; i++, out += 2 * n) {
        const double p = (double)(clamp > 0 && i > clamp ? clamp : i);
        for (int64_t k = 0; k < n; k++) {
            out[k] = sin(p * inv_freq[k]);
            out[n + k] = cos(p * inv_freq[k]);
        }
    }
}
