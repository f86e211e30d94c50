"""Passes over the vocabulary, written so that the compiler uses the widest vectors of the machine it runs on.

`exp` is the usual reduction by powers of two with a polynomial on [-ln2/2, ln2/2] (Cody and Waite 1980); its
relative error is below 2e-7.
"""

from libc.math cimport exp, log

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
    #define WX_CLONES __attribute__((target_clones("default", "avx2,fma", "avx512f")))
    #else
    #define WX_CLONES
    #endif
    #define WX_LANES 16

    static inline float wx_exp_nonpositive(float x) {
        x = x < -87.0f ? -87.0f : x;
        float n = x * 1.44269504088896341f - 0.5f;
        int32_t i = (int32_t) n;                       /* truncation towards 0 rounds n - 0.5 up: nearest for x <= 0 */
        float f = (float) i;
        float r = x - f * 0.693359375f;
        r = r + f * 2.12194440e-4f;
        float p = 1.9875691500e-4f;
        p = p * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        p = p * r * r + r + 1.0f;
        int32_t bits = (i + 127) << 23;
        float scale;
        memcpy(&scale, &bits, sizeof scale);
        return p * scale;
    }

    WX_CLONES static float wx_max(const float * x, int n) {
        float lane[WX_LANES];
        float top = x[0];
        int i = 0;
        for (int l = 0; l < WX_LANES; l++) lane[l] = x[0];
        for (; i + WX_LANES <= n; i += WX_LANES)
            for (int l = 0; l < WX_LANES; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
        for (; i < n; i++) top = x[i] > top ? x[i] : top;
        for (int l = 0; l < WX_LANES; l++) top = lane[l] > top ? lane[l] : top;
        return top;
    }

    WX_CLONES static double wx_sum_exp(const float * x, int n, float top) {
        double total = 0.0;
        int i = 0;
        while (i + WX_LANES <= n) {
            /* Short blocks keep the float sums exact enough; their totals are added in double. */
            float lane[WX_LANES] = {0};
            int end = n - i > 1024 ? i + 1024 : i + (n - i) / WX_LANES * WX_LANES;
            for (; i < end; i += WX_LANES)
                for (int l = 0; l < WX_LANES; l++) {
                    float d = x[i + l] - top;
                    lane[l] += d > -87.0f ? wx_exp_nonpositive(d) : 0.0f;
                }
            for (int l = 0; l < WX_LANES; l++) total += lane[l];
        }
        for (; i < n; i++) {
            float d = x[i] - top;
            total += d > -87.0f ? wx_exp_nonpositive(d) : 0.0f;
        }
        return total;
    }

    WX_CLONES static void wx_sigmoid(float * x, int n, float slope) {
        for (int i = 0; i < n; i++) {
            float t = slope * x[i];
            float e = wx_exp_nonpositive(t > 0.0f ? -t : t);
            x[i] = (t > 0.0f ? 1.0f : e) / (1.0f + e);
        }
    }

    static int wx_arg_max(const float * x, int n) {
        float top = wx_max(x, n);
        for (int i = 0; i < n; i++) if (x[i] == top) return i;
        return 0;
    }

    #define WX_BLOCK 256

    static int wx_top_k(const float * x, int n, int k, int * found) {
        int count = 0;
        for (int start = 0; start < n; start += WX_BLOCK) {
            int size = n - start < WX_BLOCK ? n - start : WX_BLOCK;
            /* Most blocks hold nothing that is large enough, which one fast pass shows. */
            if (count == k && !(wx_max(x + start, size) > x[found[k - 1]])) continue;
            for (int i = start; i < start + size; i++) {
                if (!(x[i] > -INFINITY) || (count == k && !(x[i] > x[found[k - 1]]))) continue;
                int at = count < k ? count++ : k - 1;
                while (at > 0 && x[i] > x[found[at - 1]]) { found[at] = found[at - 1]; at--; }
                found[at] = i;
            }
        }
        return count;
    }
    """
    float wx_max(const float * x, int n) noexcept nogil
    double wx_sum_exp(const float * x, int n, float top) noexcept nogil
    int wx_arg_max(const float * x, int n) noexcept nogil
    int wx_top_k(const float * x, int n, int k, int * found) noexcept nogil
    void wx_sigmoid(float * x, int n, float slope) noexcept nogil


cdef double sum_exp(const float * x, int n, float top) noexcept nogil:
    """Sum of exp(x - top) over n values; no value may be above top. -inf counts as 0."""
    return wx_sum_exp(x, n, top)


cdef int arg_max(const float * x, int n) noexcept nogil:
    """Index of the largest of n >= 1 values, the lowest one on ties."""
    return wx_arg_max(x, n)


cdef int top_k(const float * x, int n, int k, int * found) noexcept nogil:
    """Put the indexes of the k >= 1 largest values into `found`, largest first, the lowest index first on ties.

    Returns how many there are: -inf is never taken.
    """
    return wx_top_k(x, n, k, found)


cdef float probability_of(const float * row, int n, int i) noexcept nogil:
    """Softmax of n >= 1 logits at i."""
    cdef float top = wx_max(row, n)
    return <float>exp(row[i] - top - log(wx_sum_exp(row, n, top)))


cdef void sigmoid(float * x, int n, float slope) noexcept nogil:
    """Replace every x by 1 / (1 + exp(-slope x)). With slope 2, twice the result less one is tanh x."""
    wx_sigmoid(x, n, slope)
