# The type table and the block types; paths from src/tensor.
set(TENSOR_QUANT_SOURCES dtype.cc)
