package dispatch

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// otherHub is a roster of one instance that another hub has, and of one object_info.
type otherHub struct {
	info *catalog.Info
	hash string
	gone atomic.Bool
	kept chan string
}

const emptyImage = `{"EmptyImage": {"input": {"required": {"width": ["INT", {"default": 512}]}}, "output": ["IMAGE"], "output_node": false}}`

func newOtherHub(t *testing.T, body string) *otherHub {
	t.Helper()
	info := must(catalog.Parse([]byte(body)))
	return &otherHub{info: info, hash: comfyui.HashObjectInfo([]byte(body)), kept: make(chan string, 100)}
}

func (o *otherHub) with(_ *dispatching, c *Config) { c.Roster = o }

// Keep implements Roster.
func (o *otherHub) Keep(_ string, _ comfyui.Version, hash string, _ []byte) { o.kept <- hash }

// Recall implements Roster.
func (o *otherHub) Recall(_ context.Context, hash string) *catalog.Info {
	if hash == o.hash {
		return o.info
	}
	return nil
}

// Recalled implements Roster.
func (o *otherHub) Recalled(_ string, _ comfyui.Version, hash string) { o.kept <- hash }

// Elsewhere implements Roster.
func (o *otherHub) Elsewhere() map[string]*catalog.Info {
	if o.gone.Load() {
		return nil
	}
	return map[string]*catalog.Info{"far": o.info}
}

// A hub that sees no instance does not fail jobs that another hub's instance could run.
func TestJobsWaitForInstancesOfOtherHubs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOtherHub(t, emptyImage)
		b := newDispatching(t, 0, o.with, func(b *dispatching, _ *Config) { b.settings.UnrunnableTimeout = 50 * time.Millisecond })
		key := b.submit(picture)
		eventually(t, func() bool { return time.Since(time.UnixMilli(b.Job(key).CreatedAt)) > time.Second }, deadline, 50*time.Millisecond)
		b.Dispatcher.Close() // its loop would look too
		b.Dispatcher = New(b.config)
		for range 3 {
			b.Waiting.expire(t.Context())
			require.Equal(t, job.Queued, b.Job(key).State)
		}
		require.Equal(t, "waiting for an instance of another hub to become idle", b.Waiting.Explain(catalog.Requirements{Classes: []string{"EmptyImage"}}, "anybody"))
		require.Equal(t, "no instance is connected", b.Waiting.Explain(catalog.Requirements{Classes: []string{"Other"}}, "anybody"))
		o.gone.Store(true)
		b.Start()
		require.Contains(t, b.failure(key), "No instance could run this prompt")
	})
}

// A job that this hub's only instance refuses is left to another hub's instance, a limited number
// of times.
func TestRefusedJobsAreLeftToOtherHubs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOtherHub(t, emptyImage)
		b := newDispatching(t, 1, o.with)
		b.instances[0].on("POST /prompt", refuse)
		key := b.submit(picture)
		require.Contains(t, b.lost(key), "the instance refused it")
		require.NotEqual(t, job.Failed, b.Job(key).State)
		b.record(key, "excuses", freeExcuses)
		require.Contains(t, b.failure(key), "Custom validation failed for node")
	})
}

// An instance whose agent says that it can still run what was stored gets jobs before it has
// answered itself.
func TestCatalogIsRecalled(t *testing.T) {
	s := newScripted(t)
	body, _, err := func() ([]byte, string, error) {
		client := must(comfyui.NewClient(s.web.URL, comfyui.Options{Dial: loopback.Dial}))
		return client.ObjectInfo(t.Context(), nil)
	}()
	require.NoError(t, err)
	o := newOtherHub(t, string(body))
	type row struct {
		reported string
		waits    bool
	}
	inBubbles(t, map[string]row{
		"it is the same": {o.hash, false},
		"it is another":  {"another", true},
		"nobody says so": {"", true},
	}, func(t *testing.T, tt row) {
		o := newOtherHub(t, string(body))
		b := newDispatching(t, 0, o.with)
		a := hire(b, newScripted(t))
		a.classes = tt.reported
		asked := make(chan struct{}, 1)
		a.i.on("GET /object_info", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			select {
			case asked <- struct{}{}:
			default:
			}
			if tt.waits {
				next.ServeHTTP(w, r)
				return
			}
			<-r.Context().Done()
		})
		key := b.submit(picture)
		a.report("")
		b.reaches(key, job.Done)
		require.Equal(t, o.hash, <-o.kept)
		require.Len(t, asked, map[bool]int{false: 0, true: 1}[tt.waits])
	})
}
