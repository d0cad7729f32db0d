# User data of a GPU machine on Debian or Ubuntu with awscli and ComfyUI as a service at 127.0.0.1:8188.
# The module sets the variables; by hand, put these lines before it:
#
#   #!/bin/sh
#   HUB=10.0.0.10            the hub's private address
#   RELEASE=https://github.com/comfyhub/comfyhub/releases/download/v0.2.0
#   SECRETS=/comfyhub        the path of the parameter gossip-key, which the machine's role may read
#   PREFIX=gpu               what the names in the fleet begin with
set -eu

# fetch FILE takes a file of the release.
fetch() {
	case $RELEASE in
	s3://*) aws s3 cp --quiet "$RELEASE/$1" "$1" ;;
	*) curl -fsSL --retry 5 -o "$1" "$RELEASE/$1" ;;
	esac
}
cd "$(mktemp -d)"
package=comfyhub-agent_$(dpkg --print-architecture).deb
fetch "$package"
fetch checksums.txt
grep " $package\$" checksums.txt | sha256sum -c -
dpkg -i "$package"

# The hub finds the machine that it ends by the end of its name.
metadata=http://169.254.169.254/latest
token=$(curl -fsS -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $metadata/api/token)
id=$(curl -fsS -H "X-aws-ec2-metadata-token: $token" $metadata/meta-data/instance-id)

umask 077
cat >/etc/comfyhub/agent.env <<END
COMFYHUB_AGENT_JOIN=$HUB:7946
COMFYHUB_AGENT_NAME=$PREFIX-$id
COMFYHUB_AGENT_COMFYUI=http://127.0.0.1:8188
COMFYHUB_GOSSIP_KEY=$(aws ssm get-parameter --with-decryption --name "$SECRETS/gossip-key" --query Parameter.Value --output text)
END
systemctl enable --now comfyhub-agent
