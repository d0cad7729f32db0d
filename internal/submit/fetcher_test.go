package submit

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
