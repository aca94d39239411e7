#!/bin/sh
# Attacks the feature parties' transcripts of a job and leaves audit.html and audit.json in the volume `audit`.
# JOB names the model; it may be omitted where there is only one. Further arguments go to `treetap audit`.
set -eu
out=/var/lib/treetap
treetap audit /etc/treetap/audit.toml ${JOB:+--job "$JOB"} --html $out/audit.html --document $out/audit.json "$@"
