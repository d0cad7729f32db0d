package world_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// offered waits for what somebody is shown who types, and returns it.
func (r *rig) offered(query string) (o fakebot.Offer) {
	r.t.Helper()
	r.until("an offer", func() (ok bool) {
		o, ok = r.Fake.Offered(query)
		return ok
	})
	return o
}

// From any chat somebody is led to the private one, gets a picture there, and sends it to where
// they came from, in English and in Russian. A restart forgets Telegram's name of the picture, and
// says so.
func TestAnyChat(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Fake.Inline = true
			o.Config = strings.Replace(o.Config, "telegram: {rate: 10}", "telegram: {rate: 10, inline: true}", 1)
		})
		unwanted := r.Fake.Person(666, "en").Query("a red fox")
		for id, texts := range map[int64][4]string{
			11: {"en", "🎨 Make this in our chat", "More", "I can't send it from here. Forward it from our chat"},
			12: {"ru", "🎨 Нарисовать в личном чате", "Подробнее", "Отсюда не получится. Перешлите её из личного чата"},
		} {
			ada := r.Fake.Person(id, texts[0])
			offer := r.offered(ada.Query("/generate a red fox --seed 7"))
			require.Equal(t, texts[1], offer.Label)
			asked, _ := ada.Say("/start " + offer.Start)
			picture := r.pictures(ada, asked, 1)[0]
			require.Contains(t, picture.Text, "a red fox")
			ada.Press(picture.ID, button(t, picture, texts[2]))
			share := ""
			r.waitFor(ada, "a button to share it", func(m fakebot.Message) bool {
				for _, b := range m.Buttons {
					if b.Share != "" {
						share = b.Share
					}
				}
				return share != ""
			})
			require.Len(t, r.offered(ada.Query(share)).Photos, 1)
			require.Equal(t, fakebot.Offer{}, r.offered(r.Fake.Person(13, "en").Query(share)), "it is not theirs")

			r.Bridge.Kill()
			r.Bridge.Start(t)
			require.Equal(t, texts[3], r.offered(ada.Query(share)).Label)
			time.Sleep(time.Minute)
		}
		_, ok := r.Fake.Offered(unwanted)
		require.False(t, ok, "who is blocked sees nothing")
	})
}
