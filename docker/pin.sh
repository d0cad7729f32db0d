#!/bin/sh
# Writes the digest behind each image that these files name by a tag, or renews it:
#
#   pin.sh FILE...
#
# Images without a tag are left alone: those that a variable names, our own, and the
# stages of a build.
set -eu

for file; do
	# shellcheck disable=SC2013 # names of images have no blanks
	for image in $(sed -n -E 's/^(FROM| *image:) +([a-z0-9./-]+:[A-Za-z0-9._-]+)(@sha256:[0-9a-f]{64})?( .*)?$/\2/p' "$file" | sort -u); do
		digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
		printf '%s' "$digest" | grep -Eqx 'sha256:[0-9a-f]{64}' || { echo "pin.sh: $image has no digest: $digest" >&2 && exit 1; }
		sed -E "s|^(FROM\| *image:) +($image)(@sha256:[0-9a-f]{64})?( .*)?\$|\\1 \\2@$digest\\4|" "$file" >"$file.new"
		mv "$file.new" "$file"
		echo "$file: $image@$digest"
	done
done
