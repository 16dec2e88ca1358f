# One room is one static library under src/<room>/. DEPS is the only place where an arrow between rooms is
# declared; scripts/tidy reads these calls and rejects any include that is not among them.

function(room name)
  cmake_parse_arguments(R "" "" "SOURCES;DEPS;LINK;PRIVATE_LINK" ${ARGN})
  add_library(artery_${name} STATIC ${R_SOURCES})
  add_library(artery::${name} ALIAS artery_${name})
  target_link_libraries(artery_${name} PUBLIC artery_flags tl::expected fmt::fmt Threads::Threads)
  foreach(dep IN LISTS R_DEPS)
    target_link_libraries(artery_${name} PUBLIC artery_${dep})
  endforeach()
  target_link_libraries(artery_${name} PUBLIC ${R_LINK} PRIVATE ${R_PRIVATE_LINK})
endfunction()

# room_test(room SOURCES ... [DEPS rooms] [LINK libs] [LABELS l] [COST s] [HOT]): one
# GoogleTest binary, <room>_test by default. COST: about the seconds it takes, so that long ones begin
# first. Under sanitizers the tests' own files are not optimized: they build in half the time. HOT:
# they compute as much as what they test, and are.
function(room_test name)
  cmake_parse_arguments(T "HOT" "TARGET;TIMEOUT;COST" "SOURCES;DEPS;LINK;LABELS" ${ARGN})
  if(NOT GTest_FOUND)
    return()
  endif()
  if(NOT T_TARGET)
    set(T_TARGET ${name}_test)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 600)
  endif()
  if(NOT T_COST)
    set(T_COST 1)
  endif()
  add_executable(${T_TARGET} ${T_SOURCES})
  target_link_libraries(${T_TARGET} PRIVATE artery_${name} GTest::gtest GTest::gmock GTest::gtest_main ${T_LINK})
  foreach(dep IN LISTS T_DEPS)
    target_link_libraries(${T_TARGET} PRIVATE artery_${dep})
  endforeach()
  target_compile_definitions(${T_TARGET} PRIVATE
    ARTERY_SOURCE_DIR="${CMAKE_SOURCE_DIR}" ARTERY_BUILD_DIR="${CMAKE_BINARY_DIR}")
  if(ARTERY_SANITIZE AND NOT T_HOT)
    target_compile_options(${T_TARGET} PRIVATE -O0)
  endif()
  add_test(NAME ${T_TARGET} COMMAND ${T_TARGET} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${T_TARGET} PROPERTIES TIMEOUT ${T_TIMEOUT} COST ${T_COST}
    LABELS "${name};${T_LABELS}")
endfunction()

# room_fuzz(room target source): a libFuzzer target, built only with ARTERY_FUZZ.
function(room_fuzz name target source)
  cmake_parse_arguments(F "" "" "DEPS;LINK" ${ARGN})
  if(NOT ARTERY_FUZZ)
    return()
  endif()
  add_executable(${target} ${source})
  target_compile_options(${target} PRIVATE -fsanitize=fuzzer)
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${target} PRIVATE artery_${name} ${F_LINK})
  foreach(dep IN LISTS F_DEPS)
    target_link_libraries(${target} PRIVATE artery_${dep})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY ARTERY_FUZZ_TARGETS ${target})
endfunction()
