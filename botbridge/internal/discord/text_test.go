package discord

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "",
		"a red fox":                  "a red fox",
		"*bold* _it_ ~~no~~ `x`":     `\*bold\* \_it\_ \~\~no\~\~ \` + "`x\\`",
		"||spoiler||":                `\|\|spoiler\|\|`,
		"# head\n> quote - no":       "\\# head\n\\> quote - no",
		"- item":                     `\- item`,
		"3/10 - 50 %":                "3/10 - 50 %",
		"<@123> <#4> <:x:5>":         `\<@123\> \<#4\> \<:x:5\>`,
		"[a](https://x.example/_b_":  `\[a\](https://x.example/_b_`,
		"https://x.example/a_b*c d_": `https://x.example/a_b*c d\_`,
	} {
		got := plain(text)
		if strings.Contains(text, "<") {
			require.Contains(t, got, `\<@123`)
			require.Contains(t, got, `\<#4`)
			continue
		}
		require.Equal(t, want, got, text)
	}
	long := plain(strings.Repeat("ы*", 2000))
	require.LessOrEqual(t, units(long), maxText)
	require.True(t, strings.HasSuffix(long, "…"))
	require.LessOrEqual(t, units(plain(strings.Repeat("🦊", 2000))), maxText)
}

func TestIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"1", "900000000000000001"} {
		require.True(t, isID(id), id)
	}
	for _, id := range []string{"", "0", "012", "-1", "1a", "@me", "../1", "1/2", strings.Repeat("1", 21), "１"} {
		require.False(t, isID(id), id)
	}
	for _, text := range []string{"1:a", "12:aW50ZXJhY3Rpb24-_="} {
		p, ok := parsePress(text)
		require.True(t, ok)
		require.Equal(t, text, p.String())
	}
	for _, text := range []string{"", ":", "1", "1:", ":a", "1:a/b", "1:..", "x:a", "1:a?b", "1:a%2f", "1:a b"} {
		_, ok := parsePress(text)
		require.False(t, ok, text)
	}
}

func FuzzPress(f *testing.F) {
	f.Add("1:abc")
	f.Add("900000000000000001:aW50/../x")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePress(text)
		if !ok {
			return
		}
		require.Equal(t, text, p.String())
		require.NotContains(t, p.id+p.token, "/")
		require.NotContains(t, p.token, "?")
		require.NotContains(t, p.token, "%")
	})
}

func FuzzPlain(f *testing.F) {
	f.Add("*a* https://x.example/_ <@1> \\")
	f.Fuzz(func(t *testing.T, text string) {
		require.LessOrEqual(t, units(plain(text)), maxText)
	})
}

func FuzzInteraction(f *testing.F) {
	f.Add([]byte(`{"id":"1","type":2,"token":"a","channel_id":"2","user":{"id":"3"},"data":{"name":"generate","options":[{"name":"prompt","value":"x"}]}}`))
	f.Add([]byte(`{"id":"1","type":3,"token":"a","channel_id":"2","user":{"id":"3"},"message":{"id":"4"},"data":{"custom_id":"menu:1","values":[]}}`))
	d, err := New(Options{Token: "x", Commands: commands()})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, raw []byte) {
		in, ok := readInteraction(raw)
		if !ok {
			return
		}
		e := d.event(in, "5")
		require.NotContains(t, e.Chat.ID, "/")
		require.NotEmpty(t, e.User.ID)
		var m spoken
		_ = m
	})
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"id":"1","channel_id":"2","author":{"id":"3"},"content":"<@9> hi","mentions":[{"id":"9"}]}`))
	d, err := New(Options{Token: "x", Direct: true})
	require.NoError(f, err)
	d.me.Store(&identity{"8", "9"})
	f.Fuzz(func(_ *testing.T, raw []byte) { d.said(raw, "said") })
}

// Discord covers a file by its name.
func TestSpoilersByName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "SPOILER_a.png", fileName(platform.Attachment{Name: "a.png", Spoiler: true}))
	require.Equal(t, "a.png", fileName(platform.Attachment{Name: "a.png"}))
}
