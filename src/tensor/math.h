#pragma once
// Our own exp, log, sin, cos: the same bits on every compiler and C library (glibc picks FMA
// variants at run time). Scalar double versions; the kernels carry float vector versions of exp
// with the same rule. Pure, any thread.

namespace artery::tensor {

double exp_d(double x);  // relative error < 2e-15; overflow to +inf, underflow to 0, NaN stays NaN
double log_d(double x);  // relative error < 2e-15; log(0) = -inf, log(<0) = NaN
void sincos_d(double x, double& sin_x, double& cos_x);  // |x| <= 1e9, absolute error < 1e-12
double pow_d(double base, double exponent);             // base > 0

}  // namespace artery::tensor
