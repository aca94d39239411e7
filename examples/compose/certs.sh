#!/bin/sh
# A private authority and one certificate per process, each in a volume that only that process mounts besides this one.
#
#   certs.sh serve         issue what is missing, then keep running: a container that ends would end `up --exit-code-from job`
#   certs.sh renew NAME…   new certificates; restart these processes afterwards
#
# The authority's key stays in /authority, which no other service mounts.
set -eu
umask 077
OWNER=10001:10001   # the user of the image

issue() {
  out=/tls/$1
  case $1 in
    coordinator | operator) role=$1 ;;
    *) role=party ;;
  esac
  treetap certs issue "$1" --role "$role" --ca /authority --out "$out"
  cp /authority/ca.crt "$out/ca.crt"
  chown -R "$OWNER" "$out"
  chmod 500 "$out"
  chmod 444 "$out/ca.crt" "$out/$1.crt"
  chmod 400 "$out/$1.key"
}

[ -f /authority/ca.key ] || treetap certs init /authority
case ${1:-serve} in
  serve)
    for out in /tls/*; do
      name=${out##*/}
      # issue again also if the volume is older than the authority
      cmp -s /authority/ca.crt "$out/ca.crt" && [ -f "$out/$name.key" ] && continue
      rm -f "$out"/*
      issue "$name"
    done
    touch /tmp/issued
    trap 'exit 0' TERM INT
    while :; do sleep 3600 & wait $!; done
    ;;
  renew)
    shift
    for name; do
      rm -f "/tls/$name/$name.crt" "/tls/$name/$name.key"
      issue "$name"
    done
    ;;
  *)
    echo "certs.sh: say serve, or renew NAME…" >&2
    exit 2
    ;;
esac
