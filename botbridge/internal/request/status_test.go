//go:build unix

package request

import (
	"context"
	"errors"
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
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
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
	client := must.Get(hubapi.New(hub.URL, hubapi.Options{}))(t)
	defer client.Close()
	texts := must.Get(locale.Load(""))(t)
	store := must.Get(state.Open(context.WithoutCancel(t.Context()), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{}))(t)
	defer store.Close()
	_, _, err := store.Lead(t.Context(), "one")
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
		told := must.Get(r.Continue(ctx, id))(t)
		<-told
		cancel()
		r.Wait()
	}
	begin := func(p *deadly, name string) string {
		rec := NewRecord(IDOf(name))
		rec.Platform, rec.Chat.ID, rec.User.ID, rec.Language = "silent", "7", "7", "en"
		rec.Phase, rec.Graph = Ready, []byte("{}")
		must.Get(store.Requests.Create(t.Context(), rec.ID, &rec, state.Ask{Who: rec.Tenant()}))(t)
		return rec.ID
	}

	p := &deadly{}
	id := begin(p, "killed once")
	drive(p, id, true)
	require.Len(t, p.sends, 1)
	require.Equal(t, "👍 Got it, you're number 3 in the queue. I'll reply when it's ready.", p.sends[0].Text)
	drive(p, id, false)
	require.Len(t, p.sends, 2)
	require.Contains(t, p.sends[1].Text, "please ignore it")
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
	require.NotContains(t, p.sends[0].Text, "please ignore it")
	require.Contains(t, p.sends[2].Text, "please ignore it")

	p = &deadly{}
	p.limits.KnowsPosts = true
	id = begin(p, "known by its id")
	drive(p, id, true)
	drive(p, id, false)
	require.Len(t, p.sends, 2)
	require.Equal(t, p.sends[0].ID, p.sends[1].ID, "it is the same message")
	require.NotContains(t, p.sends[1].Text, "please ignore it")
}

// What moderation does not let through is shown nowhere, and what it covers is covered
// everywhere.
func TestResultsAreJudged(t *testing.T) {
	store := ledStore(t)
	two := func(r *Record) {
		r.Args.Prompt = "a fox"
		r.Outputs = append(r.Outputs, Output{Ref: comfyui.FileRef{Filename: "b.png", Type: "output"}})
	}
	type row struct {
		verdicts map[string]Verdict
		limits   platform.Limits
		change   func(*Record)
		want     Outcome
		files    map[string]bool // what is shown; true if it is covered
		says     string
	}
	beside.Cases(t, map[string]row{
		"all shown":     {map[string]Verdict{"a.png": Allowed, "b.png": Allowed}, platform.Limits{Album: 10}, two, Done, map[string]bool{"a.png": false, "b.png": false}, ""},
		"one covered":   {map[string]Verdict{"a.png": Allowed, "b.png": Covered}, platform.Limits{Album: 10}, two, Done, map[string]bool{"a.png": false, "b.png": true}, ""},
		"one withheld":  {map[string]Verdict{"a.png": Withheld, "b.png": Allowed}, platform.Limits{Album: 10}, two, Hidden, map[string]bool{"b.png": false}, "1 file isn't shown here: because"},
		"all withheld":  {map[string]Verdict{"a.png": Withheld, "b.png": Withheld}, platform.Limits{Album: 10}, two, Hidden, map[string]bool{}, "2 files aren't shown here: because"},
		"in place":      {map[string]Verdict{"a.png": Covered}, platform.Limits{Album: 10, InPlace: true}, nil, Done, map[string]bool{"a.png": true}, ""},
		"not in place":  {map[string]Verdict{"a.png": Withheld}, platform.Limits{Album: 10, InPlace: true}, nil, Hidden, map[string]bool{}, "1 file isn't shown here"},
		"too large":     {map[string]Verdict{"a.png": Withheld}, platform.Limits{File: 1}, nil, Hidden, map[string]bool{}, "1 file isn't shown here"},
		"sent before":   {nil, platform.Limits{}, func(r *Record) { r.Outputs[0].State = Arrived }, Done, map[string]bool{}, ""},
		"judged before": {nil, platform.Limits{}, func(r *Record) { r.Outputs[0].Verdict = Covered }, Done, map[string]bool{"a.png": true}, ""},
	}, func(t *testing.T, c row) {
		if c.limits.File == 0 {
			c.limits.File = 1 << 20
		}
		c.limits.Photo, c.limits.Text, c.limits.Caption = 1<<20, 4096, 1024
		p := &silent{limits: c.limits}
		p.judge = func(ctx context.Context, r Result) (Verdict, string, error) {
			require.NotEmpty(t, must.Get(r.Read(ctx))(t))
			verdict, known := c.verdicts[r.Name]
			require.True(t, known, "nobody asked for this one")
			return verdict, "because", nil
		}
		require.Equal(t, c.want, settle(t, store, p, c.change))
		files, said := map[string]bool{}, ""
		for _, post := range append(p.sends, p.edits...) {
			said += post.Text + "\n"
			for _, f := range post.Files {
				files[f.Name] = f.Spoiler
			}
		}
		require.Equal(t, c.files, files)
		require.Contains(t, said, c.says)

		// Nor later, as a file.
		r := NewRunner(Options{Store: store, Platform: func(string) platform.Platform { return p }, Judge: p.judge})
		for i := range 2 {
			if c.verdicts[[]string{"a.png", "b.png"}[i]] == Withheld {
				want := &KeptError{N: 1, Reason: "because"}
				require.Equal(t, want, r.SendOne(t.Context(), IDOf(t.Name()), i))
				rec := must.Get(r.Load(t.Context(), IDOf(t.Name())))(t)
				require.Equal(t, want, r.SendTo(t.Context(), rec, []int{i}, platform.Chat{ID: "7"}, platform.Post{}))
			}
		}
	})
}

// A judge that cannot be asked now is asked again, and nothing is shown meanwhile.
func TestJudgeIsAskedAgain(t *testing.T) {
	t.Parallel()
	asked := 0
	j := newJob(NewRunner(Options{Judge: func(context.Context, Result) (Verdict, string, error) {
		asked++
		return Unjudged, "", errors.New("not now")
	}}), Record{}, 0, nil, 0)
	j.rec.Outputs = []Output{{}}
	require.Error(t, j.files.judge(t.Context(), false))
	require.Error(t, j.files.judge(t.Context(), false))
	require.Equal(t, 2, asked)
	require.Equal(t, Unjudged, j.rec.Outputs[0].Verdict)
}

// Files of a group that are shown in a private chat come from the group, each of them,
// and the messages there are no business of the group.
func TestShownInAnotherChat(t *testing.T) {
	t.Parallel()
	store := ledStore(t)
	texts := must.Get(locale.Load(""))(t)
	out := outbox.New(outbox.Options{})
	defer out.Close()
	p := &silent{limits: platform.Limits{File: 1 << 20, Photo: 1 << 20, Album: 10, Text: 4096, Caption: 1024}}
	r := NewRunner(Options{Store: store, Outbox: out, Texts: texts, Platform: func(string) platform.Platform { return p }, Command: func(string) *workflow.Command { return nil }})
	rec := NewRecord(IDOf(t.Name()))
	rec.Platform, rec.Chat, rec.User.ID, rec.Language = "silent", platform.Chat{ID: "-9", Group: true}, "7", "en"
	rec.Phase, rec.Outcome = Over, Done
	for _, message := range []string{"10", "11", "12"} {
		rec.Outputs = append(rec.Outputs, Output{Ref: comfyui.FileRef{Filename: "a.png", Type: "output"}, Media: platform.Document, State: Arrived, Message: message})
	}
	must.Get(store.Requests.Create(t.Context(), rec.ID, &rec, state.Ask{Who: rec.Tenant()}))(t)
	require.NoError(t, r.SendTo(context.WithoutCancel(t.Context()), rec, []int{0, 1, 2}, platform.Chat{ID: "7"}, platform.Post{}))
	require.Len(t, p.sends, 3)
	for i, post := range p.sends {
		require.Equal(t, &platform.Original{Chat: "-9", Message: []string{"10", "11", "12"}[i]}, post.Copy)
	}
	require.Empty(t, must.Get(r.Load(t.Context(), rec.ID))(t).Copies)
}

// What its group wants covered is covered there, in every form, and not where somebody
// looks at it alone.
func TestCover(t *testing.T) {
	t.Parallel()
	p := &silent{limits: platform.Limits{Photo: 1 << 20, File: 1 << 20}}
	require.Equal(t, Done, settle(t, ledStore(t), p, func(r *Record) { r.Cover = true }))
	require.True(t, p.sends[0].Files[0].Spoiler)
	j := newJob(NewRunner(Options{}), Record{Cover: true, Outputs: []Output{{}, {}}}, 0, nil, 0)
	require.True(t, j.files.sheet().Spoiler)
	require.True(t, j.words.previewOf(nil).Spoiler)
	require.True(t, j.files.attachment(Output{}).Spoiler)
	j.files.bare = true
	require.False(t, j.files.attachment(Output{}).Spoiler)
	require.True(t, j.files.attachment(Output{Verdict: Covered}).Spoiler, "moderation covers everywhere")
}
