#!/usr/bin/env bash
# Runs every driver with the kernels under AddressSanitizer and UndefinedBehaviourSanitizer; any finding is a failure.
# A processor without AVX-512 IFMA cannot run the kernels, which is a failure too: nothing would have been tested.
set -euo pipefail
cd "$(dirname "$0")/../.."
grep -qw avx512ifma /proc/cpuinfo || { echo "the processor has no AVX-512 IFMA: no kernel can be tested" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for driver in tests/native/drive_*.c; do
  "${CC:-gcc}" -g -O1 -Wall -Wextra -fsanitize=address,undefined -fno-sanitize-recover=all \
    -o "$folder/driver" "$driver" treetap/native/*.c
  "$folder/driver"
  echo "$driver: no finding"
done
