package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// links are the buttons of a post that open something.
func links(p platform.Post) (list []platform.Button) {
	for _, row := range p.Buttons {
		for _, b := range row {
			if b.URL != "" {
				list = append(list, b)
			}
		}
	}
	return list
}

// What is said of a picture links to the files that are shown, if the hub gives links.
func TestLinksToOriginals(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	id := r.pictured("5", "5")
	about := func(change func(*request.Record)) []platform.Button {
		rec := request.Record{}
		version, err := r.store.Requests.Load(r.ctx, id, &rec)
		require.NoError(t, err)
		change(&rec)
		_, err = r.store.Requests.Save(r.ctx, id, version, &rec)
		require.NoError(t, err)
		r.tap("5", "5", request.VerbMore, id)
		posts, _ := r.sent()
		require.Len(t, posts, 1)
		return links(posts[0])
	}
	require.Empty(t, about(func(*request.Record) {}), "the hub gives none")
	const link = "https://files.example/hub/files/linked.png?signature=s"
	require.Equal(t, []platform.Button{{Label: "⬇️ Original 1", URL: link}, {Label: "⬇️ Original 2", URL: link}}, about(func(rec *request.Record) {
		rec.Outputs[0].Ref.Filename, rec.Outputs[1].Ref.Filename = "linked.png", "linked2.png"
	}))
	require.Equal(t, []platform.Button{{Label: "⬇️ Original 1", URL: link}}, about(func(rec *request.Record) {
		rec.Outputs[1].State, rec.Outputs[1].Verdict = request.Kept, request.Withheld
	}), "what is not shown has none")
	r.tap("5", "5", request.VerbBack, id)
	_, edits := r.sent()
	require.Len(t, links(edits[0]), 1, "the menu that comes back, too")
	require.Equal(t, []platform.Button{{Label: "⬇️ Original", URL: link}}, about(func(rec *request.Record) { rec.Outputs = rec.Outputs[:1] }))
}

func TestLinksOfTheOperator(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.event("5", "5", platform.Said, "m1", "/help")
	posts, _ := r.sent()
	require.Empty(t, posts[len(posts)-1].Buttons)
	r.with(func(o *Options) { o.HelpURL = "https://example.com/bot" })
	r.event("5", "5", platform.Said, "m2", "/help")
	posts, _ = r.sent()
	require.Equal(t, []platform.Button{{Label: "📖 More about me", URL: "https://example.com/bot"}}, links(posts[len(posts)-1]))

	r.with(func(o *Options) {
		o.Terms = &Terms{Texts: map[string]string{"en": "Be kind, as in (https://example.com/terms?v=1). Not http://[. Again: https://example.com/terms?v=1"}, Version: "1"}
	})
	r.event("5", "5", platform.Said, "m3", "/generate a fox")
	posts, _ = r.sent()
	require.Len(t, posts, 1)
	require.Equal(t, []platform.Button{{Label: "🔗 example.com", URL: "https://example.com/terms?v=1"}}, links(posts[0]))
	require.Len(t, posts[0].Buttons, 2, "the link, and below it the button that accepts")
}
