package fakediscord

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// A message of the gateway that Discord never sends, or that it would not take, is found.
func TestFramesAreChecked(t *testing.T) {
	t.Parallel()
	s := must.Get(loadSchema())(t)
	for text, c := range map[string]struct{ sent, ok bool }{
		`{"op":10,"d":{"heartbeat_interval":41250},"s":null,"t":null}`:        {false, true},
		`{"op":10,"d":{"heartbeat_interval":41250}}`:                          {false, false},
		`{"op":11,"d":null,"s":null,"t":null}`:                                {false, true},
		`{"op":0,"d":{"id":"1","channel_id":"2"},"s":1,"t":"MESSAGE_DELETE"}`: {false, true},
		`{"op":0,"d":{"id":"1"},"s":1,"t":"MESSAGE_DELETE"}`:                  {false, false},
		`{"op":0,"d":{"id":"1","channel_id":"2"},"s":1,"t":"MESSAGE_CREATE"}`: {false, false},
		`{"op":0,"d":{},"s":1,"t":"INTERACTION_CREATE"}`:                      {false, false},
		`{"op":0,"d":{},"s":1,"t":"NO_SUCH_EVENT"}`:                           {false, false},
		`{"op":1,"d":null}`: {true, true},
		`{"op":1,"d":"7"}`:  {true, false},
		`{"op":2,"d":{"token":"x","intents":4608,"properties":{"os":"linux","browser":"b","device":"d"}}}`: {true, true},
		`{"op":2,"d":{"token":"x","intents":4608,"properties":{"os":"linux"}}}`:                            {true, false},
		`{"op":6,"d":{"token":"x","session_id":"s"}}`:                                                      {true, false},
		`{"op":3,"d":{}}`: {true, false},
		`nothing`:         {true, false},
	} {
		if err := s.frame(c.sent, []byte(text)); c.ok {
			require.NoError(t, err, text)
		} else {
			require.Error(t, err, text)
		}
	}
}

// Without the intent for it, a bot sees in a server only what is for it.
func TestWhatIsNotForTheBot(t *testing.T) {
	t.Parallel()
	f := must.Get(New(Options{}))(t)
	defer f.Close()
	p := f.Person("900000000000000003", "900000000000000002", "900000000000000001", "en-US")
	picture := p.Say("look", "", []byte("png"))
	reply := p.Say("<@"+BotUser+"> make it blue", picture)
	f.mu.Lock()
	defer f.mu.Unlock()
	said, asked := p.spoken(f.find(p.Channel, picture)), p.spoken(f.find(p.Channel, reply))
	answered := asked["referenced_message"].(map[string]any)
	for _, hidden := range []map[string]any{said, answered} {
		require.Empty(t, hidden["content"])
		require.Empty(t, hidden["attachments"])
	}
	require.Contains(t, asked["content"], "make it blue")
}
