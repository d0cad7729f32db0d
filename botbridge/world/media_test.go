package world_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// mediaCommands make other media than pictures.
const mediaCommands = `
  clip: {workflow: clip.json, inputs: {count: "-"}}
  loop: {workflow: loop.json, inputs: {seed: 1.color, count: "-", size: "-"}, max_seed: 16777215}
  tune: {workflow: tune.json}
  large: {workflow: large.json, inputs: {seed: 1.color, count: "-", size: "-"}, max_seed: 16777215}
  huge: {workflow: huge.json, inputs: {seed: 1.color, count: "-", size: "-"}, max_seed: 16777215}
`

func ofKind(kind string) func(fakebot.Message) bool {
	return func(m fakebot.Message) bool { return m.FromBot && m.Kind == kind }
}

func TestVideosAnimationsAndSounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = strings.ReplaceAll(botYAML, "telegram: {rate: 10}", "telegram: {rate: 10}\nfiles_url: http://hub1:8188/") + mediaCommands
		})
		ada := r.Fake.Person(11, "en")

		asked, _ := ada.Say("/clip waves on a beach --steps 4")
		clip := r.waitFor(ada, "a video", answering(asked, ofKind("video")))
		require.Contains(t, clip.Text, "waves on a beach\nSeed ")
		require.True(t, strings.HasSuffix(clip.File.Name, ".mp4"), clip.File.Name)
		require.NotEmpty(t, button(t, clip, "Again"))
		require.NotEmpty(t, button(t, clip, "As file"))

		asked, _ = ada.Say("/tune")
		tune := r.waitFor(ada, "a sound", answering(asked, ofKind("audio")))
		require.True(t, strings.HasSuffix(tune.File.Name, ".mp3"), tune.File.Name)
		ada.Press(tune.ID, button(t, tune, "As file"))
		r.waitFor(ada, "the file", func(m fakebot.Message) bool { return m.Kind == "document" && m.File.Hash == tune.File.Hash })

		// As a photo, an animation would stand still.
		asked, _ = ada.Say("/loop")
		r.waitFor(ada, "an animation as a file", answering(asked, ofKind("document")))

		// A large file passes through.
		asked, _ = ada.Say("/large")
		large := r.waitFor(ada, "a large file", answering(asked, ofKind("document")))
		require.Greater(t, large.File.Size, int64(40<<20))

		// A file that is too large for Telegram becomes a link, which works for anybody who has it.
		asked, _ = ada.Say("/huge")
		huge := r.waitFor(ada, "a link", answering(asked, saying("/hub/files/")))
		require.Contains(t, huge.Text, "59 MB")
		link := regexp.MustCompile(`http://\S+`).FindString(huge.Text)
		require.True(t, strings.HasPrefix(link, "http://hub1:8188/hub/files/huge_"), link)
		request, err := http.NewRequest(http.MethodGet, link, http.NoBody)
		require.NoError(t, err)
		request.Header.Set("Range", "bytes=8-11")
		response, err := r.web().Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusPartialContent, response.StatusCode)
		require.Equal(t, "WEBP", string(body))
		require.Equal(t, "image/webp", response.Header.Get("Content-Type"))
		calls := r.Fake.Calls()
		require.Equal(t, []int{1, 1}, []int{calls["sendVideo"], calls["sendAudio"]}, fmt.Sprint(calls))
	})
}

func TestPreviews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ada := r.Fake.Person(12, "en")
		ada.Say("/settings")
		settings := r.waitFor(ada, "settings", saying("Settings"))
		require.Equal(t, "Saved.", r.answered(ada.Press(settings.ID, button(t, settings, "Live previews"))))
		asked, _ := ada.Say("/generate a red fox --steps 60")
		look := r.waitFor(ada, "a look at it", answering(asked, func(m fakebot.Message) bool {
			return m.Kind == "photo" && strings.Contains(m.Text, "▰")
		}))
		require.NotEmpty(t, button(t, look, "Cancel"))
		require.Positive(t, look.File.Width)
		r.waitFor(ada, "the picture", answering(asked, func(m fakebot.Message) bool { return m.Kind == "photo" && strings.Contains(m.Text, "Seed") }))
		r.wait(ada, "the status message goes", func(list []fakebot.Message) bool { return len(filter(list, answering(asked, isPicture))) == 1 })
		over, worst := r.Fake.TooFast()
		require.Zero(t, over, "%+v", worst)
	})
}
