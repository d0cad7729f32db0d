package hub

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// server is anything that answers like ComfyUI, and a socket to it.
type server struct {
	b    testing.TB
	url  string
	conn *websocket.Conn
	seen map[string]string // ETags by path
}

func newServer(b testing.TB, url string) *server {
	conn, _, err := websocket.Dial(b.Context(), url+"/ws?clientId=bench", nil)
	require.NoError(b, err)
	conn.SetReadLimit(-1)
	b.Cleanup(func() { conn.CloseNow() })
	return &server{b: b, url: url, conn: conn, seen: map[string]string{}}
}

// post posts a picture of one colour and returns the prompt's id.
func (s *server) post(colour int) string {
	resp, err := http.Post(s.url+"/prompt", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt": %s, "client_id": "bench"}`, picture(colour))))
	require.NoError(s.b, err)
	status, body := read(s.b, resp)
	require.Equal(s.b, http.StatusOK, status, string(body))
	var accepted struct {
		ID string `json:"prompt_id"`
	}
	require.NoError(s.b, json.Unmarshal(body, &accepted))
	return accepted.ID
}

// end reads to the end of a prompt.
func (s *server) end(id string) {
	for {
		kind, data, err := s.conn.Read(s.b.Context())
		require.NoError(s.b, err)
		var m message
		if kind != websocket.MessageText || json.Unmarshal(data, &m) != nil {
			continue
		}
		if m.Type == "executing" && m.Data.Node == nil && m.Data.PromptID == id {
			return
		}
	}
}

// get reads an answer to its end.
func (s *server) get(path, etag string) (status int) {
	req, err := http.NewRequestWithContext(s.b.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(s.b, err)
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.b, err)
	defer resp.Body.Close()
	s.seen[path] = resp.Header.Get("Etag")
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(s.b, err)
	return resp.StatusCode
}

// BenchmarkDirect compares one simulated ComfyUI asked directly with one of the
// same kind asked through a hub, whose queue is embedded or in a Redis server. The
// three take turns, so that changes in the machine's speed affect all alike. The
// benchmark compares the medians.
func BenchmarkDirect(b *testing.B) {
	bare := newInstance(b, sim.Config{})
	embedded := newBench(b, 1)
	onRedis := newBench(b, 1, func(h *bench) { h.id.Redis = redistest.Start(b).URL() })
	names := []string{"direct", "embedded", "redis"}
	servers := []*server{newServer(b, bare.url()), newServer(b, embedded.web.URL), newServer(b, onRedis.web.URL)}
	colour := 0
	const file = "/view?filename=ComfyUI_00001_.png"
	for _, s := range servers {
		s.end(s.post(colour))
		require.Equal(b, http.StatusOK, s.get(file, ""))
	}
	for _, work := range []struct {
		name string
		// do does the work and returns the duration of the part that counts.
		do func(s *server) time.Duration
	}{
		{"post-answer", func(s *server) time.Duration {
			begin := time.Now()
			id := s.post(colour)
			took := time.Since(begin)
			s.end(id)
			return took
		}},
		{"post-end", func(s *server) time.Duration { return timed(func() { s.end(s.post(colour)) }) }},
		{"view", func(s *server) time.Duration { return timed(func() { s.get(file, "") }) }},
		{"object_info", func(s *server) time.Duration { return timed(func() { s.get("/object_info", "") }) }},
		{"object_info-again", func(s *server) time.Duration {
			return timed(func() { s.get("/object_info", s.seen["/object_info"]) }) // ComfyUI has no ETag here
		}},
		{"queue", func(s *server) time.Duration { return timed(func() { s.get("/queue", "") }) }},
	} {
		b.Run(work.name, func(b *testing.B) {
			took := make([][]time.Duration, len(servers))
			for b.Loop() {
				for n, s := range servers {
					colour++
					took[n] = append(took[n], work.do(s))
				}
			}
			b.ReportMetric(0, "ns/op") // of all three together, so it says nothing
			for n, name := range names {
				slices.Sort(took[n])
				median := float64(took[n][len(took[n])/2].Microseconds())
				b.ReportMetric(median, name+"-µs")
				if n > 0 {
					b.ReportMetric(median/float64(took[0][len(took[0])/2].Microseconds()), name+"/direct")
				}
			}
		})
	}
}

func timed(do func()) time.Duration {
	begin := time.Now()
	do()
	return time.Since(begin)
}
