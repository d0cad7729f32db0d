package submit

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// Once the client has hung up, nothing else is wrong with its URL.
func TestFetchingForNobody(t *testing.T) {
	t.Parallel()
	f := NewFetcher(nil, func() *config.Settings { return &config.Settings{MaxUpload: 1} })
	ctx, cancel := context.WithCancel(t.Context())
	turn, err := f.begin(ctx, "ann")
	require.NoError(t, err)
	defer turn.close()
	_, err = turn.fetch("http://127.0.0.1:1/x.png")
	require.ErrorAs(t, err, new(*fetchError))
	cancel()
	_, err = turn.fetch("http://127.0.0.1:1/x.png")
	require.ErrorIs(t, err, context.Canceled)
}

// A tenant whose URLs hang holds up itself; the others go on until all turns are taken.
func TestFetchingTakesTurns(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		f := NewFetcher(nil, nil)
		var ends []func()
		for tenant := range maxFetching / maxFetchingOne {
			for range maxFetchingOne {
				end, err := f.turn(t.Context(), fmt.Sprint(tenant))
				require.NoError(t, err)
				ends = append(ends, end)
			}
			start := time.Now()
			_, err := f.turn(t.Context(), fmt.Sprint(tenant))
			require.ErrorIs(t, err, ErrFetching)
			require.Equal(t, fetchPatience, time.Since(start))
		}
		_, err := f.turn(t.Context(), "last")
		require.ErrorIs(t, err, ErrFetching)
		got := make(chan error, 1)
		go func() {
			end, err := f.turn(t.Context(), "last")
			if err == nil {
				end()
			}
			got <- err
		}()
		synctest.Wait()
		ends[0]()
		require.NoError(t, <-got)
		for _, end := range ends[1:] {
			end()
		}
		require.Empty(t, f.tenants)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if end, err := f.turn(canceled, "gone"); err == nil {
			end()
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

// A server that sends slowly, or nothing at all, costs a prompt at most a minute.
func TestFetchingHasAnEnd(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	hosts, err := egress.ParseHosts([]string{server.Listener.Addr().String()})
	require.NoError(t, err)
	f := NewFetcher(nil, func() *config.Settings { return &config.Settings{InputsFrom: hosts, MaxUpload: 1} })
	f.Options.Roots = x509.NewCertPool()
	f.Options.Roots.AddCert(server.Certificate())
	turn, err := f.begin(t.Context(), "ann")
	require.NoError(t, err)
	defer turn.close()
	deadline, ok := turn.ctx.Deadline()
	require.True(t, ok)
	require.WithinDuration(t, time.Now().Add(fetchTimeout), deadline, fetchTimeout/2)
	var cancel context.CancelFunc
	turn.ctx, cancel = context.WithDeadline(turn.ctx, time.Now())
	defer cancel()
	_, err = turn.fetch(server.URL)
	var told *fetchError
	require.ErrorAs(t, err, &told)
	require.Equal(t, "the URL could not be fetched within 1m0s", told.reason)
}

func FuzzReadCallback(f *testing.F) {
	for _, seed := range []string{
		`{"callback_url": "https://a.example/", "callback_events": ["done", "queued"]}`, `{"callback_url": 5}`, `{}`, `{"callback_events": []}`,
		`{"callback_url": "https://user@a.example:99999/#x", "callback_events": [null], "other": 1e999}`, `{"callback_url": "\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	hosts := must.Get(egress.ParseHosts([]string{"*"}))(f)
	settings := &config.Settings{CallbackHosts: hosts, CallbackSecrets: []string{"a secret of callbacks"}}
	callbacks := &Callbacks{settings: func() *config.Settings { return settings }}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := pyjson.Parse(data)
		o, _ := v.(*pyjson.Object)
		if err != nil || o == nil {
			return
		}
		rest := must.Get(pyjson.Parse(WithoutCallback([]byte(`{"comfyhub": 1, "other": 2}`), o)))(t)
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
			u := must.Get(url.Parse(c.URL))(t)
			require.Equal(t, "https", u.Scheme)
		}
	})
}

// A prompt may ask for a lower band than its tenant's, but not for a higher one.
func TestBandOfAPrompt(t *testing.T) {
	t.Parallel()
	for of, gets := range map[job.Band][3]job.Band{ // if it asks for each of the three
		job.Interactive: {job.Interactive, job.Normal, job.Bulk}, job.Normal: {job.Normal, job.Normal, job.Bulk}, job.Bulk: {job.Bulk, job.Bulk, job.Bulk},
	} {
		s := &Submitter{LimitsOf: func(string) config.TenantLimits { return config.TenantLimits{Band: of} }}
		require.Equal(t, of, s.BandOf(Submission{}), "without a wish")
		for n, asks := range []job.Band{job.Interactive, job.Normal, job.Bulk} {
			require.Equal(t, gets[n], s.BandOf(Submission{Band: asks}), "%q of %q", asks, of)
		}
	}
}
