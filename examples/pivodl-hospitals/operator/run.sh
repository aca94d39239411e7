#!/bin/sh
# Trains, then predicts the new patients; ends with the status of the first command that fails.
# JOB names the model; without it every start trains another one.
set -eu
name=${JOB:-hospitals-$(date -u +%Y%m%d-%H%M%S)}
here=$(dirname "$0")
{ echo "name = \"$name\""; cat "$here/job.toml"; } > /tmp/job.toml
export TREETAP_OPERATOR="$here/operator.toml"
treetap train /tmp/job.toml
treetap predict "$name" --protocol masked
