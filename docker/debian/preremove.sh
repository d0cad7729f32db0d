#!/bin/sh
# Before a package is removed, not before it is upgraded: a unit without its program stops.
set -e
[ "$1" = remove ] || exit 0
[ -d /run/systemd/system ] || exit 0
case ${DPKG_MAINTSCRIPT_PACKAGE:-} in
comfyhub | comfyhub-agent | comfyhub-botbridge) systemctl disable --now "$DPKG_MAINTSCRIPT_PACKAGE.service" || true ;;
esac
