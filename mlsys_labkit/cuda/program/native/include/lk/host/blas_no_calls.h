// blas_no_calls.h: takes back the macros of blas_calls.h.
#undef LK_GEMM
#undef LK_VECTORS
#undef LK_DOT
#undef LK_DOT_CONJUGATED
#undef LK_SIZES
#undef LK_ROTATION
#undef LK_GEMV
#undef LK_GER
#undef LK_SYMV
#undef LK_TRIANGLE_VECTOR
#undef LK_TRIANGLE_TIMES
#undef LK_SYRK
#undef LK_SYMM
#undef LK_TRSM
#undef LK_TRMM
#undef LK_GEAM
#undef LK_DGMM
