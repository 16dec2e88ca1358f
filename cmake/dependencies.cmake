# Everything the product links, found once. Versions and reasons: docs/decisions/0001-dependencies.md.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.81 CONFIG REQUIRED COMPONENTS json)
find_package(OpenSSL 3.0 QUIET)
if(NOT OpenSSL_FOUND)
  message(FATAL_ERROR "OpenSSL 3 with headers is missing (TLS and SHA-256 need it): run "
    "scripts/install-deps build, or install libssl-dev")
endif()
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tl-expected REQUIRED)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(libzstd REQUIRED IMPORTED_TARGET libzstd)
# Images of requests: docs/decisions/0006-images.md.
pkg_check_modules(libjpeg REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(libpng REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(libwebp REQUIRED IMPORTED_TARGET libwebp libwebpdemux)
find_package(GIF REQUIRED)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3>=3.25)
# Optional: without it a store reads and writes by threads.
pkg_check_modules(liburing IMPORTED_TARGET liburing>=2.2)
# prometheus-cpp's CMake file asks for libcurl and zlib of its push and pull parts; the core needs neither.
find_library(PROMETHEUS_CPP_CORE prometheus-cpp-core REQUIRED)
add_library(artery_prometheus INTERFACE)
target_link_libraries(artery_prometheus INTERFACE ${PROMETHEUS_CPP_CORE})
find_package(GTest CONFIG)
find_library(RAPIDCHECK rapidcheck)
