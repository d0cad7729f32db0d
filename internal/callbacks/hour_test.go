package callbacks

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// call is a request that a receiver got.
type call struct {
	id, event, prompt, at string
	accepted              bool
}

// A receiver fails for an hour. Then it gets each event once, those of a job in order, and
// each is signed when it is sent.
func TestReceiverIsAwayForAnHour(t *testing.T) {
	t.Parallel()
	// The network of a test has the real clock: the receiver must not judge times.
	var up atomic.Bool
	var mu sync.Mutex
	var calls []call
	hook := must.Get(standardwebhooks.NewWebhook(SecretOf(newer, "ann")))(t)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || hook.VerifyIgnoringTimestamp(body, r.Header) != nil {
			t.Error("the signature is wrong")
		}
		var m message
		if json.Unmarshal(body, &m) != nil {
			t.Error("no JSON")
		}
		c := call{r.Header.Get("webhook-id"), m.Type, m.Data.ID, r.Header.Get("webhook-timestamp"), up.Load()}
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, c)
		if !c.accepted {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	u := must.Get(url.Parse(server.URL))(t)
	hosts := must.Get(egress.ParseHosts([]string{u.Host}))(t)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())

	var began, recovered time.Time
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		q := must.Get(queue.New(redistest.Embedded(t), queue.Options{Logger: log}))(t)
		s := New(Options{
			Queue: q, Settings: func() Settings { return Settings{hosts, []string{newer}} }, Log: func() *slog.Logger { return log },
			Egress: func() egress.Options { return egress.Options{Roots: roots} }, Shown: func(reason string) string { return reason },
		})
		ctx, stop := context.WithCancel(t.Context())
		var sending sync.WaitGroup
		sending.Go(func() { s.Run(ctx) })
		defer sending.Wait()
		defer stop()

		began = time.Now()
		for n := range 3 {
			id := fmt.Sprint("job", n)
			submission := queue.Submission{
				Key: id, ID: id, Class: "class", BodyHash: id,
				Callback: &queue.Callback{URL: server.URL + "/" + id, Events: []string{queue.EventQueued, queue.EventStarted, queue.EventDone}},
			}
			submission.Tenant, submission.Body.Prompt = "ann", []byte(`{}`)
			must.Get(q.Enqueue(ctx, submission))(t)
			j := must.Get(q.Claim(ctx, queue.ClaimRequest{Key: id, Tenant: "ann", Instance: "gpu", Hub: "hub/1", Upstream: id, SID: "sid"}))(t)
			require.NoError(t, q.Started(ctx, j.Run))
			require.NoError(t, q.Finish(ctx, j.Run, queue.Outcome{State: "done", Entry: []byte(`{}`)}))
		}
		time.Sleep(time.Hour)
		waiting := must.Get(q.WaitingCallbacks(ctx, "ann", 9))(t)
		require.Len(t, waiting, 3)
		for _, w := range waiting {
			require.Equal(t, "answered with status 500", w.Error)
		}
		recovered = time.Now()
		up.Store(true)
		time.Sleep(2 * mostPause) // no pause is longer, with its jitter
		waiting = must.Get(q.WaitingCallbacks(ctx, "ann", 9))(t)
		require.Empty(t, waiting)
		require.Empty(t, must.Get(q.DeadCallbacks(ctx, "ann", 9))(t))
	})

	mu.Lock()
	defer mu.Unlock()
	accepted, failed, ids := map[string][]string{}, 0, map[string]bool{}
	for _, c := range calls {
		var seconds int64
		must.Get(fmt.Sscan(c.at, &seconds))(t)
		if !c.accepted {
			failed++
			require.Equal(t, "job.queued", c.event, "no event overtakes the one before")
			require.Less(t, seconds, recovered.Unix()+1)
			continue
		}
		require.GreaterOrEqual(t, seconds, recovered.Unix(), "the time is that of this attempt")
		require.False(t, ids[c.id], "each comes once")
		ids[c.id] = true
		accepted[c.prompt] = append(accepted[c.prompt], c.event)
	}
	require.Len(t, accepted, 3)
	for prompt, events := range accepted {
		require.Equal(t, []string{"job.queued", "job.started", "job.done"}, events, prompt)
	}
	require.GreaterOrEqual(t, failed, 3*6, "it was tried all the time")
	require.Less(t, failed, 3*20, "and less and less often")
	require.Equal(t, time.Hour, recovered.Sub(began))
}

// Where all public hosts may be called, an event for a private address is not sent, however
// the address is written.
func TestPrivateReceivers(t *testing.T) {
	t.Parallel()
	hosts := must.Get(egress.ParseHosts([]string{"*"}))(t)
	client := egress.NewClient(hosts, egress.Options{})
	for host, why := range map[string]string{
		"127.0.0.1": "an address", "10.1.2.3": "an address", "169.254.169.254": "an address", "[::1]": "an address", "[fd00:ec2::254]": "an address",
		"[::ffff:10.1.2.3]": "an address", "[::ffff:a9fe:a9fe]": "an address", "[64:ff9b::a9fe:a9fe]": "an address", "[64:ff9b:1::7f00:1]": "an address",
		"2852039166": "no valid host", "0xa9fea9fe": "no valid host", "0251.0376.0251.0376": "no valid host", "0xa9.0xfe.0xa9.0xfe": "no valid host", "127.1": "no valid host",
	} {
		_, err := post(t.Context(), client, Settings{hosts, []string{newer}}, event("ann", "id", "https://"+host+"/"))
		require.Contains(t, reasonOf(0, err), why, host)
	}
}
