#!/usr/bin/env bash
# Runs every driver with the kernels under AddressSanitizer and UndefinedBehaviourSanitizer; any finding is a failure.
# The kernels for AVX-512 IFMA run as they are where the processor has it, and everywhere with emulated instructions;
# those that need no special processor run as they are.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
emulated=tests/native/emulated
flags=(-g -O1 -Wall -Wextra -fsanitize=address,undefined -fno-sanitize-recover=all)
compiled() { # compiled NAME FLAGS AND SOURCES...: compiles kernels once for all drivers
  mkdir "$folder/$1"
  (cd "$folder/$1" && "${CC:-gcc}" "${flags[@]}" -c "${@:2}")
}
checked() { # checked NAME DRIVER FLAGS...: links a driver with the kernels NAME and runs it
  "${CC:-gcc}" "${flags[@]}" -o "$folder/driver" "$2" "${@:3}" "$folder/$1"/*.o
  "$folder/driver"
  echo "$2, $1: no finding"
}
here=("$PWD"/treetap/native/*.c)
kernels=()
for source in "${here[@]}"; do [[ $source == */processor.c ]] || kernels+=("$source"); done
compiled this-processor "${here[@]}"
compiled emulated -Wno-psabi -I "$PWD/$emulated" "${kernels[@]}" "$PWD/$emulated/processor.c"
for driver in tests/native/drive_*.c; do
  [[ $driver == */drive_processor.c || $driver == */drive_lattice.c || $driver == */drive_pairs.c ]] && anywhere=1 || anywhere=0
  if ((anywhere)) || grep -qw avx512ifma /proc/cpuinfo; then
    checked this-processor "$driver"
  fi
  ((anywhere)) || checked emulated "$driver" -Wno-psabi -I "$emulated"
done
