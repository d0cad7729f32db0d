package stream

import (
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

const announcement = `{"type":"feature_flags","data":{"supports_preview_metadata":true}}`

func TestFlags(t *testing.T) {
	type row struct {
		said     []string
		answered int
		metadata bool
	}
	sideBySide(t, map[string]row{
		"first":                        {[]string{announcement}, 1, true},
		"second":                       {[]string{`{"type":"hello"}`, announcement}, 0, false},
		"twice":                        {[]string{`{"type":"feature_flags","data":{}}`, announcement}, 1, false},
		"after what is no JSON object": {[]string{"not json", "[]", `"x"`, "7", "NaN", "null", "", announcement}, 1, true},
		"not true":                     {[]string{`{"type":"feature_flags","data":{"supports_preview_metadata":"true"}}`}, 1, false},
		"data is a list":               {[]string{`{"type":"feature_flags","data":[1]}`}, 1, false},
		"no data":                      {[]string{`{"type":"feature_flags"}`}, 1, false},
		"the flag is a list":           {[]string{`{"type":"feature_flags","data":{"supports_preview_metadata":[1]}}`}, 1, false},
		"nothing":                      {nil, 0, false},
	}, func(t *testing.T, c row) {
		var g flags
		answered, metadata := 0, false
		for _, message := range c.said {
			a, m := g.read([]byte(message))
			if a {
				answered++
			}
			metadata = metadata || m
		}
		require.Equal(t, c.answered, answered)
		require.Equal(t, c.metadata, metadata)
	})
}

func TestFlagsOnTheWire(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.say(websocket.MessageBinary, `{"type":"binary does not count"}`)
		p.say(websocket.MessageText, "not json")
		p.announce()
		p.announce()
		require.Equal(t, words(hello(0, "me"),
			`{"type": "feature_flags", "data": {"supports_preview_metadata": true, "max_upload_size": 104857600}}`), p.settled())
	})
}

func FuzzFlags(f *testing.F) {
	f.Add([]byte(announcement))
	f.Add([]byte(`{"type":"feature_flags","data":{"supports_preview_metadata":NaN}}`))
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, message []byte) {
		var g flags
		announced, metadata := g.read(message)
		require.False(t, metadata && !announced)
		require.False(t, announced && !g.settled)
		if g.settled {
			again, _ := g.read([]byte(announcement))
			require.False(t, again, "only the first counts")
		}
	})
}
