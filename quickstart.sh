#!/usr/bin/env bash
# The first minute: builds Artery, fetches a small real model, starts the server, holds a chat of
# three turns through the HTTP API, kills the server between two of them, and stops. On a plain machine
# it installs what is missing first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [ $# -gt 0 ]; then
  sed -n '2,4s/^# \{0,1\}//p' "$0"
  [ "$1" = --help ] || [ "$1" = -h ] || exit 2
  exit 0
fi

./build.sh
scripts/install-deps model
echo "== fetch the model: SmolLM2-135M-Instruct (Apache-2.0, 98 MB, once)"
model=$(scripts/fetch-model smollm2)
exec python3 scripts/three-turn-chat build/release/artery "$model"
