#!/usr/bin/env bash
# Builds Artery: build/release/artery. Installs what is missing first (scripts/install-deps).
#   ./build.sh            release build with g++
#   ./build.sh PRESET     another preset of CMakePresets.json: dev clang asan tsan fuzz
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
preset=${1:-release}
case $preset in
  release | dev | clang | asan | tsan | fuzz) ;;
  *)
    sed -n '2,4s/^# \{0,1\}//p' "$0"
    [ "$preset" = --help ] || [ "$preset" = -h ] || exit 2
    exit 0
    ;;
esac

scripts/install-deps build
[ "$preset" = release ] || [ "$preset" = dev ] || scripts/install-deps test

if [ ! -f "build/$preset/build.ninja" ]; then
  echo "== configure ($preset)"
  mkdir -p "build/$preset"
  cmake --preset "$preset" >"build/$preset/configure.log" 2>&1 || {
    cat "build/$preset/configure.log"
    exit 1
  }
fi
echo "== build ($preset)"
cmake --build "build/$preset" --target artery
echo "== ready: build/$preset/artery ($("build/$preset/artery" --version | head -n 1))"
