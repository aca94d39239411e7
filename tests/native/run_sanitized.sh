#!/usr/bin/env bash
# Runs every driver with the kernels under AddressSanitizer and UndefinedBehaviourSanitizer; any finding is a failure.
# The kernels for AVX-512 IFMA run as they are where the processor has it, and everywhere with emulated instructions;
# those that need no special processor run as they are.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
emulated=tests/native/emulated
checked() { # checked NAME DRIVER FLAGS AND SOURCES...: compiles and runs a driver
  local name=$1 driver=$2
  shift 2
  "${CC:-gcc}" -g -O1 -Wall -Wextra -fsanitize=address,undefined -fno-sanitize-recover=all -o "$folder/driver" "$driver" "$@"
  "$folder/driver"
  echo "$driver, $name: no finding"
}
kernels=()
for source in treetap/native/*.c; do [[ $source == */processor.c ]] || kernels+=("$source"); done
for driver in tests/native/drive_*.c; do
  [[ $driver == */drive_processor.c || $driver == */drive_lattice.c ]] && anywhere=1 || anywhere=0
  if ((anywhere)) || grep -qw avx512ifma /proc/cpuinfo; then
    checked "this processor" "$driver" treetap/native/*.c
  fi
  ((anywhere)) || checked "emulated" "$driver" -Wno-psabi -I "$emulated" "${kernels[@]}" "$emulated/processor.c"
done
