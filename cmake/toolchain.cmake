# Compiler-wide settings: warnings for our code, reproducible floating point, ccache, linker, sanitizers.

add_library(artery_flags INTERFACE)
target_include_directories(artery_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_options(artery_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror>
  # Bits are ours, not the compiler's (design, "Numerics"): no fused multiply-add we did not write.
  -ffp-contract=off
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
# Asio's fences are unknown to ThreadSanitizer; the macro picks its atomic fallback.
if(ARTERY_SANITIZE STREQUAL "thread")
  target_compile_definitions(artery_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(artery_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)
  find_program(ARTERY_LLD NAMES ld.lld-19 ld.lld)
  if(ARTERY_LLD)
    add_link_options(--ld-path=${ARTERY_LLD})
  endif()
else()
  find_program(ARTERY_MOLD NAMES mold)
  if(ARTERY_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()
add_link_options(-Wl,--gc-sections)

if(ARTERY_SANITIZE)
  add_compile_options(-fsanitize=${ARTERY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ARTERY_SANITIZE})
endif()

# ccache must hit from any folder: CI builds a fresh clone elsewhere.
find_program(ARTERY_CCACHE ccache)
if(ARTERY_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${ARTERY_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
