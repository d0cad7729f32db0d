#!/bin/sh
# Signs the checksums of a release for install.sh, with OpenSSH, which newcomers have already:
#
#   sign.sh CHECKSUMS SIGNATURE SNAPSHOT
#
# COMFYHUB_SIGNING_KEY is the file of the project's private key (ssh-keygen -t ed25519). A snapshot
# without one is signed with a key that is thrown away, so that each build takes this path. Beside the
# signature come release.pub and an install.sh that accepts this key and no other.
set -eu

checksums=$1 signature=$2 snapshot=$3
folder=$(dirname "$signature")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
key=${COMFYHUB_SIGNING_KEY:-}
if [ -z "$key" ]; then
	[ "$snapshot" = true ] || { echo 'sign.sh: COMFYHUB_SIGNING_KEY must name the key of the project' >&2 && exit 1; }
	key=$work/key
	ssh-keygen -q -t ed25519 -N '' -C snapshot -f "$key"
fi
ssh-keygen -Y sign -q -f "$key" -n comfyhub-release <"$checksums" >"$work/signature"
ssh-keygen -y -f "$key" | cut -d ' ' -f 1,2 >"$folder/release.pub"
sed "s|^release_key=''|release_key='$(cat "$folder/release.pub")'|" "$(dirname "$0")/install.sh" >"$folder/install.sh"
cp "$work/signature" "$signature"
