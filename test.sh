#!/usr/bin/env bash
# Builds and runs the tests; installs what is missing first. The last line is the count.
#   ./test.sh           g++ release with all tests, clang ASan+UBSan for what reads foreign bytes or
#                       owns memory (not the kernels', golden and fault suites), TSan for engine,
#                       kvstore and server, scripts/tidy, scripts/fmt --check
#   ./test.sh --quick   g++ release with all tests, scripts/tidy
#   ./test.sh --all     the default, and: the long tests, ASan+UBSan with all tests, g++ and clang
#                       builds compared bit by bit, every mutation of scripts/mutate caught, each
#                       fuzz target for a minute
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

mode=default
case "${1:-}" in
  "") ;;
  --quick) mode=quick ;;
  --all) mode=all ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

started=$SECONDS
results=build/test-results
rm -rf "$results"
mkdir -p "$results"
say() { printf '== [%4ds] %s\n' $((SECONDS - started)) "$*"; }

scripts/install-deps build test model || exit 1
[ -d ../shared/models ] && scripts/fetch-model stories260k >/dev/null
ls build/models/SmolLM2*.gguf >/dev/null 2>&1 ||
  say "no SmolLM2 in build/models: run scripts/fetch-model smollm2 for the tests on real weights"
[ "$mode" = all ] && export ARTERY_TEST_LONG=1

# One JUnit file a check, so that a script or a build counts as a test too: check NAME COMMAND...
check() {
  local name=$1 folder="$results/$1" verdict=run failure=""
  shift
  mkdir -p "$folder"
  say "$name"
  if ! "$@" >"$folder/log" 2>&1; then
    verdict=fail
    failure='<failure message="see the output above"/>'
    tail -n 40 "$folder/log"
    say "$name: FAILED"
  fi
  printf '<testsuite><testcase name="%s" status="%s">%s</testcase></testsuite>\n' \
    "$name" "$verdict" "$failure" >"$folder/ctest.xml"
  [ "$verdict" = run ]
}

configure() {
  [ -f "build/$1/build.ninja" ] || cmake --preset "$1"
}
build() {
  local preset=$1
  shift
  configure "$preset" && cmake --build "build/$preset" ${1:+--target} "$@"
}

# ctest NAME ARGUMENTS...: runs a built folder's tests, results under build/test-results/NAME-tests.
run_tests() {
  local preset=$1 folder="$PWD/$results/$1-tests"
  shift
  mkdir -p "$folder/gtest"
  say "$preset: tests"
  GTEST_OUTPUT="xml:$folder/gtest/" ctest --test-dir "build/$preset" -j "$(nproc)" --output-on-failure \
    --no-tests=error --output-junit "$folder/ctest.xml" "$@" || true
}

build_and_test() {
  check "$1-build" build "$1" && run_tests "$1"
}

# sanitized PRESET CTEST-ARGUMENTS...: builds and runs those tests alone. A test of one binary is named
# as its target; the others run the program.
sanitized() {
  local preset=$1 known tests targets
  shift
  check "$preset-configure" configure "$preset" || return
  known=$(ninja -C "build/$preset" -t targets all | sed -n 's/^\([a-z0-9_]*\): phony$/\1/p')
  tests=$(ctest --test-dir "build/$preset" -N "$@" | sed -n 's/.*Test *#[0-9]*: //p')
  mapfile -t targets < <(grep -Fx "$known" <<<"$tests")
  grep -qvFx "$known" <<<"$tests" && targets+=(artery)
  check "$preset-build" build "$preset" "${targets[@]}" && run_tests "$preset" "$@"
}

# The kernels' bits, the golden suites, a disk's faults and the program's verbs take minutes there and
# run in release in every form.
asan() {
  if [ "$mode" = all ]; then
    sanitized asan
  else
    sanitized asan -LE '^(tensor|golden|exactness)$' \
      -E '^(kvstore_fault|cli_program|codec_library|e2e_reports_alive)_test$'
  fi
}
# The rooms whose threads share data. The faults of a disk are another matter, and slow there; so are
# whole models and the kernels' bits, whose threads the other tests use too.
tsan() {
  local out='^(kvstore_fault_test|artery_bits|exactness_test)$'
  [ "$mode" = all ] && out='^kvstore_fault_test$'
  sanitized tsan -L '^(engine|server|kvstore)$' -E "$out"
}

fuzz() {
  check fuzz-configure configure fuzz || return
  local targets target corpus seeds
  mapfile -t targets < <(ninja -C build/fuzz -t targets all | sed -n 's/^\([a-z0-9_]*_fuzz\): phony$/\1/p' |
    grep -v '^cmake_')
  [ ${#targets[@]} = 0 ] && { say "no fuzz targets"; return; }
  check fuzz-build build fuzz "${targets[@]}" || return
  for target in "${targets[@]}"; do
    corpus="build/fuzz-corpus/$target"
    mkdir -p "$corpus"
    seeds=()
    [ -d "tests/fuzz/seeds/$target" ] && seeds=("tests/fuzz/seeds/$target")
    [ "$target" = gguf_fuzz ] && [ -d ../shared/golden ] && seeds=(../shared/golden/models/bad-files)
    check "$target" "$(find build/fuzz -name "$target" -type f -perm -u+x | head -n 1)" \
      -max_total_time=60 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 "$corpus" ${seeds[@]+"${seeds[@]}"}
  done
}

check tidy scripts/tidy
[ "$mode" = quick ] || check format scripts/fmt --check
build_and_test release
if [ "$mode" != quick ]; then
  asan
  tsan
fi
if [ "$mode" = all ]; then
  check clang-build build clang &&
    check compilers-equal-bits scripts/compare-bits build/release/artery build/clang/artery
  check mutations scripts/mutate
  fuzz
fi

say "summary"
exec scripts/test-summary "$results"/*/
