package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With HTTP/2 the hub's own process, not the system, keeps what a connection has sent and
// nobody has read. It needs little memory for that, too: most are refused.
func TestSilentOverHTTPS(t *testing.T) {
	t.Parallel()
	f := besieged(t)
	quiet := f.quietly(t)
	before := f.settle(t)
	ctx, leave := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	defer senders.Wait()
	defer leave()
	var refused, dropped, others atomic.Int32
	for range silentSenders {
		senders.Go(func() {
			// A transport of its own is a connection of its own.
			transport := &http.Transport{
				ForceAttemptHTTP2: true,
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the authority is its own
			}
			defer transport.CloseIdleConnections()
			body, part := io.Pipe()
			defer body.Close()
			senders.Go(func() { _, _ = io.WriteString(part, `{"prompt": {"1": "`+strings.Repeat("x", 3<<20)) })
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+f.Operators+"/prompt", body)
			if err != nil {
				return
			}
			r.SetBasicAuth(attacker, password)
			resp, err := transport.RoundTrip(r)
			if err != nil {
				if ctx.Err() == nil {
					dropped.Add(1) // it was let in, and silent while the memory was short
				}
				return
			}
			defer resp.Body.Close()
			if resp.ProtoMajor == 2 && resp.StatusCode == http.StatusServiceUnavailable {
				refused.Add(1)
				return
			}
			others.Add(1)
		})
	}
	require.NoError(t, f.Hub.Await(t.Context(), "most senders are refused or dropped", func(context.Context) error {
		if refused, dropped := refused.Load(), dropped.Load(); refused+dropped < silentSenders*9/10 {
			return fmt.Errorf("%d are refused, %d dropped", refused, dropped)
		}
		return nil
	}))
	took, err := f.rounds(t.Context(), smallPreview, 10)
	require.NoError(t, err, "the other user's requests")
	_, peak := f.Hub.Memory()
	require.GreaterOrEqual(t, refused.Load(), int32(silentSenders/2), "the others are dropped")
	require.Zero(t, others.Load(), "answers to what has not ended")
	require.Less(t, peak-before, int64(maxSilentGrowth), "memory of the hub for %d connections with HTTPS", silentSenders)
	t.Logf("SILENT https senders=%d refused=%d dropped=%d p99=%s quiet=%s growth=%dMiB peak_rss=%dMiB", silentSenders, refused.Load(), dropped.Load(),
		p99(took).Round(time.Millisecond), p99(quiet).Round(time.Millisecond), (peak-before)>>20, peak>>20)
}
