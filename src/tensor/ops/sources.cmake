# Kernels, weights and the compute pool; paths from src/tensor.
set(TENSOR_KERNEL_SOURCES)
set(TENSOR_KERNEL_TESTS)
