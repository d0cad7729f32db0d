package world_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// Four pictures come as one with numbers, whose buttons work after a restart.
func TestFourPictures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = strings.NewReplacer("{workflow: generate.json,", "{workflow: generate.json, several: grid,",
				"edit: {workflow: edit.json,", "edit: {workflow: edit.json, varies: true,").Replace(botYAML)
		})
		ada := r.Fake.Person(40, "en")
		asked, _ := ada.Say("/generate a red fox -n 4 --ar 2:1 --steps 2")
		sheet := r.pictures(ada, asked, 1)[0]
		require.Contains(t, sheet.Text, "a red fox")
		require.Greater(t, sheet.File.Width, 1200, "two beside each other")
		r.wait(ada, "the status message goes", func(list []fakebot.Message) bool {
			return len(filter(list, answering(asked, func(m fakebot.Message) bool { return m.Kind == "text" }))) == 0
		})
		r.Bridge.Kill()
		r.Bridge.Start(t)
		ada.Press(sheet.ID, button(t, sheet, "U2"))
		large := r.pictures(ada, asked, 2)[1]
		require.Equal(t, 2*large.File.Height, large.File.Width+large.File.Width%2, "one picture by itself")
		ada.Press(sheet.ID, button(t, sheet, "V3"))
		other := r.pictures(ada, asked, 3)[2]
		require.Contains(t, other.Text, "a red fox", "the same words")
		require.Contains(t, r.answered(r.Fake.Person(41, "en").Press(sheet.ID, button(t, sheet, "V1"))), "no longer works", "it is of another chat")
	})
}
