//go:build unix

package request

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// silent is a platform that gives no answer to its first calls.
type silent struct {
	platform.Platform
	limits platform.Limits

	mu      sync.Mutex
	quiet   int
	bars    bool // it takes no files
	sends   []platform.Post
	edits   []platform.Post
	dropped int
	command *workflow.Command
	judge   Judge
	movedTo string        // the new id of chat 7, "" if it has none
	reached []string      // the chats that took something
	meddle  func()        // is called with each call
	read    []image.Point // the sizes of pictures that were sent, if there is a command
}

func (s *silent) Name() string { return "silent" }
func (s *silent) MayShow(context.Context, platform.Chat, platform.Media) error {
	if s.bars {
		return platform.ErrNoMedia
	}
	return nil
}
func (s *silent) Limits() platform.Limits { return s.limits }

func (s *silent) hear() error {
	if s.meddle != nil {
		s.meddle()
	}
	if s.quiet > 0 {
		s.quiet--
		return platform.ErrUncertain
	}
	return nil
}

// in notes what a chat is told, unless it has moved.
func (s *silent) in(to platform.Chat) error {
	if to.ID == "7" && s.movedTo != "" {
		return &platform.MovedError{To: s.movedTo}
	}
	s.reached = append(s.reached, to.ID)
	return nil
}

func (s *silent) Send(ctx context.Context, to platform.Chat, p platform.Post) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.in(to); err != nil {
		return nil, err
	}
	if s.bars && len(p.Files) > 0 {
		return nil, platform.ErrNoMedia
	}
	if s.command != nil {
		for _, f := range p.Files {
			body, err := f.Open(ctx)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", platform.ErrSource, err)
			}
			config, _, err := image.DecodeConfig(body)
			if err != nil {
				return nil, platform.ErrRefused
			}
			s.read = append(s.read, image.Pt(config.Width, config.Height))
		}
	}
	s.sends = append(s.sends, p)
	return []string{"sent"}, s.hear()
}

func (s *silent) Edit(_ context.Context, to platform.Chat, _ string, p platform.Post) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.in(to)
	if err == nil {
		err = s.hear()
	}
	if err == nil {
		s.edits = append(s.edits, p)
	}
	return err
}

func (s *silent) Delete(_ context.Context, to platform.Chat, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.in(to)
	if err == nil {
		err = s.hear()
	}
	if err == nil {
		s.dropped++
	}
	return err
}

// settle drives a request whose run has ended, on a platform that is silent for so
// many calls, and returns what it came to.
func settle(t *testing.T, db *state.Store, p *silent, change func(*Record)) Outcome {
	t.Helper()
	var picture bytes.Buffer
	require.NoError(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 40, 40))))
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(picture.Bytes()) }))
	defer hub.Close()
	client := must.Get(hubapi.New(hub.URL, hubapi.Options{}))(t)
	defer client.Close()
	texts := must.Get(locale.Load(""))(t)
	var r *Runner
	out := outbox.New(outbox.Options{Moved: func(name, from, to string) { _ = r.Moved(context.WithoutCancel(t.Context()), name, from, to) }})
	defer out.Close()
	fates := make(chan Outcome, 1)
	r = NewRunner(Options{
		Store: db, Hub: client, Outbox: out, Texts: texts,
		Platform: func(string) platform.Platform { return p }, Command: func(string) *workflow.Command { return p.command },
		Observe: func(_ string, o Outcome) { fates <- o }, Judge: p.judge,
	})
	rec := NewRecord(IDOf(t.Name()))
	rec.Platform, rec.Chat.ID, rec.User.ID, rec.Status, rec.Language = "silent", "7", "7", "status", "en"
	rec.Phase, rec.Outcome = Ended, Done
	rec.Outputs = []Output{{Ref: comfyui.FileRef{Filename: "a.png", Type: "output"}}}
	if change != nil {
		change(&rec)
	}
	must.Get(db.Requests.Create(t.Context(), rec.ID, &rec, state.Ask{Who: rec.Tenant()}))(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.Get(r.Continue(ctx, rec.ID))(t)
	r.Wait()
	select {
	case fate := <-fates:
		return fate
	default:
		t.Fatal("the request is not over")
		return ""
	}
}

// ledStore opens a state of the test's own, of which this process is the leader.
func ledStore(t *testing.T) *state.Store {
	t.Helper()
	store := must.Get(state.Open(t.Context(), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{}))(t)
	t.Cleanup(func() { _ = store.Close() })
	_, leads, err := store.Lead(t.Context(), "one")
	require.NoError(t, err)
	require.True(t, leads)
	return store
}

// A message that got no answer was not said: it is said until there is one.
func TestSilenceIsNoAnswer(t *testing.T) {
	t.Parallel()
	store := ledStore(t)
	shows := platform.Limits{Photo: 1 << 20, File: 1 << 20}
	t.Run("a picture in doubt is owned up to", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: shows, quiet: 4}
		require.Equal(t, InDoubt, settle(t, store, p, nil), "the metric counts what arrived")
		require.Len(t, p.sends, 1, "the picture may have arrived")
		require.Len(t, p.edits, 1)
		require.Contains(t, p.edits[0].Text, "the connection dropped")
	})
	t.Run("a status message goes", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: shows}
		require.Equal(t, Done, settle(t, store, p, func(r *Record) {
			r.Outputs[0].State, r.Outputs[0].Message, p.quiet = Arrived, "m", 3
		}))
		require.Equal(t, 1, p.dropped)
	})
	t.Run("a failure is told", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: shows, quiet: 3}
		require.Equal(t, Failed, settle(t, store, p, func(r *Record) { r.Outcome, r.Status = Failed, "" }))
		require.Len(t, p.sends, 4)
	})
	t.Run("a picture that cannot be delivered is not done", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: shows}
		require.Equal(t, Undelivered, settle(t, store, p, func(r *Record) { r.Outputs[0].State = Lost }))
	})
	t.Run("a platform that knows posts gets them again", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: shows, quiet: 3}
		p.limits.KnowsPosts = true
		require.Equal(t, Done, settle(t, store, p, func(r *Record) {
			r.Outputs[0].State = Sending // when the bridge was killed
		}))
		require.Len(t, p.sends, 4)
		for _, post := range p.sends {
			require.Equal(t, p.sends[0].ID, post.ID)
		}
		require.NotEmpty(t, p.sends[0].ID)
	})
}

// Somebody else has changed the record at any moment: the request goes on with theirs.
func TestChangedMeanwhile(t *testing.T) {
	store := ledStore(t)
	beside.Cases(t, map[string]int{"while its picture is sent": 1, "while its status goes": 2}, func(t *testing.T, at int) {
		p, calls := &silent{limits: platform.Limits{Photo: 1 << 20, File: 1 << 20}}, 0
		p.meddle = func() {
			if calls++; calls != at {
				return
			}
			var rec Record
			version := must.Get(store.Requests.Load(t.Context(), IDOf(t.Name()), &rec))(t)
			rec.Copies = append(rec.Copies, "theirs")
			must.Get(store.Requests.Save(t.Context(), rec.ID, version, &rec))(t)
		}
		require.Equal(t, Done, settle(t, store, p, nil))
		require.Len(t, p.sends, 1, "the picture is not sent twice")
		var rec Record
		must.Get(store.Requests.Load(t.Context(), IDOf(t.Name()), &rec))(t)
		require.Equal(t, Over, rec.Phase)
		require.Equal(t, "sent", rec.Outputs[0].Message)
		require.Equal(t, []string{"theirs"}, rec.Copies)
	})
}

// A payment is kept if anything is shown for it, and given back otherwise.
func TestChargeIsEarned(t *testing.T) {
	t.Parallel()
	store := ledStore(t)
	keepBack := func(context.Context, Result) (Verdict, string, error) { return Withheld, "no", nil }
	for name, c := range map[string]struct {
		change func(*Record)
		judge  Judge
		quiet  int
		want   state.ChargeState
	}{
		"done":                    {want: state.Settled},
		"in doubt":                {quiet: 1, want: state.Settled},
		"failed":                  {change: func(r *Record) { r.Outcome = Failed }, want: state.Refund},
		"refused":                 {change: func(r *Record) { r.Outcome = Refused }, want: state.Refund},
		"stopped":                 {change: func(r *Record) { r.Outcome = Cancelled }, want: state.Refund},
		"kept back":               {judge: keepBack, want: state.Refund},
		"nothing was made":        {change: func(r *Record) { r.Outputs = nil }, want: state.Refund},
		"nothing could be sent":   {change: func(r *Record) { r.Outputs[0].State = Lost }, want: state.Refund},
		"words are something too": {change: func(r *Record) { r.Outputs, r.Texts = nil, []Text{{Text: "a fox"}} }, want: state.Settled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &silent{limits: platform.Limits{Photo: 1 << 20, File: 1 << 20, Text: 4096, Caption: 1024}, quiet: c.quiet, judge: c.judge}
			id := "charge " + name
			must.Get(store.Payments.Pay(t.Context(), state.Charge{ID: id, Who: "silent:7", User: "7", Platform: "silent", Price: 3, Request: IDOf(id)}, "", Record{}))(t)
			settle(t, store, p, func(r *Record) {
				r.Charge, r.Paid = id, 3
				if c.change != nil {
					c.change(r)
				}
			})
			require.Equal(t, c.want, must.Get(store.Payments.Charge(t.Context(), id))(t).State)
			due := must.Get(store.Payments.Refunds(t.Context(), time.Now()))(t)
			found := false
			for _, d := range due {
				found = found || d.ID == id
			}
			require.Equal(t, c.want == state.Refund, found)
			told := ""
			for _, post := range append(p.sends, p.edits...) {
				told += post.Text
			}
			if c.want == state.Refund {
				require.Contains(t, told, "You're getting your 3 Stars back.")
			} else {
				require.NotContains(t, told, "Stars")
			}
		})
	}
}

// A group gets a new id while something of a request is sent to it, and the platform says so
// only then: the request ends in the new chat, and touches no message there that may have
// the id of one of its own.
func TestGroupMovesMeanwhile(t *testing.T) {
	shows := platform.Limits{Photo: 1 << 20, File: 1 << 20}
	type row struct {
		change func(*Record)
		fate   Outcome
		sends  int
	}
	beside.Cases(t, map[string]row{
		"before its picture":                    {nil, Done, 1},
		"before the word that it failed":        {func(r *Record) { r.Outcome = Failed }, Failed, 1},
		"after its picture":                     {func(r *Record) { r.Outputs[0].State, r.Outputs[0].Message = Arrived, "pic" }, Done, 0},
		"before a text":                         {func(r *Record) { r.Outputs, r.Texts = nil, []Text{{Text: "I see a fox"}} }, Done, 1},
		"when nobody has been told of anything": {func(r *Record) { r.Status, r.Outcome = "", Cancelled }, Cancelled, 1},
	}, func(t *testing.T, c row) {
		store := ledStore(t)
		p := &silent{limits: shows, movedTo: "-1009"}
		require.Equal(t, c.fate, settle(t, store, p, func(r *Record) {
			r.Chat.Group, r.Chat.ID, r.Message = true, "7", "asked"
			if c.change != nil {
				c.change(r)
			}
		}))
		require.Len(t, p.sends, c.sends)
		require.Len(t, p.reached, c.sends, "nothing there is edited or removed")
		for i, post := range p.sends {
			require.Equal(t, "-1009", p.reached[i])
			require.Empty(t, post.ReplyTo)
		}
		rec := must.Get((&Runner{o: Options{Store: store}}).Load(t.Context(), IDOf(t.Name())))(t)
		require.Equal(t, platform.Chat{ID: "-1009", Group: true}, rec.Chat, "after a restart, too")
		if c.fate == Done && len(p.sends) == 1 {
			var id string
			require.NoError(t, store.Get(t.Context(), MessageKind, MessageName("silent", "-1009", "sent"), &id))
			require.Equal(t, rec.ID, id, "people can press its buttons and answer to it")
		}
	})
}
