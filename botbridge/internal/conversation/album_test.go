package conversation

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// part is a message of an album.
func part(id int, album, text string) platform.Event {
	return platform.Event{
		ID: strconv.Itoa(id), Platform: "telegram", Kind: platform.Said, User: platform.User{ID: "5", Language: "en"},
		Chat: platform.Chat{ID: "5"}, Message: platform.Message{
			ID: strconv.Itoa(id), Text: text, Album: album, Files: []platform.File{{ID: "photo" + strconv.Itoa(id), Type: "image/jpeg"}},
		},
	}
}

// files returns what the request of an event works with: "photo9 photo10" for the image
// and its mask.
func (r *rig) files(e platform.Event) string {
	r.t.Helper()
	rec, err := r.talk.o.Runner.Load(r.ctx, request.IDOf(e.Key()))
	if err != nil {
		return ""
	}
	var list []string
	for _, in := range rec.Inputs {
		list = append(list, in.File.ID)
	}
	return strings.Join(list, " ")
}

// The second picture of an album is the mask, in whatever order its messages come.
func TestMaskInAnAlbum(t *testing.T) {
	const ask = "/inpaint"
	type row struct {
		album []platform.Event // as it comes
		want  string
		says  string
	}
	beside.Cases(t, map[string]row{
		"two pictures":          {[]platform.Event{part(9, "a", ask), part(10, "a", "")}, "photo9 photo10", ""},
		"the words come last":   {[]platform.Event{part(10, "a", ""), part(9, "a", ask)}, "photo9 photo10", ""},
		"words under the mask":  {[]platform.Event{part(9, "a", ""), part(10, "a", ask)}, "photo9 photo10", ""},
		"more than two":         {[]platform.Event{part(11, "a", ""), part(9, "a", ask), part(12, "a", ""), part(10, "a", "")}, "photo9 photo10", "ignore the rest"},
		"two albums at once":    {[]platform.Event{part(7, "b", ""), part(9, "a", ask), part(8, "b", ""), part(10, "a", "")}, "photo9 photo10", ""},
		"one picture of itself": {[]platform.Event{part(9, "", ask)}, "", "needs two pictures"},
	}, func(t *testing.T, c row) {
		r := newRig(t, limits.Config{})
		r.with(func(o *Options) { o.AlbumWait = time.Minute })
		asked := platform.Event{}
		for _, e := range c.album {
			require.NoError(t, NotePart(t.Context(), r.store, e))
			if e.Message.Text != "" {
				asked = e
			}
		}
		for _, e := range c.album {
			require.NoError(t, r.talk.Handle(r.ctx, e))
		}
		require.Equal(t, c.want, r.files(asked))
		require.Contains(t, strings.Join(r.p.in("5"), "\n"), c.says)
	})
}

// A command whose mask has not come waits for it, also if the bridge is restarted
// meanwhile, but not for ever.
func TestMaskComesLate(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.with(func(o *Options) { o.AlbumWait = time.Minute })
	first, second := part(9, "a", "/inpaint"), part(10, "a", "")
	require.NoError(t, NotePart(t.Context(), r.store, first))
	ctx, stop := context.WithCancel(r.ctx)
	handled := make(chan error, 1)
	go func() { handled <- r.talk.Handle(ctx, first) }()
	stop() // the bridge ends
	require.ErrorIs(t, <-handled, context.Canceled)
	go func() { handled <- r.talk.Handle(r.ctx, first) }()
	require.NoError(t, NotePart(t.Context(), r.store, second))
	require.NoError(t, <-handled)
	require.Equal(t, "photo9 photo10", r.files(first))

	r.with(func(o *Options) { o.AlbumWait = time.Millisecond })
	alone := part(20, "c", "/inpaint")
	require.NoError(t, NotePart(t.Context(), r.store, alone))
	require.NoError(t, r.talk.Handle(r.ctx, alone))
	require.Empty(t, r.files(alone))
	require.Contains(t, strings.Join(r.p.in("5"), "\n"), "needs two pictures")
}

// What is remembered of albums is bounded, and groups are not listened to.
func TestAlbumsAreBounded(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	for n := range 250 {
		require.NoError(t, NotePart(t.Context(), r.store, part(n, fmt.Sprint("a", n/10), "")))
	}
	total := 0
	for n := range 25 {
		parts := must.Get(r.store.Inbox.Parts(t.Context(), "telegram|private|5", fmt.Sprint("a", n)))(t)
		total += len(parts)
	}
	require.Equal(t, 50, total)
	long := part(1, "long", "")
	long.Message.Files[0].Name = strings.Repeat("x", 10_000)
	require.NoError(t, NotePart(t.Context(), r.store, long))
	group := part(2, "long", "")
	group.Chat = platform.Chat{ID: "5", Group: true}
	require.NoError(t, NotePart(t.Context(), r.store, group))
	for _, lane := range []string{"telegram|private|5", "telegram|group|5"} {
		require.Empty(t, must.Get(r.store.Inbox.Parts(t.Context(), lane, "long"))(t))
	}
}

// A command that makes one picture from two takes an album, two outputs of one message, or
// asks for the second.
func TestSeveralPictures(t *testing.T) {
	r := parallelRig(t, limits.Config{Waiting: 100})
	r.with(func(o *Options) { o.AlbumWait = time.Minute })
	blend := must.Get(workflow.NewCommand("blend", workflow.Spec{}, []byte(`{"1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}},
		"2": {"class_type": "LoadImage", "inputs": {"image": "x.png"}}, "3": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}}}`)))(t)
	r.talk.commands.byName["blend"], r.commands["blend"] = blend, blend
	r.talk.commands.list = append(r.talk.commands.list, blend)

	album := []platform.Event{part(90, "a", "/blend as one"), part(91, "a", "")}
	for _, e := range album {
		require.NoError(t, NotePart(t.Context(), r.store, e))
	}
	require.Equal(t, "blend as one photo90 photo91", r.asks(album[0]))

	require.Empty(t, r.asks(r.message("5", "5", "/blend as one", "", "p1")))
	require.Contains(t, strings.Join(r.p.in("5"), "\n"), "Now send picture 2")
	require.Equal(t, "blend as one p1 p2", r.asks(r.message("5", "5", "", "", "p2")))

	id := r.made("generate", "5", "5")
	shown := request.Shown{Request: id, Outputs: []int{0, 1}}
	require.NoError(t, r.store.Put(t.Context(), request.PictureKind, request.MessageName("telegram", "5", "both"), shown, 0))
	require.Equal(t, 2, strings.Count(r.asks(r.message("5", "5", "/blend as one", "both")), " of "))
}
