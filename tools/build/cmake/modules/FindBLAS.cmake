# ggml asks for a BLAS in CMake's way. CMake's own module cannot see the OpenBLAS of the Python package
# scipy-openblas32, whose functions carry a prefix, so that one is answered here and any other is left to CMake.
if (NOT WHISPYX_OPENBLAS)
    include("${CMAKE_ROOT}/Modules/FindBLAS.cmake")
    return()
endif()

file(GLOB _found "${WHISPYX_OPENBLAS}/lib/libscipy_openblas*.so" "${WHISPYX_OPENBLAS}/lib/libscipy_openblas*.dylib")
list(LENGTH _found _count)
if (NOT _count EQUAL 1 OR NOT EXISTS "${WHISPYX_OPENBLAS}/include/cblas.h")
    message(FATAL_ERROR "WHISPYX_OPENBLAS does not name a folder with lib/libscipy_openblas.so and include/cblas.h")
endif()
set(BLAS_LIBRARIES "${_found}")
set(BLAS_INCLUDE_DIRS "${WHISPYX_OPENBLAS}/include")
set(BLAS_FOUND TRUE)
add_compile_definitions(
    cblas_sgemm=scipy_cblas_sgemm
    openblas_set_num_threads=scipy_openblas_set_num_threads
)
