package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// painted returns a picture of one colour.
func painted(t *testing.T, colour int) []byte {
	t.Helper()
	picture := image.NewRGBA(image.Rect(0, 0, size, size))
	for n := range size * size {
		picture.SetRGBA(n%size, n/size, color.RGBA{uint8(colour >> 16), uint8(colour >> 8), uint8(colour), 255})
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, picture))
	return b.Bytes()
}

// The judge notices a hub that breaks a promise.
func TestTheJudgeSeesBrokenPromises(t *testing.T) {
	t.Parallel()
	success := `{"outputs": {"3": {"images": [{"filename": "%s", "subfolder": "", "type": "output"}]}}, "status": {"status_str": "success"}}`
	for name, c := range map[string]struct {
		full, told bool   // Redis was full after it, its client knows of its end
		entry      string // of the second prompt; %s is its file
		file       string // of the second prompt
		colour     int    // of the picture that the second prompt shows
		cancelled  bool
		broken     string
	}{
		"kept":                        {false, false, success, "2.png", 2, false, ""},
		"no entry":                    {false, false, "", "", 2, false, lost},
		"cancelled":                   {false, false, "", "", 2, true, ""},
		"an error":                    {false, false, `{"status": {"status_str": "error"}}`, "", 2, false, failed},
		"a wanted error":              {false, false, `{"status": {"status_str": "error"}}`, "", 2, true, ""},
		"another's colour":            {false, false, success, "2.png", 1, false, wrong},
		"no picture":                  {false, false, `{"outputs": {}, "status": {"status_str": "success"}}`, "", 2, false, wrong},
		"dropped when Redis was full": {true, true, "", "", 2, false, ""},
		"lost when Redis was full":    {true, false, "", "", 2, false, lost},
		"another's file":              {false, false, success, "1.png", 1, false, doubled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/history/a":
					fmt.Fprintf(w, `{"a": %s}`, fmt.Sprintf(success, "1.png"))
				case "/history/b":
					entry := c.entry
					if c.file != "" {
						entry = fmt.Sprintf(entry, c.file)
					}
					if entry == "" {
						fmt.Fprint(w, `{}`)
					} else {
						fmt.Fprintf(w, `{"b": %s}`, entry)
					}
				case "/view":
					colour := 1
					if r.URL.Query().Get("filename") == "2.png" {
						colour = c.colour
					}
					_, _ = w.Write(painted(t, colour))
				default:
					http.NotFound(w, r)
				}
			}))
			t.Cleanup(hub.Close)
			tally := newTally()
			second := &prompt{id: "b", client: "ann", colour: 2, accepted: true, cancelled: c.cancelled}
			if c.told {
				second.ends = 1
			}
			tally.prompts = []*prompt{{id: "a", colour: 1, accepted: true}, second}
			if c.full {
				tally.full()
			}
			j := &judge{tally: tally, files: map[string]string{}, c: &client{hubs: []string{hub.URL}, random: rand.New(rand.NewPCG(1, 1)), tally: tally, http: hub.Client()}}
			j.all(t.Context())
			if c.broken == "" {
				require.Empty(t, tally.broken)
				return
			}
			require.NotEmpty(t, tally.broken[c.broken], tally.broken)
		})
	}
}

// A client notices what its socket must not carry.
func TestAClientSeesBrokenPromises(t *testing.T) {
	text := func(kind, id, node string) []byte {
		return fmt.Appendf(nil, `{"type": %q, "data": {"prompt_id": %q, "node": %s}}`, kind, id, node)
	}
	picture := func(colour int) []byte { return append([]byte{0, 0, 0, 1, 0, 0, 0, 2}, painted(t, colour)...) }
	start, success, end := text("execution_start", "a", "null"), text("execution_success", "a", "null"), text("executing", "a", "null")
	type row struct {
		messages [][]byte
		broken   string
	}
	beside.Cases(t, map[string]row{
		"kept":                {[][]byte{start, picture(1), success, end}, ""},
		"two ends":            {[][]byte{start, picture(1), success, end, end}, doubled},
		"a foreign message":   {[][]byte{text("execution_start", "x", "null")}, wrong},
		"a foreign picture":   {[][]byte{start, picture(2), success, end}, wrong},
		"a picture of nobody": {[][]byte{picture(1)}, wrong},
		"no picture":          {[][]byte{start, success, end}, lost},
	}, func(t *testing.T, c row) {
		hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer conn.CloseNow()
			for _, m := range c.messages {
				kind := websocket.MessageText
				if m[0] == 0 {
					kind = websocket.MessageBinary
				}
				if conn.Write(r.Context(), kind, m) != nil {
					return
				}
			}
			_ = conn.Close(websocket.StatusNormalClosure, "")
		}))
		t.Cleanup(hub.Close)
		tally := newTally()
		client := &client{
			hubs: []string{hub.URL}, random: rand.New(rand.NewPCG(1, 1)), tally: tally, http: hub.Client(), id: "me",
			prompts: map[string]*prompt{"a": {id: "a", colour: 1, accepted: true, bySocket: true}},
		}
		conn := client.dial(t.Context())
		require.NotNil(t, conn)
		s := &socket{client: client, conn: conn, done: map[string]bool{}}
		for s.next(t.Context()) == nil {
		}
		if c.broken == "" {
			require.Empty(t, tally.broken)
			require.Equal(t, 1, client.prompts["a"].ends)
			return
		}
		require.NotEmpty(t, tally.broken[c.broken], tally.broken)
	})
}

// A queue that becomes shorter is not stuck, however long it takes.
func TestTheJudgeWaitsForALongQueue(t *testing.T) {
	t.Parallel()
	for name, jobs := range map[string][]string{
		"shorter each time": {"aaa", "aa", "a", ""},
		"as long as before": {"aa", "aa"},
		"longer":            {"a", "aa"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			looks := 0
			hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				now := jobs[min(looks, len(jobs)-1)]
				looks++
				fmt.Fprint(w, "["+strings.TrimSuffix(strings.Repeat(`{"status": "queued"},`, len(now)), ",")+"]")
			}))
			t.Cleanup(hub.Close)
			j := newJudge(&stage{}, newTally())
			j.c.hubs, j.settle = []string{hub.URL}, 0
			j.empty(t.Context())
			require.Equal(t, jobs[len(jobs)-1] != "", len(j.tally.broken[stuck]) > 0)
		})
	}
}
