package conversation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// Data names a request of one's own, the message is another's: nothing happens to it.
func TestForgedUnderAnothersPicture(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		request.VerbDeleteNow, request.VerbDelete, request.VerbMore, request.VerbCancel, verbForget, verbMy, verbBetter, verbNone, verbAccept,
	} {
		t.Run(data, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, limits.Config{})
			mine, theirs := r.pictured("5", "-9"), "7f000000-0000-4000-8000-000000000001"
			require.NoError(t, r.store.Put(r.ctx, request.MessageKind, request.MessageName("telegram", "-9", "hers"), theirs, request.MessageKeep))
			require.NoError(t, r.talk.Handle(r.ctx, platform.Event{
				ID: "press-" + data, Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: request.ButtonData(data, mine),
				User: platform.User{ID: "5"}, Chat: platform.Chat{ID: "-9", Group: true}, Message: platform.Message{ID: "hers"},
			}))
			sent, edits := r.sent()
			require.Empty(t, sent)
			require.Empty(t, edits)
			require.Empty(t, r.p.gone)
			_, err := r.talk.o.Runner.Load(r.ctx, mine)
			require.NoError(t, err)
		})
	}
}

// What the bridge shows somebody with buttons is theirs: another's forged press changes
// none of it.
func TestForgedUnderAnothersMenu(t *testing.T) {
	t.Parallel()
	for name, show := range map[string]func(r *rig, hers string){
		"a menu":     func(r *rig, hers string) { r.tap("6", "-9", request.VerbMore, hers) },
		"styles":     func(r *rig, _ string) { r.answer("6", "-9", "her picture", "/styles") },
		"a question": func(r *rig, _ string) { r.answer("6", "-9", "her picture", "/delete") },
		"her list":   func(r *rig, _ string) { r.event("6", "-9", platform.Said, "m1", "/my") },
		"settings":   func(r *rig, _ string) { r.event("6", "-9", platform.Said, "m1", "/settings") },
		"an offer":   func(r *rig, _ string) { r.event("6", "-9", platform.Said, "m1", "/enhance a wolf") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, limits.Config{Messages: 1000})
			r.styled()
			r.words(Enhance{})
			mine, hers := r.pictured("5", "-9"), r.pictured("6", "-9")
			require.NoError(t, r.store.Put(r.ctx, request.MessageKind, request.MessageName("telegram", "-9", "her picture"), hers, request.MessageKeep))
			show(r, hers)
			posts, _ := r.sent()
			require.Len(t, posts, 1)
			require.NotEmpty(t, posts[0].Buttons)
			press := func(user, data string) (edits []platform.Post) {
				r.last++
				require.NoError(t, r.talk.Handle(r.ctx, platform.Event{
					ID: fmt.Sprint("press", r.last), Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: data,
					User: platform.User{ID: user}, Chat: platform.Chat{ID: "-9", Group: true}, Message: platform.Message{ID: "b1"},
				}))
				_, edits = r.sent()
				return edits
			}
			for _, verb := range []string{request.VerbBack, request.VerbStyles, request.VerbDelete, request.VerbDeleteNow, request.VerbStatus} {
				require.Empty(t, press("5", request.ButtonData(verb, mine)), verb)
			}
			require.Empty(t, press("5", verbSet+":5:lang:ru"))
			require.Empty(t, r.p.gone)
			// Her own presses do.
			rows := slices.DeleteFunc(posts[0].Buttons, func(row []platform.Button) bool {
				return strings.HasPrefix(row[0].Data, verbGroup+":") // for moderators
			})
			row := rows[len(rows)-1]
			require.Len(t, press("6", row[len(row)-1].Data), 1)
		})
	}
}
