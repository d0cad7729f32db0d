package hub

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// BenchmarkDirect compares one simulated ComfyUI asked directly with one of the same kind asked
// through a hub, whose queue is embedded or in a Redis server. The three take turns, so that
// changes in the machine's speed affect all alike. The benchmark compares the medians.
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

// resident returns the resident memory of the process in MiB, as the kernel counts
// it, or 0 where the kernel does not tell.
func resident() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	var total, pages int64
	if err == nil {
		_, err = fmt.Sscan(string(text), &total, &pages)
	}
	if err != nil {
		return 0
	}
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20)
}

// peak watches resident until it is stopped.
func peak() (stop func() float64) {
	var most atomic.Int64
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			most.Store(max(most.Load(), int64(resident())))
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() float64 {
		close(done)
		<-over
		return float64(most.Load())
	}
}

// hostile lists bodies that are cheap to send and expensive to read.
func hostile(size int) map[string][]byte {
	fill := func(head, unit, tail string) []byte {
		return []byte(head + strings.Repeat(unit, (size-len(head)-len(tail)-2)/len(unit)) + tail)
	}
	return map[string][]byte{
		"objects": fill(`{"prompt": [`, `{},`, `{}]}`),
		"members": fill(`{"prompt": {`, `"":0,`, `"a":0}}`),
		"one":     fill(`{"prompt": {}, "x": "`, `y`, `"}`),
	}
}

func zipped(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body)
	_ = w.Close()
	return b.Bytes()
}

// BenchmarkBodies posts bodies of many kinds and reports the cost of each: time and bytes allocated
// per unpacked byte, peak memory, and the memory still in use afterwards.
func BenchmarkBodies(b *testing.B) {
	const size = 99 << 20
	bodies := hostile(size)
	plain := work(1, 7, "none")
	bodies["workflow"] = []byte(fmt.Sprintf(`{"prompt": %s}`, plain))
	for _, name := range []string{"workflow", "objects", "members", "one", "nine"} {
		body, count := bodies[name], 1
		if name == "nine" {
			body, count = hostile(60 << 20)["one"], 9
		}
		for _, encoding := range []string{"", "gzip"} {
			b.Run(name+encoding, func(b *testing.B) {
				bench := newBench(b, 1)
				sent := body
				if encoding != "" {
					sent = zipped(body)
				}
				runtime.GC()
				before := resident()
				watch := peak()
				var m0, m1 runtime.MemStats
				runtime.ReadMemStats(&m0)
				b.ResetTimer()
				status := atomic.Int64{}
				for range b.N {
					var wait sync.WaitGroup
					for range count {
						wait.Go(func() {
							r, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, bench.web.URL+"/prompt", bytes.NewReader(sent))
							if encoding != "" {
								r.Header.Set("Content-Encoding", encoding)
							}
							resp, err := http.DefaultClient.Do(r)
							if err != nil {
								b.Log(err) // the connection is closed while the client still sends
								return
							}
							resp.Body.Close()
							status.Store(int64(resp.StatusCode))
						})
					}
					wait.Wait()
				}
				b.StopTimer()
				runtime.ReadMemStats(&m1)
				per := float64(b.N*count) * float64(len(body))
				b.ReportMetric(float64(status.Load()), "status")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/per, "ns/byte")
				b.ReportMetric(float64(m1.TotalAlloc-m0.TotalAlloc)/per, "alloc-B/byte")
				b.ReportMetric(watch()-before, "peak-MiB")
				b.ReportMetric(resident()-before, "left-MiB")
			})
		}
	}
}
