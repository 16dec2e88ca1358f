# The Rust bridge as the imported target artery_bridge, when a cargo of at least ARTERY_CARGO_MIN is found
# and ARTERY_RUST is not OFF. Sets ARTERY_HAS_RUST. One target directory serves every build directory
# (the sanitizer builds link the same release archive); cargo's own lock keeps builds apart.

set(ARTERY_CARGO_MIN 1.87)

# cargo_version(<program> <out>): its version, empty when it does not run.
function(cargo_version program out)
  execute_process(COMMAND ${program} --version OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE status)
  set(${out} "" PARENT_SCOPE)
  if(status EQUAL 0 AND text MATCHES "cargo ([0-9]+\\.[0-9]+\\.[0-9]+)")
    set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
endfunction()

# find_cargo(): sets ARTERY_CARGO and, for a cargo named by its version as Ubuntu does, ARTERY_RUSTC.
function(find_cargo)
  foreach(suffix "" -1.99 -1.98 -1.97 -1.96 -1.95 -1.94 -1.93 -1.92 -1.91 -1.90 -1.89 -1.88 -1.87)
    find_program(ARTERY_CARGO${suffix} cargo${suffix} HINTS $ENV{HOME}/.cargo/bin)
    mark_as_advanced(ARTERY_CARGO${suffix})
    set(program ${ARTERY_CARGO${suffix}})
    if(NOT program)
      continue()
    endif()
    cargo_version(${program} version)
    if(version VERSION_GREATER_EQUAL ARTERY_CARGO_MIN)
      set(ARTERY_CARGO_PROGRAM ${program} PARENT_SCOPE)
      set(ARTERY_CARGO_VERSION ${version} PARENT_SCOPE)
      set(ARTERY_RUSTC_NAME rustc${suffix} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

set(ARTERY_HAS_RUST OFF)
if(NOT ARTERY_RUST STREQUAL "OFF")
  find_cargo()
  if(ARTERY_CARGO_PROGRAM)
    set(ARTERY_HAS_RUST ON)
  elseif(ARTERY_RUST STREQUAL "ON")
    message(FATAL_ERROR "ARTERY_RUST=ON: no cargo >= ${ARTERY_CARGO_MIN} found. Install one "
      "(Debian 12: cargo-web rustc-web; Ubuntu 24.04: cargo-1.91 rustc-1.91) or use ARTERY_RUST=OFF")
  else()
    message(STATUS "No cargo >= ${ARTERY_CARGO_MIN}: built without the Rust bridge (built-in chat forms only)")
  endif()
endif()

if(ARTERY_HAS_RUST AND NOT TARGET artery_bridge)
  message(STATUS "Rust bridge: ${ARTERY_CARGO_PROGRAM} ${ARTERY_CARGO_VERSION}")
  # Absolute and without "..": the depfile names the archive so.
  get_filename_component(bridge_dir ${CMAKE_SOURCE_DIR}/rust REALPATH)
  get_filename_component(cargo_dir ${CMAKE_SOURCE_DIR}/build/cargo REALPATH)
  set(bridge_lib ${cargo_dir}/release/libartery_bridge.a)
  set(bridge_env CARGO_TARGET_DIR=${cargo_dir})
  if(NOT ARTERY_RUSTC_NAME STREQUAL "rustc")
    list(APPEND bridge_env RUSTC=${ARTERY_RUSTC_NAME})
  endif()
  add_custom_command(OUTPUT ${bridge_dir}/Cargo.lock
    COMMAND ${CMAKE_COMMAND} -E env ${bridge_env}
      ${CMAKE_SOURCE_DIR}/scripts/cargo-lock ${ARTERY_CARGO_PROGRAM}
    DEPENDS ${bridge_dir}/Cargo.pins
    COMMENT "Making rust/Cargo.lock from the pins"
    VERBATIM)
  add_custom_command(OUTPUT ${bridge_lib}
    COMMAND ${CMAKE_COMMAND} -E env ${bridge_env}
      ${ARTERY_CARGO_PROGRAM} build --release --locked --manifest-path ${bridge_dir}/Cargo.toml
    DEPFILE ${cargo_dir}/release/libartery_bridge.d
    DEPENDS ${bridge_dir}/Cargo.toml ${bridge_dir}/Cargo.lock
    COMMENT "Building the Rust bridge"
    USES_TERMINAL VERBATIM)
  add_custom_target(artery_bridge_build DEPENDS ${bridge_lib})
  add_library(artery_bridge STATIC IMPORTED GLOBAL)
  set_target_properties(artery_bridge PROPERTIES IMPORTED_LOCATION ${bridge_lib})
  target_link_libraries(artery_bridge INTERFACE ${CMAKE_DL_LIBS} Threads::Threads m)
  add_dependencies(artery_bridge artery_bridge_build)
endif()
