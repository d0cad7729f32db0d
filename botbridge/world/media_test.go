package world_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/webchat"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
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
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = strings.ReplaceAll(botYAML, "telegram: {rate: 10}", "telegram: {rate: 10}\nfiles_url: http://hub1:8188/") + mediaCommands
		})
		ada := r.Fake.Person(11, "en")

		asked, _ := ada.Say("/clip waves on a beach --steps 4")
		clip := r.waitFor(ada, "a video", fakebot.Answering(asked, ofKind("video")))
		require.Contains(t, clip.Text, "waves on a beach\nSeed ")
		require.True(t, strings.HasSuffix(clip.File.Name, ".mp4"), clip.File.Name)
		require.NotEmpty(t, button(t, clip, "Again"))
		require.NotEmpty(t, button(t, clip, "As file"))

		asked, _ = ada.Say("/tune")
		tune := r.waitFor(ada, "a sound", fakebot.Answering(asked, ofKind("audio")))
		require.True(t, strings.HasSuffix(tune.File.Name, ".mp3"), tune.File.Name)
		ada.Press(tune.ID, button(t, tune, "As file"))
		r.waitFor(ada, "the file", func(m fakebot.Message) bool { return m.Kind == "document" && m.File.Hash == tune.File.Hash })

		// As a photo, an animation would stand still.
		asked, _ = ada.Say("/loop")
		r.waitFor(ada, "an animation as a file", fakebot.Answering(asked, ofKind("document")))

		// A large file passes through.
		asked, _ = ada.Say("/large")
		large := r.waitFor(ada, "a large file", fakebot.Answering(asked, ofKind("document")))
		require.Greater(t, large.File.Size, int64(40<<20))

		// A file that is too large for Telegram becomes a link, which works for anybody who has it.
		asked, _ = ada.Say("/huge")
		huge := r.waitFor(ada, "a link", fakebot.Answering(asked, fakebot.Saying("/hub/files/")))
		require.Contains(t, huge.Text, "59 MB")
		link := regexp.MustCompile(`http://\S+`).FindString(huge.Text)
		require.True(t, strings.HasPrefix(link, "http://hub1:8188/hub/files/huge_"), link)
		request := must.Get(http.NewRequest(http.MethodGet, link, http.NoBody))(t)
		request.Header.Set("Range", "bytes=8-11")
		response := must.Get(r.web().Do(request))(t)
		defer response.Body.Close()
		body := must.Get(io.ReadAll(response.Body))(t)
		require.Equal(t, http.StatusPartialContent, response.StatusCode)
		require.Equal(t, "WEBP", string(body))
		require.Equal(t, "image/webp", response.Header.Get("Content-Type"))
		calls := r.Fake.Calls()
		require.Equal(t, []int{1, 1}, []int{calls["sendVideo"], calls["sendAudio"]}, fmt.Sprint(calls))
	})
}

func TestPreviews(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		ada := r.Fake.Person(12, "en")
		ada.Say("/settings")
		settings := r.waitFor(ada, "settings", fakebot.Saying("Settings"))
		require.Equal(t, "Saved.", r.answered(ada.Press(settings.ID, button(t, settings, "Live previews"))))
		asked, _ := ada.Say("/generate a red fox --steps 60")
		look := r.waitFor(ada, "a look at it", fakebot.Answering(asked, func(m fakebot.Message) bool {
			return m.Kind == "photo" && strings.Contains(m.Text, "▰")
		}))
		require.NotEmpty(t, button(t, look, "Cancel"))
		require.Positive(t, look.File.Width)
		r.waitFor(ada, "the picture", fakebot.Answering(asked, func(m fakebot.Message) bool { return m.Kind == "photo" && strings.Contains(m.Text, "Seed") }))
		r.wait(ada, "the status message goes", func(list []fakebot.Message) bool {
			return len(fakebot.Filter(list, fakebot.Answering(asked, fakebot.IsPicture))) == 1
		})
		over, worst := r.Fake.TooFast()
		require.Zero(t, over, "%+v", worst)
	})
}

const secret = "a-secret_of-sufficient-length"

// page is the other end of webchat. It records what the bridge says to it.
type page struct {
	mu   sync.Mutex
	said []webchat.Said
	bad  int
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	var s webchat.Said
	if err != nil || !webchat.Verify(secret, r.Header, body, time.Now()) || json.Unmarshal(body, &s) != nil {
		p.bad++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	p.said = append(p.said, s)
}

func (p *page) find(fits func(webchat.Said) bool) (webchat.Said, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.said {
		if fits(s) {
			return s, true
		}
	}
	return webchat.Said{}, false
}

func TestWebchat(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		here := &page{}
		r := newRig(t, func(o *options) {
			o.Services = map[string]http.Handler{"callback": here}
			o.Config = strings.ReplaceAll(botYAML, "telegram: {rate: 10}",
				"telegram: {rate: 10}\nfiles_url: http://hub1:8188\nwebchat: {secret: {file: secret}, callback: \"http://callback/\"}")
		})
		tell := func(signed bool, body string) int {
			request := must.Get(http.NewRequest(http.MethodPost, "http://bridge"+webchat.Path, strings.NewReader(body)))(t)
			timestamp := strconv.FormatInt(time.Now().Unix(), 10)
			request.Header.Set("X-Bridge-Timestamp", timestamp)
			request.Header.Set("X-Bridge-Signature", strings.Repeat("0", 64))
			if signed {
				request.Header.Set("X-Bridge-Signature", webchat.Sign(secret, timestamp, []byte(body)))
			}
			response := must.Get(r.web().Do(request))(t)
			response.Body.Close()
			return response.StatusCode
		}
		message := `{"id": "m1", "chat": "c", "user": "u", "text": "/work"}`
		require.Equal(t, http.StatusUnauthorized, tell(false, message))
		require.Equal(t, http.StatusRequestEntityTooLarge, tell(true, strings.Repeat("x", 256<<10+1)))
		require.Equal(t, http.StatusBadRequest, tell(true, `{"id": "m1"}`))
		require.Equal(t, http.StatusAccepted, tell(true, message))
		require.Equal(t, http.StatusAccepted, tell(true, message), "the same message again")

		var picture webchat.Said
		require.Eventually(t, func() bool {
			var ok bool
			picture, ok = here.find(func(s webchat.Said) bool { return len(s.Files) == 1 })
			return ok
		}, patience, 20*time.Millisecond)
		require.Equal(t, "m1", picture.ReplyTo)
		fetch := func(url string) (int, []byte) {
			response := must.Get(r.web().Get(url))(t)
			defer response.Body.Close()
			return response.StatusCode, must.Get(io.ReadAll(response.Body))(t)
		}
		status, body := fetch(picture.Files[0].URL)
		require.Equal(t, http.StatusOK, status)
		require.True(t, bytes.HasPrefix(body, []byte("\x89PNG")))
		status, _ = fetch(strings.Replace(picture.Files[0].URL, "/hub/files/", "/hub/files/x", 1))
		require.Equal(t, http.StatusForbidden, status, "a link is for one file")

		// A button.
		require.Equal(t, http.StatusAccepted, tell(true, `{"id": "p1", "chat": "c", "user": "u", "message": "`+picture.Message+
			`", "press": {"id": "press1", "data": "`+picture.Buttons[0][0].Data+`"}}`))
		require.Eventually(t, func() bool {
			_, answered := here.find(func(s webchat.Said) bool { return s.Event == "answer" && s.Press == "press1" })
			here.mu.Lock()
			defer here.mu.Unlock()
			pictures := 0
			for _, s := range here.said {
				pictures += len(s.Files)
			}
			return answered && pictures == 2
		}, patience, 20*time.Millisecond)
		require.Zero(t, here.bad)

		// Words as an answer to a picture change it. The page hands no file over for that.
		require.Equal(t, http.StatusAccepted, tell(true, `{"id": "m2", "chat": "c", "user": "u", "text": "in winter --steps 4", "reply_to": {"message": "`+picture.Message+`"}}`))
		require.Eventually(t, func() bool {
			_, edited := here.find(func(s webchat.Said) bool {
				return s.ReplyTo == "m2" && len(s.Files) == 1 && strings.Contains(s.Text, "in winter")
			})
			return edited
		}, patience, 20*time.Millisecond)

		// Health and metrics of the same process.
		require.Eventually(t, func() bool {
			status, body = fetch("http://bridge" + "/health/ready")
			return status == http.StatusOK && strings.Contains(string(body), `"leader":true`)
		}, patience, 100*time.Millisecond)
		require.Eventually(t, func() bool { // the count follows the delivery
			_, body = fetch("http://bridge" + "/metrics")
			return strings.Contains(string(body), `comfyhub_bridge_requests_total{command="work",outcome="done"} 2`)
		}, patience, 20*time.Millisecond)
		require.NotContains(t, string(body), "m1")
		dashboard := must.Get(os.ReadFile("../../docker/grafana/dashboards/botbridge.json"))(t)
		for _, name := range regexp.MustCompile(`comfyhub_bridge_[a-z_]+`).FindAllString(string(dashboard), -1) {
			require.Contains(t, string(body), name, "what the dashboard shows is there")
		}
	})
}
