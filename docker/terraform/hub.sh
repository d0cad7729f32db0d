# User data of the hub on Debian 13, after the shell variables that hub.tf sets. It runs once; what it
# writes below /etc/comfyhub is yours to change afterwards, until the machine is replaced.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y awscli ca-certificates curl

# The volume is attached a little after the machine starts. A new one gets a file system.
device=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_$VOLUME
for _ in $(seq 120); do
	[ ! -e "$device" ] || break
	sleep 5
done
blkid "$device" >/dev/null || mkfs.ext4 -q "$device"
# Where systemd has the folder /var/lib/comfyhub of a service without a user of its own.
install -d -m 0700 /var/lib/private /var/lib/private/comfyhub
echo "$device /var/lib/private/comfyhub ext4 defaults,noatime 0 2" >>/etc/fstab
systemctl daemon-reload
mount /var/lib/private/comfyhub

# fetch FILE takes a file of the release.
fetch() {
	case $RELEASE in
	s3://*) aws s3 cp --quiet "$RELEASE/$1" "$1" ;;
	*) curl -fsSL --retry 5 -o "$1" "$RELEASE/$1" ;;
	esac
}
cd "$(mktemp -d)"
package=comfyhub_$(dpkg --print-architecture).deb
fetch "$package"
fetch checksums.txt
grep " $package\$" checksums.txt | sha256sum -c -
dpkg -i "$package"

# secret NAME prints one of the secrets.
secret() { aws ssm get-parameter --with-decryption --name "$SECRETS/$1" --query Parameter.Value --output text; }
umask 077
cat >/etc/comfyhub/hub.env <<END
COMFYHUB_GOSSIP=0.0.0.0:7946
COMFYHUB_GOSSIP_KEY=$(secret gossip-key)
COMFYHUB_SECRET=$(secret secret)
COMFYHUB_STORAGE=$STORAGE
COMFYHUB_REDIS=${REDIS:-embedded}
END
umask 022
cat >/etc/comfyhub/Caddyfile <<END
{
	grace_period 30s
	persist_config off
	metrics
	comfyhub {
		redis {env.COMFYHUB_REDIS}
		data {env.COMFYHUB_DATA}
		storage {env.COMFYHUB_STORAGE}
		secret {env.COMFYHUB_SECRET}
		gossip {
			bind {env.COMFYHUB_GOSSIP}
			key {env.COMFYHUB_GOSSIP_KEY}
		}
		${OPERATORS:+operators $OPERATORS}
		$SCALE
	}
}

(people) {
	@people not path /hub/tunnel # machines come with a token
	basic_auth @people {
		$LOGINS
	}
	encode zstd gzip
}

$HOST {
	import people
	comfyhub
}

# aws ssm start-session --document-name AWS-StartPortForwardingSession --parameters portNumber=8187 ...
http://:8187 {
	bind 127.0.0.1
	import people
	comfyhub_operators
}
END
comfyhub fmt --overwrite /etc/comfyhub/Caddyfile
systemctl enable --now comfyhub
