#!/usr/bin/env bash
# Builds ./caddy: Caddy with its standard modules and ComfyHub.
#
#   ./xcaddy.sh                                  what releases are made of
#   ./xcaddy.sh --with example.com/some/plugin   with other plugins too (needs xcaddy)
#
# xcaddy resolves the modules anew and can add plugins. A plain build takes the
# versions that go.mod pins; it is what happens where xcaddy is not installed.
set -euo pipefail
cd "$(dirname "$0")"
export CGO_ENABLED=0 GOWORK=off

module=$(go list -m)
caddy=$(go list -m -f '{{.Version}}' github.com/caddyserver/caddy/v2)

[ ! -L caddy ] || rm caddy # make build has a link there

if command -v xcaddy >/dev/null; then
	# GOPRIVATE: xcaddy asks for the module before it replaces it, and a module
	# path that no proxy knows would end the build there.
	GOPRIVATE="$module" xcaddy build "$caddy" --output ./caddy \
		--with "$module/caddymodule" --replace "$module=." "$@"
elif [ $# -gt 0 ]; then
	echo "xcaddy.sh: other plugins need xcaddy on the PATH" >&2
	exit 1
else
	# The databases left out belong to Caddy's certificate authority, which
	# keeps to its default store.
	go build -trimpath -ldflags '-s -w' -tags nobadger,nomysql,nopgx -o ./caddy ./caddymodule/caddy
fi
