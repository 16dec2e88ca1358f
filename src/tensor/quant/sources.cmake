# The type table and the block types; paths from src/tensor.
set(TENSOR_QUANT_SOURCES
  dtype.cc
  quant/blocks_32.cc
  quant/decode.cc
  quant/encode.cc
  quant/few_bits.cc
  quant/floats.cc
  quant/four_bit_tables.cc
  quant/iq_grids.cc
  quant/iq_quants.cc
  quant/k_quants.cc)
