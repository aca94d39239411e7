#!/usr/bin/env bash
# Runs every driver with the kernels under AddressSanitizer and UndefinedBehaviourSanitizer; any finding is a failure.
# The forms of lanes.h that the processor has run as they are; AVX-512 IFMA runs with emulated instructions everywhere, so
# that its sources are watched on each machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
native=$PWD/treetap/native drivers=$PWD/tests/native
flags=(-g -O1 -Wall -Wextra -Wno-psabi -ffp-contract=off -fsanitize=address,undefined -fno-sanitize-recover=all)
formed=(numbers curve histogram_words histogram_sums)
compiled() { # compiled FOLDER FLAGS AND SOURCES...
  mkdir "$folder/$1"
  (cd "$folder/$1" && "${CC:-gcc}" "${flags[@]}" -c "${@:2}")
}
checked() { # checked DRIVER NAME FLAGS AND OBJECTS...: links a driver and runs it; 77 says that the processor lacks the form
  local status=0
  "${CC:-gcc}" "${flags[@]}" -o "$folder/driver" "$drivers/drive_$1.c" "${@:3}" "$folder"/others/*.o -lm
  "$folder/driver" || status=$?
  ((status == 0)) && echo "$1, $2: no finding" && return
  ((status == 77)) && echo "$1, $2: not on this processor" && return
  exit "$status"
}
others=()
for source in "$native"/*.c; do
  name=$(basename "$source" .c)
  [[ " ${formed[*]} " == *" $name "* ]] || others+=("$source")
done
compiled others "${others[@]}"
for driver in processor lattice pairs rings; do checked "$driver" "every form"; done
for form in IFMA AVX512 AVX2 PLAIN "IFMA -DEMULATED"; do
  read -ra options <<<"-D$form"
  for name in numbers curve; do
    compiled "$name-${form// /}" "${options[@]}" "$native/$name.c"
    checked "$name" "$form" "${options[@]}" "$folder/$name-${form// /}/$name.o"
  done
done
for form in AVX512 AVX2 PLAIN "AVX512 -DEMULATED"; do
  read -ra options <<<"-D$form"
  compiled "histograms-${form// /}" "${options[@]}" "$native/histogram_words.c" "$native/histogram_sums.c"
  checked histograms "$form" "${options[@]}" "$folder/histograms-${form// /}"/*.o
done
