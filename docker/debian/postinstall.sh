#!/bin/sh
# After a package is installed or upgraded. Nothing starts by itself: the settings come first. What runs
# already goes on with the new program.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	case ${DPKG_MAINTSCRIPT_PACKAGE:-} in
	comfyhub | comfyhub-agent | comfyhub-botbridge) systemctl try-restart "$DPKG_MAINTSCRIPT_PACKAGE.service" || true ;;
	esac
fi
