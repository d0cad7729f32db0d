//go:build unix

package request

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// People read what broke in their own language; the log has what the node said, without
// what the user wrote.
func TestFaults(t *testing.T) {
	t.Parallel()
	store, texts := ledStore(t), must.Get(locale.Load(""))(t)
	for name, c := range map[string]struct{ language, said, want string }{
		"memory":    {"en", "Allocation on device 0 would exceed allowed memory. (out of memory)\nTIPS: set PYTORCH_CUDA_ALLOC_CONF", "Sorry, that didn't work. The GPU ran out of memory for this size. Try a smaller one."},
		"Russian":   {"ru", "torch.OutOfMemoryError: CUDA out of memory", "К сожалению, не получилось. Видеокарте не хватило памяти на такой размер. Попробуйте поменьше."},
		"a node":    {"en", "No such file: '/srv/comfy/models/a.pt' for a red fox", "Sorry, that didn't work. Something broke while I was making it."},
		"a machine": {"en", "attempt 3 on a1: the instance died", "Sorry, that didn't work. The image servers kept failing."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(map[string]string{"status": "failed", "error": c.said})
			}))
			defer hub.Close()
			client := must.Get(hubapi.New(hub.URL, hubapi.Options{}))(t)
			defer client.Close()
			var log bytes.Buffer
			p := &silent{limits: platform.Limits{Text: 4096}}
			out := outbox.New(outbox.Options{})
			defer out.Close()
			r := NewRunner(Options{
				Store: store, Hub: client, Outbox: out, Texts: texts, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Platform: func(string) platform.Platform { return p }, Command: func(string) *workflow.Command { return nil },
			})
			rec := NewRecord(IDOf(t.Name()))
			rec.Platform, rec.Chat.ID, rec.User.ID, rec.Status, rec.Language, rec.Phase = "silent", "7", "7", "status", c.language, Queued
			rec.Args.Prompt, rec.Asked = "a red fox", rec.Asked.Add(-time.Hour)
			must.Get(store.Requests.Create(t.Context(), rec.ID, &rec, state.Ask{Who: rec.Tenant()}))(t)
			must.Get(r.Continue(t.Context(), rec.ID))(t)
			r.Wait()
			require.NotEmpty(t, p.edits)
			last := p.edits[len(p.edits)-1].Text
			require.True(t, strings.HasPrefix(last, c.want), last)
			require.NotContains(t, last, "/srv")
			first, _, _ := strings.Cut(strings.ReplaceAll(c.said, "a red fox", "…"), "\n")
			require.Contains(t, log.String(), first)
			require.Contains(t, r.LastFault().Said, first)
			require.NotContains(t, log.String(), "a red fox")
		})
	}
}

// Where the bridge may not send files, it says so: before the run if the platform knows, and
// after it by its cause.
func TestNoRightToShow(t *testing.T) {
	t.Parallel()
	store := ledStore(t)
	p := &silent{limits: platform.Limits{Photo: 1 << 20, File: 1 << 20}, bars: true}
	require.Equal(t, Undelivered, settle(t, store, p, nil))
	require.Contains(t, p.edits[len(p.edits)-1].Text, "I'm not allowed to send it here")

	var asked atomic.Int32
	hub := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer hub.Close()
	client := must.Get(hubapi.New(hub.URL, hubapi.Options{}))(t)
	defer client.Close()
	out := outbox.New(outbox.Options{})
	defer out.Close()
	r := NewRunner(Options{
		Store: store, Hub: client, Outbox: out, Texts: must.Get(locale.Load(""))(t),
		Platform: func(string) platform.Platform { return p }, Command: func(string) *workflow.Command { return nil },
	})
	rec := NewRecord(IDOf("before the run"))
	rec.Platform, rec.Chat, rec.User.ID, rec.Language, rec.Phase = "silent", platform.Chat{ID: "-9", Group: true}, "7", "en", Ready
	must.Get(store.Requests.Create(t.Context(), rec.ID, &rec, state.Ask{Who: rec.Tenant()}))(t)
	must.Get(r.Continue(t.Context(), rec.ID))(t)
	r.Wait()
	require.Zero(t, asked.Load(), "no GPU runs for it")
	require.Contains(t, p.sends[len(p.sends)-1].Text, "I couldn't make that: I'm not allowed to send pictures or videos in this group.")
}

// Who is second in line hears why nothing moves, too, and asks less often.
func TestSecondHearsWhy(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	position := 4
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hub/explain" {
			asked.Add(1)
			_, _ = w.Write([]byte(`{"state": "queued", "position": 4, "instances": []}`))
			return
		}
		_, _ = fmt.Fprintf(w, `{"status": "queued", "position": %d, "eta": 9}`, position)
	}))
	defer hub.Close()
	client := must.Get(hubapi.New(hub.URL, hubapi.Options{}))(t)
	defer client.Close()
	j := newJob(NewRunner(Options{Hub: client, Texts: must.Get(locale.Load(""))(t), Patience: time.Minute}), Record{Language: "en", Asked: time.Now().Add(-time.Hour)}, 0, nil, 0)
	look := func() string {
		must.Get(j.look(t.Context()))(t)
		return j.words.statusPost().Text
	}
	for range 3 {
		require.Contains(t, look(), "No image server is online right now.")
	}
	require.EqualValues(t, 1, asked.Load(), "the hub is not asked at every look")
	position = 3
	require.Contains(t, look(), "Number 4 in the queue", "it moves")
	require.EqualValues(t, 1, asked.Load())
}

// The time that is left follows the pace of the steps where the run is slower than earlier
// ones.
func TestTimeLeft(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		p := newProgress(2)
		p.expect(2*time.Second, time.Now())
		require.Zero(t, p.left(), "nothing is done yet")
		feed(t, p, "executing", `{"node": "1"}`)
		time.Sleep(time.Second) // the model is loaded
		feed(t, p, "progress", `{"value": 10, "max": 60}`)
		require.Zero(t, p.left(), "one second would be a lie")
		time.Sleep(10 * time.Second)
		feed(t, p, "progress", `{"value": 20, "max": 60}`)
		require.Equal(t, 40*time.Second, p.left())
		time.Sleep(time.Second)
		require.Equal(t, 39*time.Second, p.left())
		p.expect(time.Minute, time.Now())
		require.Equal(t, time.Minute, p.left(), "the hub knows of more")
		feed(t, p, "progress", `{"value": 0, "max": 60}`)
		p.expect(30*time.Second, time.Now())
		require.Equal(t, 30*time.Second, p.left(), "another loop of the same node")
		p.expect(2*time.Second, time.Now())
		p.most = 85
		require.Equal(t, 2*time.Second, p.left(), "now it is nearly done")
	})
}
