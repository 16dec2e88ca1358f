# Kernels, weights and the compute pool; paths from src/tensor.
set(TENSOR_KERNEL_SOURCES
  compute_pool.cc
  cpu_limits.cc
  fast_attention.cc
  fast_backend.cc
  fast_experts.cc
  fast_linear.cc
  fast_matmul.cc
  isa.cc
  math.cc
  ops/build_scalar.cc
  reference_backend.cc
  reference_experts.cc
  reference_kv.cc
  tile_pack.cc
  weights.cc)
set(TENSOR_KERNEL_TESTS
  compute_pool_test.cc
  experts_test.cc
  fast_linear_test.cc
  math_test.cc
  ops/attention_int16_test.cc
  ops/attention_test.cc
  ops/attention_window_test.cc
  ops/elementwise_test.cc
  ops/golden_bits_test.cc
  ops/int8_twin_test.cc
  ops/matmul_bf16_test.cc
  ops/matmul_f8_test.cc
  ops/matmul_test.cc
  weights_test.cc)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND TENSOR_KERNEL_SOURCES ops/build_avx2.cc ops/build_avx512.cc ops/build_avx512_bf16.cc)
  isa_source(avx2 ops/build_avx2.cc)
  isa_source(avx512 ops/build_avx512.cc)
  isa_source(avx512 ops/build_avx512_bf16.cc)
  set_property(SOURCE ops/build_avx512_bf16.cc APPEND PROPERTY COMPILE_OPTIONS -mavx512bf16)
  set_source_files_properties(fast_backend.cc PROPERTIES COMPILE_DEFINITIONS ARTERY_X86_KERNELS)
  list(APPEND TENSOR_KERNEL_TESTS ops/isa_symbols_test.cc)
  set_source_files_properties(ops/isa_symbols_test.cc PROPERTIES COMPILE_DEFINITIONS
    ARTERY_KERNEL_OBJECTS="${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/artery_tensor.dir/ops")
endif()
# Nothing there throws; without this an unoptimised object refers to the unwinder by a weak symbol.
set_property(SOURCE ops/build_scalar.cc ops/build_avx2.cc ops/build_avx512.cc ops/build_avx512_bf16.cc
  APPEND PROPERTY COMPILE_OPTIONS -fno-exceptions)
# The plain loops over 16 outputs become vector code only at this level; the order of sums stays.
set_source_files_properties(reference_backend.cc PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
if(ARTERY_BENCH)
  add_executable(matmul_bench ops/matmul_bench.cc)
  target_link_libraries(matmul_bench PRIVATE artery_tensor)
  add_executable(experts_bench ops/experts_bench.cc)
  target_link_libraries(experts_bench PRIVATE artery_tensor)
  add_executable(attention_bench ops/attention_bench.cc)
  target_link_libraries(attention_bench PRIVATE artery_tensor)
endif()
