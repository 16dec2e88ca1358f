# Flags of the files that hold code of one instruction set. Such a file keeps to its own namespace, uses no
# standard containers and exports no weak symbol (tests/isa_symbols_test checks the objects).

set(ARTERY_SSE42_FLAGS -msse4.2 -mpclmul)
set(ARTERY_AVX2_FLAGS -mavx2 -mfma -mf16c -mbmi2)
set(ARTERY_AVX512_FLAGS -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma -mf16c -mbmi2
  -mprefer-vector-width=512)

function(isa_source isa)
  string(TOUPPER ${isa} upper)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${ARTERY_${upper}_FLAGS}")
endfunction()
