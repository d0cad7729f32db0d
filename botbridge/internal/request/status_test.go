//go:build unix

package request

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// deadly is a platform on which the bridge is killed once it has taken a message.
type deadly struct {
	silent

	kill func()
}

func (d *deadly) Send(ctx context.Context, to platform.Chat, p platform.Post) ([]string, error) {
	ids, err := d.silent.Send(ctx, to, p)
	if d.kill != nil {
		d.kill()
	}
	return ids, err
}

// A bridge that is killed before the id of its status message is stored does not know
// that message any more. It says nothing that could become wrong, and the next one says
// that it alone counts.
func TestStatusOfUnknownFate(t *testing.T) {
	t.Parallel()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/prompt" {
			w.Header().Set("X-ComfyHub-Position", "2")
			_, _ = w.Write([]byte(`{"prompt_id": "x", "number": 1, "node_errors": {}}`))
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer hub.Close()
	client, err := hubapi.New(hub.URL, hubapi.Options{})
	require.NoError(t, err)
	defer client.Close()
	texts, err := locale.Load("")
	require.NoError(t, err)
	store, err := state.Open(context.WithoutCancel(t.Context()), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{})
	require.NoError(t, err)
	defer store.Close()
	_, _, err = store.Lead(t.Context(), "one")
	require.NoError(t, err)

	// drive continues a request until it has been told, or the bridge is killed.
	drive := func(p *deadly, id string, deadlyToo bool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p.kill = nil
		if deadlyToo {
			p.kill = cancel
		}
		out := outbox.New(outbox.Options{})
		defer out.Close()
		r := NewRunner(Options{
			Store: store, Hub: client, Outbox: out, Texts: texts,
			Platform: func(string) platform.Platform { return p }, Command: func(string) *workflow.Command { return nil },
		})
		told, err := r.Continue(ctx, id)
		require.NoError(t, err)
		<-told
		cancel()
		r.Wait()
	}
	begin := func(p *deadly, name string) string {
		rec := NewRecord(IDOf(name))
		rec.Platform, rec.Chat.ID, rec.User.ID, rec.Language = "silent", "7", "7", "en"
		rec.Phase, rec.Graph = Ready, []byte("{}")
		_, err := store.Requests.Create(t.Context(), rec.ID, &rec, state.Ask{Who: rec.Tenant()})
		require.NoError(t, err)
		return rec.ID
	}

	p := &deadly{}
	id := begin(p, "killed once")
	drive(p, id, true)
	require.Len(t, p.sends, 1)
	require.Equal(t, "👍 Got it, you're number 3 in the queue. I'll reply when it's ready.", p.sends[0].Text)
	drive(p, id, false)
	require.Len(t, p.sends, 2)
	require.Contains(t, p.sends[1].Text, "please ignore that message")
	drive(p, id, false)
	require.Len(t, p.sends, 2, "its id is known now")

	p = &deadly{}
	id = begin(p, "killed again and again")
	for range 5 {
		drive(p, id, true)
	}
	require.Len(t, p.sends, tellTries, "no more than so many messages that nobody knows")

	p = &deadly{}
	p.quiet = 2
	id = begin(p, "no answer")
	drive(p, id, false)
	require.Len(t, p.sends, 3)
	require.NotContains(t, p.sends[0].Text, "please ignore that message")
	require.Contains(t, p.sends[2].Text, "please ignore that message")

	p = &deadly{}
	p.limits.KnowsPosts = true
	id = begin(p, "known by its id")
	drive(p, id, true)
	drive(p, id, false)
	require.Len(t, p.sends, 2)
	require.Equal(t, p.sends[0].ID, p.sends[1].ID, "it is the same message")
	require.NotContains(t, p.sends[1].Text, "please ignore that message")
}
