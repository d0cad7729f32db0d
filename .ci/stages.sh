# shellcheck shell=bash
# What .ci/run and .ci/nightly share: stages that are timed, and the programs that they
# need.

stages=()
started=$SECONDS
FLAKY_LOG=$(mktemp)
export FLAKY_LOG
trap 'rm -f "$FLAKY_LOG"' EXIT
if command -v go >/dev/null; then
	GOFLAGS="-trimpath $(go env GOFLAGS)" # as in the Makefile: a clone elsewhere shares the build cache
	export GOFLAGS
fi

# stage NAME COMMAND... runs one stage.
stage() {
	local name=$1 begin=$SECONDS
	shift
	printf '\n=== %s\n' "$name"
	"$@"
	stages+=("$(printf '%-12s %4d s' "$name" $((SECONDS - begin)))")
	printf -- '--- %s\n' "${stages[-1]}"
}

# need PROGRAM PACKAGE... installs packages unless the program is there.
need() {
	local program=$1
	shift
	if command -v "$program" >/dev/null; then return; fi
	if [ -z "${refreshed:-}" ]; then
		.ci/again apt-get update -qq
		refreshed=yes
	fi
	DEBIAN_FRONTEND=noninteractive .ci/again apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null
}

tools() {
	if ! command -v go >/dev/null; then
		echo "Go is missing; go.mod says which version" >&2
		return 1
	fi
	need git git
	need make make
	need gcc gcc libc6-dev # the race detector needs cgo
	need redis-server redis-server
	need_prometheus
	need systemd-analyze systemd # checks the units
	need shellcheck shellcheck
	need nginx nginx-light # the proxy of the docs
	need node nodejs npm
	need npm npm
	need python3 python3 python3-venv
	if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
		need no-such-program python3-venv
	fi
	newer_node
	go version
	# The modules, before anything needs them.
	.ci/again go list -deps -test work >/dev/null
	redis-server --version
	echo "node $(node --version), $(python3 --version)"
}

# need_prometheus installs Prometheus with promtool, without the service that the package
# would start.
need_prometheus() {
	if command -v promtool >/dev/null; then return; fi
	local policy=/usr/sbin/policy-rc.d
	if [ -e "$policy" ]; then
		need promtool prometheus
		return
	fi
	printf '#!/bin/sh\nexit 101\n' >"$policy" # no package starts a service
	chmod +x "$policy"
	need promtool prometheus || { rm -f "$policy"; return 1; }
	rm -f "$policy"
}

# newer_node puts a Node 20 first on the PATH where the system's is older.
newer_node() {
	if node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)'; then return; fi
	local folder=${XDG_CACHE_HOME:-$HOME/.cache}/comfyhub-ci
	.ci/again npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "node-linux-$(node -p process.arch)@20"
	PATH="$folder/node_modules/node-linux-$(node -p process.arch)/bin:$PATH"
}

# race runs tests with the race detector, and -short, which leaves out long computations
# that nothing shares. Those of packages whose parts work side by side, and some whole
# fleets, which also do all that package queue does; or those that are named. Not e2e: it
# runs programs that were built without the detector. The Caddy module has the nightly run:
# compiling Caddy once more, with the detector, takes longer than all its tests.
race() {
	if [ $# -eq 0 ]; then
		set -- ./agent/... ./system/... ./internal/{agent,comfyui,dispatch,files,fleet,gossip,peers,redis,run,stream,tunnel}/...
	fi
	CGO_ENABLED=1 GOGC=400 .ci/memory .ci/test -race -short -timeout 40m "$@"
}

# demo makes a picture with the real programs.
demo() {
	DEMO_ONCE=1 make demo
	test -s demo-output/ComfyUI_00001_.png
}

# sim_and_clients runs the browser and, beside it, the conformance suite and the simulated
# fleets. The first two wait most of their time; a simulated clock does not care how slowly
# it goes. A web UI's clients see several servers: the column where most can differ.
sim_and_clients() {
	local logs conformance sim failed=0
	logs=$(mktemp -d)
	nice make sim SEEDS=100 GOTEST=.ci/test >"$logs/sim" 2>&1 &
	sim=$!
	node .ci/conformance.mjs --columns 'hub 0.33.0 x3,a1111 hub' >"$logs/conformance" 2>&1 &
	conformance=$!
	.ci/browser gate || failed=$?
	wait "$conformance" || failed=$?
	wait "$sim" || failed=$?
	cat "$logs/conformance" "$logs/sim"
	rm -rf "$logs"
	return "$failed"
}

# passed says how long each stage took. One test that failed and passed when it was
# repeated alone is reported; two are too many.
passed() {
	printf '\n=== passed in %d s\n' $((SECONDS - started))
	printf '%s\n' "${stages[@]}"
	if [ -s "$FLAKY_LOG" ]; then
		sort -u "$FLAKY_LOG"
		if [ "$(sort -u "$FLAKY_LOG" | wc -l)" -gt 1 ]; then
			echo "more than one flaky test" >&2
			return 1
		fi
	fi
}
