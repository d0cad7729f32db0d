package discord

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
)

// A button opens an address. One that Discord does not take costs nobody the message, and
// a menu, which has no links, keeps those of its row below it.
func TestLinks(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakediscord.Options{})
	p := r.fake.Person(ada, channel, guild, "en-US")
	help := platform.Button{Label: "Help", URL: "https://example.com/help"}
	row := []platform.Button{{Label: "Again", Data: "ag"}, help}
	for _, address := range []string{"ftp://example.com", "javascript:alert(1)", "http://[", "https://", "https://example.com/" + strings.Repeat("x", 500)} {
		row = append(row, platform.Button{Label: "Odd", URL: address})
	}
	long := []platform.Button{help}
	for i := range 6 {
		long = append(long, platform.Button{Label: fmt.Sprint(i), Data: fmt.Sprint("set:", i)})
	}
	var links []platform.Button
	for range 6 {
		links = append(links, help)
	}
	_, err := r.d.Send(r.ctx, platform.Chat{ID: channel, Group: true}, platform.Post{Text: "choose", Buttons: [][]platform.Button{row, long, links}})
	require.NoError(t, err)
	m := r.sees(p, "the message", saying("choose"))
	link := fakediscord.Button{Label: "Help", URL: help.URL}
	want := []fakediscord.Button{{Label: "Again", Data: "ag"}, link}
	for i := range 6 {
		want = append(want, fakediscord.Button{Label: fmt.Sprint(i), Data: fmt.Sprint("set:", i), Menu: "menu:1"})
	}
	want = append(want, link, link, link, link, link, link) // five in a row at most
	require.Equal(t, want, m.Buttons)
	_, err = p.Press(m.ID, "Help")
	require.ErrorContains(t, err, "is a link")
}
