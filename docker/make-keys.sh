#!/bin/sh
# Makes the secrets of compose.yaml where there are none yet, readable by the
# user of the programs only. Each lies in a volume of its own: the agent sees the
# key of the gossip, the hub alone its own secret, and the bot bridge the one by
# which it names tenants.
set -eu

run=${1:-/run/comfyhub} # where the volumes are
user=${2:-1000:1000}    # of the images
redis_user=${3:-999:1000} # of Redis's own

# random prints 32 random bytes as text.
random() {
	text=$(head -c 32 /dev/urandom | base64)
	# A short read must not become a short secret.
	[ "${#text}" -eq 44 ] || exit 1
	printf '%s\n' "$text"
}

# keep FILE [OWNER] puts what it reads there, whole or not at all.
keep() {
	umask 077
	cat >"$1.new"
	[ -s "$1.new" ] || exit 1
	chown "${2:-$user}" "$1.new"
	chmod 400 "$1.new"
	mv "$1.new" "$1"
}

if [ -n "${COMFYHUB_GOSSIP_KEY:-}" ]; then
	printf '%s\n' "$COMFYHUB_GOSSIP_KEY" | keep "$run/gossip/key"
elif [ ! -s "$run/gossip/key" ]; then
	key=$(random)
	printf '%s\n' "$key" | keep "$run/gossip/key"
fi
if [ ! -s "$run/hub/secret" ]; then
	secret=$(random)
	printf '%s\n' "$secret" | keep "$run/hub/secret"
fi
if [ -d "$run/tenant" ] && [ ! -s "$run/tenant/secret" ]; then
	secret=$(random)
	printf '%s\n' "$secret" | keep "$run/tenant/secret"
fi
# The passwords of the queue's Redis, as users for Redis and in the URLs of the hub and the bridge, which
# reaches its own keys only. Letters and digits need no escapes in either.
word() {
	text=$(head -c 48 /dev/urandom | base64 | tr -dc 'A-Za-z0-9')
	[ "${#text}" -ge 40 ] || exit 1
	printf '%s' "$text"
}
if [ -d "$run/redis" ] && [ ! -s "$run/redis/redis.conf" ]; then
	hub=$(word) bot=$(word)
	printf 'redis://:%s@redis:6379\n' "$hub" | keep "$run/redis-hub/url"
	printf 'redis://bot:%s@redis:6379\n' "$bot" | keep "$run/redis-bot/url"
	printf 'user default reset on >%s ~* &* +@all\nuser bot reset on >%s ~{botbridge}:* &{botbridge}:* +@all -@admin -@dangerous -function +info\n' \
		"$hub" "$bot" | keep "$run/redis/redis.conf" "$redis_user"
fi
