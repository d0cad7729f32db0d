#!/bin/sh
# Builds what a release has into a folder (dist): an archive of each program for each system,
# a bill of materials of each (CycloneDX), and checksums.txt.
#
#   sh docker/release.sh [FOLDER]
#
# SYSTEMS="linux/amd64" and PROGRAMS="agent" make fewer. install.sh --from FOLDER installs
# from there.
set -eu
cd "$(dirname "$0")/.."
dist=${1:-dist}
systems=${SYSTEMS:-linux/amd64 linux/arm64 windows/amd64 darwin/arm64}
programs=${PROGRAMS:-hub agent botbridge}
mkdir -p "$dist"
dist=$(cd "$dist" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CGO_ENABLED=0
go build -o "$work/sbom" ./docker/sbom

for system in $systems; do
	os=${system%/*} arch=${system#*/}
	for program in $programs; do
		case $program in
		hub) package=./caddymodule/caddy file=caddy archive=comfyhub ;;
		*) package=./$program file=$program archive=comfyhub-$program ;;
		esac
		[ "$os" != windows ] || file=$file.exe
		name=${archive}_${os}_$arch
		GOOS=$os GOARCH=$arch go build -trimpath -ldflags '-s -w' -tags nobadger,nomysql,nopgx -o "$work/$file" "$package"
		"$work/sbom" "$work/$file" >"$dist/$name.cdx.json"
		rm -rf "$work/archive"
		mkdir -p "$work/archive"
		mv "$work/$file" "$work/archive"
		if [ "$os" = linux ]; then # install.sh takes the unit from here
			mkdir "$work/archive/systemd"
			cp "docker/systemd/$archive.service" "$work/archive/systemd"
		fi
		tar -C "$work/archive" -czf "$dist/$name.tar.gz" .
		echo "$name"
	done
done
cd "$dist" && sha256sum -- *.tar.gz *.cdx.json >checksums.txt
