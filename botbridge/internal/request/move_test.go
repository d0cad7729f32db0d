//go:build unix

package request

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// A group gets a new id while something of a request is sent to it, and the platform says so
// only then: the request ends in the new chat, and touches no message there that may have
// the id of one of its own.
func TestGroupMovesMeanwhile(t *testing.T) {
	t.Parallel()
	shows := platform.Limits{Photo: 1 << 20, File: 1 << 20}
	for name, c := range map[string]struct {
		change func(*Record)
		fate   Outcome
		sends  int
	}{
		"before its picture":                    {nil, Done, 1},
		"before the word that it failed":        {func(r *Record) { r.Outcome = Failed }, Failed, 1},
		"after its picture":                     {func(r *Record) { r.Outputs[0].State, r.Outputs[0].Message = Arrived, "pic" }, Done, 0},
		"before a text":                         {func(r *Record) { r.Outputs, r.Texts = nil, []Text{{Text: "I see a fox"}} }, Done, 1},
		"when nobody has been told of anything": {func(r *Record) { r.Status, r.Outcome = "", Cancelled }, Cancelled, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			rec, err := (&Runner{o: Options{Store: store}}).Load(t.Context(), IDOf(t.Name()))
			require.NoError(t, err)
			require.Equal(t, platform.Chat{ID: "-1009", Group: true}, rec.Chat, "after a restart, too")
			if c.fate == Done && len(p.sends) == 1 {
				var id string
				require.NoError(t, store.Get(t.Context(), MessageKind, MessageName("silent", "-1009", "sent"), &id))
				require.Equal(t, rec.ID, id, "people can press its buttons and answer to it")
			}
		})
	}
}
