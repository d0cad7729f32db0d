package conversation

import (
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
