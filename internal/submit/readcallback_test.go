package submit

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func FuzzReadCallback(f *testing.F) {
	for _, seed := range []string{
		`{"callback_url": "https://a.example/", "callback_events": ["done", "queued"]}`, `{"callback_url": 5}`, `{}`, `{"callback_events": []}`,
		`{"callback_url": "https://user@a.example:99999/#x", "callback_events": [null], "other": 1e999}`, `{"callback_url": "\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	hosts, err := egress.ParseHosts([]string{"*"})
	require.NoError(f, err)
	settings := &config.Settings{CallbackHosts: hosts, CallbackSecrets: []string{"a secret of callbacks"}}
	callbacks := &Callbacks{settings: func() *config.Settings { return settings }}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := pyjson.Parse(data)
		o, _ := v.(*pyjson.Object)
		if err != nil || o == nil {
			return
		}
		rest, err := pyjson.Parse(WithoutCallback([]byte(`{"comfyhub": 1, "other": 2}`), o))
		require.NoError(t, err)
		if o.Has("callback_url") {
			require.False(t, rest.(*pyjson.Object).Object("comfyhub").Has("callback_url"))
		}
		c, err := ReadCallback(o)
		if c == nil || err != nil {
			return
		}
		require.NotEmpty(t, c.Events)
		if callbacks.check(c) == nil {
			require.LessOrEqual(t, len(c.URL), maxCallbackURL)
			u, err := url.Parse(c.URL)
			require.NoError(t, err)
			require.Equal(t, "https", u.Scheme)
		}
	})
}
