package caddymodule

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// The hub knows where its operators' site is, and says so if there are operators and no site.
func TestOperatorsAt(t *testing.T) {
	t.Parallel()
	const comfy = "http://:8188 {\nbind 127.0.0.1\ncomfyhub\n}\n"
	for sites, want := range map[string]string{
		comfy: "",
		comfy + "http://:8187 {\nbind 127.0.0.1\ncomfyhub_operators\n}":                                              "http://127.0.0.1:8187",
		comfy + "http://:8187 {\nencode gzip\ncomfyhub_operators\n}":                                                 "http://:8187",
		comfy + "http://:8187 {\nbind 0.0.0.0\ncomfyhub_operators\n}":                                                "http://:8187",
		comfy + "http://ops.example.com {\ncomfyhub_operators\n}":                                                    "http://ops.example.com",
		comfy + "ops.example.com {\nencode gzip\ncomfyhub_operators\n}":                                              "https://ops.example.com",
		comfy + "https://ops.example.com:8443 {\ntls internal\ncomfyhub_operators\n}":                                "https://ops.example.com:8443",
		"http://hub.example.com {\ncomfyhub\n}\nhttp://ops.example.com {\ncomfyhub_operators {\nkeys required\n}\n}": "http://ops.example.com",
	} {
		hubs := provisioned(t, "{\ncomfyhub {\noperators root\n}\n}\n"+sites)
		require.Equal(t, want, operatorsAt(hubs.sites), sites)
		require.Equal(t, want == "", noSiteDoubt(hubs.Operators, hubs.sites) != nil, sites)
		require.Nil(t, noSiteDoubt(nil, hubs.sites))
	}
}

// The directive takes the words of comfyhub, and says of each request where it came in.
func TestOperatorsDirective(t *testing.T) {
	t.Parallel()
	_, err := adapt(t, ":8187 {\ncomfyhub_operators {\nkeys required\nhosts a.example\n}\n}")
	require.NoError(t, err)
	_, err = adapt(t, ":8187 {\ncomfyhub_operators {\nno_such_word 1\n}\n}")
	require.ErrorContains(t, err, "no_such_word")

	for _, operators := range []bool{false, true} {
		seen := new(recorder)
		h := OperatorsHandler{Handler{Tenant: defaultTenant, hub: seen, operators: operators}}
		r := request("10.0.0.1:1", "", "root")
		r.Method = http.MethodPost
		require.NoError(t, h.ServeHTTP(httptest.NewRecorder(), r, refuseNext))
		require.Equal(t, operators, seen.visitor.OperatorsSite)
	}
}
