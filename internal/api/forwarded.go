package api

import (
	"net/http"
	"slices"
	"strings"
)

// forwarding are the headers by which a proxy or a balancer says that it has passed a
// request on, in lower case. Those whose names begin with one of forwardingFamilies do so, too.
var forwarding = [...]string{
	"forwarded", "via", "client-ip", "true-client-ip", "cdn-loop", "fastly-client-ip", "fly-client-ip", "do-connecting-ip",
	"x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-remote-ip", "x-remote-addr", "x-originating-ip", "x-original-host",
	"x-original-url", "x-proxyuser-ip", "x-appengine-user-ip", "x-azure-clientip", "x-azure-socketip", "x-amzn-trace-id",
	"x-host", "x-scheme", "x-url-scheme", "front-end-https", "proxy-connection", "wl-proxy-client-ip", "proxy-client-ip",
}

var forwardingFamilies = [...]string{"x-forwarded", "x-original-forwarded", "x-envoy-", "x-arr-", "cf-"}

// IsForwarded reports whether the headers of a request say that it came through a proxy.
// An empty header says so, too: somebody has put it there.
func IsForwarded(header http.Header) bool {
	for name := range header {
		name = strings.ToLower(name)
		if slices.Contains(forwarding[:], name) ||
			slices.ContainsFunc(forwardingFamilies[:], func(family string) bool { return strings.HasPrefix(name, family) }) {
			return true
		}
	}
	return false
}
