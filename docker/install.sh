#!/bin/sh
# Makes a GPU machine part of a ComfyHub fleet: finds its GPUs and ComfyUI
# servers, installs the agent, and runs it as a service of systemd.
#
#   sh install.sh --join HUB:7946               a machine that the hub can reach
#   sh install.sh --hub https://hub.example.com a machine behind NAT
#
# It asks for the fleet's key, or for the machine's token, on the terminal. Run it
# again to change a setting or to upgrade: what it is not told stays as it is.
set -eu

usage() {
	cat <<'TEXT'
usage: sh install.sh --join HUB:7946 | --hub https://HUB [options]

  --join HOST:PORT   gossip of a hub; can be repeated
  --hub URL          site of a hub, for a machine that can only dial out; can be repeated
  --key-file FILE    the fleet's key (with --join); otherwise it is asked for
  --token-file FILE  this machine's token (with --hub); otherwise it is asked for
  --comfyui URL      a ComfyUI server, or NAME=URL; can be repeated (default: those found here)
  --name NAME        this agent's name in the fleet (with --join; default: the host's)
  --binary FILE      the program agent, instead of a download
  --version vX.Y.Z   the release to download (default: the latest)
  --from URL         where releases are, a URL or a folder
  --sha256 HEX       the checksum that the download, or the program of --binary, must have
  --release-key FILE the public key that signs releases (default: that of the release this script is from)
  --no-start         install and enable, but do not start
  --dry-run          say what would be done
  --uninstall        remove the service, its settings and its key or token
  --purge            with --uninstall: forget the agent's own key too, by which hubs know it

The key and the token are never arguments: other users could see them in ps.
DESTDIR is a folder to install into instead of /.
TEXT
}

# The key that signs releases; docker/sign.sh writes it into the copy of a release.
release_key=''
root=${DESTDIR:-}
unit=comfyhub-agent.service
from=https://github.com/comfyhub/comfyhub/releases
etc=$root/etc/comfyhub
settings=$etc/agent.env
secret=$etc/agent.secret
program=$root/usr/local/bin/agent
units=$root/etc/systemd/system
state=$root/var/lib/private/comfyhub-agent
dry='' remove='' purge='' start=yes
joins='' hubs='' servers='' name='' secret_file='' binary='' version='' sha=''

say() { printf '%s\n' "$*"; }
fail() {
	printf 'install.sh: %s\n' "$*" >&2
	exit 1
}

# act DESCRIPTION COMMAND... does it, or says that it would.
act() {
	what=$1
	shift
	if [ -n "$dry" ]; then
		say "would $what"
	else
		"$@" || fail "could not $what"
	fi
}

# add LIST ITEM prints the list with commas.
add() { printf '%s' "${1:+$1,}$2"; }

while [ $# -gt 0 ]; do
	case $1 in
	--join | --hub | --key-file | --token-file | --comfyui | --name | --binary | --version | --from | --sha256 | --release-key)
		[ -n "${2:-}" ] || fail "$1 needs a value"
		;;
	esac
	case $1 in
	--join) joins=$(add "$joins" "$2") && shift ;;
	--hub) hubs=$(add "$hubs" "$2") && shift ;;
	--comfyui) servers=$(add "$servers" "$2") && shift ;;
	--key-file | --token-file) secret_file=$2 && shift ;;
	--name) name=$2 && shift ;;
	--binary) binary=$2 && shift ;;
	--version) version=$2 && shift ;;
	--from) from=$2 && shift ;;
	--sha256) sha=$2 && shift ;;
	--release-key)
		release_key=$(cat "$2") || fail "cannot read $2"
		shift
		;;
	--no-start) start='' ;;
	--dry-run) dry=yes ;;
	--uninstall) remove=yes ;;
	--purge) purge=yes ;;
	-h | --help) usage && exit ;;
	--key | --key=* | --token | --token=*) fail "a key or a token is no argument, because ps shows it: use --key-file or --token-file, or let this script ask" ;;
	*) fail "unknown option $1 (--help lists them)" ;;
	esac
	shift
done

[ "$(uname -s)" = Linux ] || fail "this is for Linux; docs/install.md says how to install elsewhere"
command -v systemctl >/dev/null || fail "there is no systemd here: run 'agent run' or 'agent pull' under your own supervisor"
if [ -z "$root$dry" ] && [ "$(id -u)" -ne 0 ]; then
	fail "run this as root, for example with sudo"
fi

if [ -n "$remove" ]; then
	if [ -e "$units/$unit" ]; then
		act "stop the agent, which waits for its runs" systemctl disable --now "$unit"
	fi
	act "remove $units/$unit" rm -rf "$units/$unit" "$units/$unit.d"
	act "remove $settings and $secret" rm -f "$settings" "$secret"
	act "remove $program" rm -f "$program"
	act "reload systemd" systemctl daemon-reload
	if [ -n "$purge" ]; then
		act "remove $state" rm -rf "$state" "$root/var/lib/comfyhub-agent"
	elif [ -e "$state" ]; then
		say "kept $state, by which hubs know this machine (--purge removes it)"
	fi
	exit
fi
[ -z "$purge" ] || fail "--purge goes with --uninstall"

# setting NAME prints a setting of an earlier installation.
setting() {
	[ -r "$settings" ] || return 0
	sed -n "s/^COMFYHUB_AGENT_$1=\"\\(.*\\)\"\$/\\1/p; t
s/^COMFYHUB_AGENT_$1=\\(.*\\)\$/\\1/p" "$settings" | tail -n 1
}

[ -z "$joins" ] || [ -z "$hubs" ] || fail "--join and --hub exclude each other"
if [ -z "$joins$hubs" ]; then
	joins=$(setting JOIN)
	hubs=$(setting HUB)
	[ -n "$joins$hubs" ] || fail "which hub? --join HOST:7946, or --hub https://HOST for a machine behind NAT (--help explains both)"
fi
if [ -n "$hubs" ]; then
	command=pull what=token variable=COMFYHUB_TOKEN
	[ -z "$name" ] || fail "--name goes with --join: the token of --hub has the name in it"
else
	command=run what=key variable=COMFYHUB_GOSSIP_KEY
fi
[ -n "$servers" ] || servers=$(setting COMFYUI)
[ -n "$name$hubs" ] || name=$(setting NAME)
case $joins$hubs$servers$name in
*[!A-Za-z0-9._:/@,=?%~+\[\]-]*) fail "an address or a name has characters that do not belong there" ;;
esac

# fetch URL FILE downloads, or copies from a folder.
fetch() {
	case $1 in
	https://* | http://*)
		if command -v curl >/dev/null; then
			curl -fsSL --retry 3 --connect-timeout 20 -o "$2" "$1"
		elif command -v wget >/dev/null; then
			wget -q -T 20 -O "$2" "$1"
		else
			fail "there is neither curl nor wget here: download the archive elsewhere and use --binary"
		fi
		;;
	*) cp "$1" "$2" ;;
	esac
}

# answers URL says whether a ComfyUI server is there, and no hub in front of some.
answers() {
	if command -v curl >/dev/null; then
		answer=$(curl -s -i -m 3 "$1/system_stats" 2>/dev/null)
	else
		answer=$(wget -q -S -T 3 -t 1 -O - "$1/system_stats" 2>&1)
	fi || return 1
	if printf '%s' "$answer" | grep -qi '^ *X-ComfyHub:'; then return 1; fi
	printf '%s' "$answer" | grep -q '"devices"' && printf '%s' "$answer" | grep -q '"python_version"'
}

# processes prints HOST:PORT and the group of each process that looks like a ComfyUI.
processes() {
	grep -la 'main\.py' /proc/[0-9]*/cmdline 2>/dev/null | while read -r file; do
		folder=${file%/cmdline}
		arguments=$({ tr '\0' '\n' <"$file"; } 2>/dev/null) || continue
		printf '%s\n' "$arguments" | grep -q '\(^\|/\)main\.py$' || continue
		port=$(printf '%s\n' "$arguments" | awk '/^--port=/ { print substr($0, 8) } wanted { print; wanted = 0 } /^--port$/ { wanted = 1 }' | tail -n 1)
		host=$(printf '%s\n' "$arguments" | awk '/^--listen=/ { print substr($0, 10) } wanted { if ($0 !~ /^-/) print; wanted = 0 } /^--listen$/ { wanted = 1 }' | tail -n 1)
		case $host in
		[1-9]*.*.*.*) host=${host%%,*} ;;
		*) host=127.0.0.1 ;;
		esac
		case ${port:-8188} in
		*[!0-9]*) continue ;;
		esac
		printf '%s:%s %s\n' "$host" "${port:-8188}" "$(stat -c %g "$folder" 2>/dev/null)"
	done
}

say "GPUs:"
if gpus=$(nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader 2>/dev/null) && [ -n "$gpus" ]; then
	printf '%s\n' "$gpus" | sed 's/^/  /'
else
	say "  none that nvidia-smi knows; ComfyUI may still have one of another make"
fi

say "ComfyUI servers:"
running=$(processes | sort -u)
groups=''
if [ -n "$servers" ]; then
	say "  $servers"
else
	usual=$(i=0 && while [ $i -lt 8 ]; do printf '127.0.0.1:%s\n' $((3188 + i)) $((3130 + i)) && i=$((i + 1)); done
		i=8188 && while [ $i -lt 8200 ]; do echo 127.0.0.1:$i && i=$((i + 1)); done)
	for address in $(printf '%s\n%s\n' "$running" "$usual" | awk 'NF && !seen[$1]++ { print $1 }'); do
		if answers "http://$address"; then
			say "  http://$address"
			servers=$(add "$servers" "http://$address")
		fi
	done
	[ -n "$servers" ] || say "  none yet; the agent looks for them again and again at ports 3130-3137, 3188-3195 and 8188-8199"
fi
# The agent looks at the model folders of these servers, which often only a group can read.
for address in $(printf '%s' "$servers" | tr ',' '\n' | sed 's|.*//||; s|/.*||; s|^localhost:|127.0.0.1:|'); do
	for group in $(printf '%s\n' "$running" | awk -v a="$address" '$1 == a { print $2 }'); do
		[ "$group" -eq 0 ] || groups="$groups $group"
	done
done
groups=$(printf '%s' "$groups" | tr ' ' '\n' | sed '/^$/d' | sort -un | tr '\n' ' ' | sed 's/ *$//')

# ask PROMPT reads a line from the terminal, also if this script comes through a pipe.
ask() {
	# shellcheck disable=SC2217 # only whether it opens
	(: </dev/tty) 2>/dev/null || fail "there is no terminal to ask for the $what on: use --$what-file"
	saved=$(stty -g </dev/tty)
	trap 'stty "$saved" </dev/tty' EXIT
	trap 'exit 130' INT TERM HUP
	stty -echo </dev/tty
	printf '%s: ' "$1" >/dev/tty
	IFS= read -r line </dev/tty || line=''
	stty "$saved" </dev/tty
	trap - EXIT INT TERM HUP
	printf '\n' >/dev/tty
	printf '%s' "$line"
}

umask 077
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

if [ -n "$secret_file" ]; then
	[ -r "$secret_file" ] || fail "cannot read $secret_file"
	cat "$secret_file" >"$work/secret"
elif ! grep -qs "^$variable=" "$secret" "$settings" && [ -z "$dry" ]; then
	case $what in
	key) (ask "The fleet's key (COMFYHUB_GOSSIP_KEY of the hub)") >"$work/secret" || exit 1 ;;
	token) (ask "This machine's token (comfyhub token add NAME)") >"$work/secret" || exit 1 ;;
	esac
fi
if [ -e "$work/secret" ]; then
	case $what in
	key) [ "$(tr -d '[:space:]' <"$work/secret" | wc -c)" -ge 16 ] || fail "the fleet's key has 16 bytes or more" ;;
	token) grep -q '^[^:]\{1,\}:.' "$work/secret" || fail "this is no token: one is NAME:SECRET" ;;
	esac
	# As systemd reads it; a key that is being changed has several lines.
	printf '%s="%s"\n' "$variable" "$(sed 's/[\\"$`]/\\&/g' "$work/secret")" >"$work/agent.secret"
fi

case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) [ -n "$binary" ] || fail "there is no release for $(uname -m): build the agent and use --binary" ;;
esac

# checksum FILE prints its SHA-256.
checksum() { sha256sum "$1" | cut -d ' ' -f 1; }

# verify FILE fails unless the key of releases has signed it, by the signature beside its source.
verify() {
	if [ -z "$release_key" ]; then
		case $from in
		http*) fail "this copy of install.sh knows no key of releases: use the one of a release, or --release-key, or --sha256" ;;
		esac
		return # a folder of one's own
	fi
	command -v ssh-keygen >/dev/null || fail "ssh-keygen, which checks signatures, is not there: install OpenSSH's client, or use --sha256"
	fetch "$from/checksums.txt.sig" "$1.sig" || fail "$from has no signature, checksums.txt.sig"
	printf 'comfyhub %s\n' "$release_key" >"$work/signers"
	ssh-keygen -Y verify -q -f "$work/signers" -I comfyhub -n comfyhub-release -s "$1.sig" <"$1" >/dev/null 2>&1 ||
		fail "the signature of checksums.txt is not by the key of releases: somebody has changed it"
}

# Not the working folder, which is what $0 names if the script comes through a pipe.
case $0 in
*install.sh) here=$(dirname "$0") ;;
*) here='' ;;
esac
if [ -n "$binary" ]; then
	[ -f "$binary" ] || fail "there is no file $binary"
	cp "$binary" "$work/agent"
	[ -z "$sha" ] || [ "$(checksum "$work/agent")" = "$sha" ] || fail "$binary does not have the checksum $sha"
	for folder in ${here:+"$here" "$here/systemd"} "$(dirname "$binary")" "$(dirname "$binary")/systemd"; do
		if [ -f "$folder/$unit" ]; then
			cp "$folder/$unit" "$work/$unit"
			break
		fi
	done
	[ -f "$work/$unit" ] || fail "$unit is neither beside this script nor beside $binary"
elif [ -n "$dry" ]; then
	say "would download and check the agent for linux/$arch"
else
	archive=comfyhub-agent_linux_$arch.tar.gz
	case $from in
	http*) if [ -n "$version" ]; then from=$from/download/$version; else from=$from/latest/download; fi ;;
	esac
	case $from in
	http://*) [ -n "$sha" ] || fail "$from is without TLS: say with --sha256 what must come" ;;
	esac
	say "downloading $from/$archive"
	fetch "$from/$archive" "$work/$archive" || fail "could not download $from/$archive"
	if [ -z "$sha" ]; then
		fetch "$from/checksums.txt" "$work/checksums.txt" || fail "could not download $from/checksums.txt"
		verify "$work/checksums.txt"
		sha=$(awk -v f="$archive" '$2 == f || $2 == "*" f { print $1 }' "$work/checksums.txt")
		[ -n "$sha" ] || fail "checksums.txt does not have $archive"
	fi
	[ "$(checksum "$work/$archive")" = "$sha" ] || fail "$archive does not have the checksum $sha: it is damaged, or somebody has changed it"
	tar -xzf "$work/$archive" -C "$work" || fail "cannot unpack $archive"
	[ -f "$work/$unit" ] || cp "$work/systemd/$unit" "$work/$unit" || fail "$archive has no $unit"
fi
if [ -z "$dry" ]; then
	chmod 755 "$work/agent"
	"$work/agent" --version || fail "the agent does not run here; does this machine execute programs in ${TMPDIR:-/tmp}?"
fi

# put FILE MODE TARGET replaces the target whole, or not at all.
put() {
	[ -d "$(dirname "$3")" ] || (umask 022 && mkdir -p "$(dirname "$3")") || return 1
	cp "$1" "$3.new" && chmod "$2" "$3.new" && mv -f "$3.new" "$3"
}

{
	say "# Settings of the ComfyHub agent, written by install.sh; 'agent $command --help' lists all. A"
	say "# variable that install.sh does not know stays as it is."
	[ -z "$joins" ] || say "COMFYHUB_AGENT_JOIN=\"$joins\""
	[ -z "$hubs" ] || say "COMFYHUB_AGENT_HUB=\"$hubs\""
	[ -z "$servers" ] || say "COMFYHUB_AGENT_COMFYUI=\"$servers\""
	[ -z "$name" ] || say "COMFYHUB_AGENT_NAME=\"$name\""
	[ ! -r "$settings" ] || grep -v -e '^#' -e '^COMFYHUB_AGENT_\(JOIN\|HUB\|COMFYUI\|NAME\)=' -e '^$' "$settings" || true
} >"$work/agent.env"
{
	say "# Written by install.sh."
	say "[Service]"
	say "EnvironmentFile=-/etc/comfyhub/agent.secret"
	say "ExecStart="
	say "ExecStart=/usr/local/bin/agent $command"
	[ -z "$groups" ] || say "# Of the ComfyUI servers, so that the agent sees new models. It can write nothing there."
	[ -z "$groups" ] || say "SupplementaryGroups=$groups"
} >"$work/install.conf"

act "write $program" put "$work/agent" 755 "$program"
act "write $settings" put "$work/agent.env" 600 "$settings"
if [ -e "$work/agent.secret" ] || [ -n "$dry" ]; then
	act "write $secret" put "$work/agent.secret" 600 "$secret"
fi
act "write $units/$unit" put "$work/$unit" 644 "$units/$unit"
act "write $units/$unit.d/install.conf" put "$work/install.conf" 644 "$units/$unit.d/install.conf"
act "reload systemd" systemctl daemon-reload
act "enable the service" systemctl enable "$unit"
if [ -n "$start" ]; then
	act "start the service (an agent that runs waits for its runs first)" systemctl restart "$unit"
	if [ -z "$dry" ]; then
		sleep 3
		systemctl is-active --quiet "$unit" || fail "the agent does not run: journalctl -u $unit -n 50 says why"
	fi
fi
[ "$command" = pull ] || say "The hub must reach this machine at ports 7946 (TCP and UDP) and 7947 (TCP)."
say "Its log: journalctl -u $unit -f"
