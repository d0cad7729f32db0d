package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api/mount"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// begun is a request that is longer than what is sent of it.
func (f *fleet) begun(method, path, kind string, length int, part string) []byte {
	return fmt.Appendf(f.asSender(method, path), "Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, length, part)
}

// socketBegun opens a socket and sends something over it without waiting for an answer.
func (f *fleet) socketBegun(path string, frames []byte) []byte {
	return fmt.Appendf(f.asSender(http.MethodGet, path), "Connection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n%s", frames)
}

// frame is the beginning of a message of a client's, masked with zeros; first is the
// frame's first byte.
func frame(first byte, length uint64, part []byte) []byte {
	out := binary.BigEndian.AppendUint64([]byte{first, 0x80 | 127}, length)
	return append(append(out, 0, 0, 0, 0), part...)
}

// Two bits of a frame's first byte, and the number of a text.
const (
	frameIsLast     = 0x80
	frameCompressed = 0x40
	frameText       = 1
)

// silentKinds are the points at which somebody may stop who sends a lot, or asks for a lot
// and reads nothing.
func silentKinds() []silent {
	const formKind = "multipart/form-data; boundary=b"
	text := func(n int) string { return strings.Repeat("x", n) }
	file := "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"silent.png\"\r\n\r\n"
	field := "--b\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s"
	fields := ""
	for _, name := range []string{"type", "subfolder", "overwrite", "original_ref", "a", "b", "c", "d"} {
		fields += fmt.Sprintf(field+"\r\n", name, text(60<<10))
	}
	names := ""
	for n := range 100 {
		names += fmt.Sprintf(field+"\r\n", fmt.Sprint(n)+text(3<<10), "")
	}
	post := func(path, kind string, length int, part string) func(*fleet, int) []byte {
		return func(f *fleet, _ int) []byte { return f.begun(http.MethodPost, path, kind, length, part) }
	}
	get := func(path string) func(*fleet, int) []byte {
		return func(f *fleet, n int) []byte {
			return append(f.asSender(http.MethodGet, strings.ReplaceAll(path, "#", fmt.Sprint(1+n%100))), '\r', '\n')
		}
	}
	accepting := func(path, encodings string) func(*fleet, int) []byte {
		return func(f *fleet, _ int) []byte {
			return fmt.Appendf(f.asSender(http.MethodGet, path), "Accept-Encoding: %s\r\n\r\n", encodings)
		}
	}
	fragment := frame(frameText, 4<<10, []byte(text(4<<10)))
	deflated := frame(frameText|frameCompressed, 4<<10, bytes.Repeat([]byte{0xFF}, 4<<10))
	half := frame(frameText|frameIsLast, 4<<20, []byte(text(2<<20)))
	socket := func(path string, frames []byte) func(*fleet, int) []byte {
		return func(f *fleet, n int) []byte { return f.socketBegun(fmt.Sprintf(path, n), frames) }
	}
	// Most senders wait for their turn while those before them are served.
	some := func(h heard) bool { return h.answered+h.closed >= silentSenders/10 }
	return []silent{
		{"half the headers", func(f *fleet, _ int) []byte {
			return append(f.asSender(http.MethodPost, "/prompt"), "X: "+text(256<<10)...)
		}, nil, nil, taken},
		{"half a prompt", post("/prompt", "application/json", 512<<10, `{"prompt": {"1": "`+text(250<<10)), nil, nil, taken},
		{"half a large prompt", post("/prompt", "application/json", 2<<20, `{"prompt": {"1": "`+text(1<<20)), nil, nil, taken},
		{"half a prompt in chunks", func(f *fleet, _ int) []byte {
			return fmt.Appendf(f.asSender(http.MethodPost, "/prompt"), "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", 4<<20, text(1<<20))
		}, nil, nil, taken},
		{"half a file", post("/upload/image", formKind, 2<<20, file+text(1<<20)), nil, nil, taken},
		{"half a field", post("/upload/image", formKind, 2<<20, fmt.Sprintf(field, "subfolder", text(60<<10))), nil, nil, taken},
		{"half a long field", post("/upload/image", formKind, 2<<20, fmt.Sprintf(field, "subfolder", text(512<<10))), nil, nil, taken},
		{"eight fields of a form", post("/upload/image", formKind, 100<<20, fields), nil, nil, taken},
		{"a hundred long names", post("/upload/image", formKind, 100<<20, names), nil, nil, taken},
		{"half the header of a part", post("/upload/image", formKind, 2<<20, "--b\r\nX: "+text(512<<10)), nil, nil, taken},
		{"half a held picture", func(f *fleet, n int) []byte {
			return f.begun(http.MethodPut, fmt.Sprintf("/api/etn/image/silent%d", n), "application/octet-stream", 2<<20, text(1<<20))
		}, nil, nil, taken},
		{"half a call of a node", post("/some/node", "application/json", 2<<20, text(1<<20)), nil, nil, taken},
		{"half a file for a node", post("/some/node", "application/octet-stream", 2<<20, text(1<<20)), nil, nil, taken},
		{"half a message", socket("/ws?clientId=half%d", half), nil, nil, taken},
		{"a fragment of a message", socket("/ws?clientId=fragment%d", fragment), nil, nil, taken},
		{"a compressed fragment", socket("/ws?clientId=deflated%d", deflated), nil, nil, taken},
		{"a socket to a node", socket("/some/node/socket?idle=%d", nil), nil, nil, allAnswered},
		{"half a message to a node", socket("/some/node/socket?half=%d", nil), half, nil, allAnswered},
		{"previews", get("/view?type=input&filename=large.tiff&preview=webp;#"), nil, nil, some},
		{"previews that nobody reads", get("/view?type=input&filename=noise.tiff&channel=rgb&rand=#"), nil, nil, allAnswered},
		{"files that nobody reads", get("/view?type=input&filename=large.tiff&rand=#"), nil, nil, allAnswered},
		{"node classes that nobody reads", get("/object_info"), nil, nil, allAnswered},
		{"a text that nobody reads", get("/userdata/noise.json"), nil, nil, allAnswered},
		{"a text that is compressed and nobody reads", accepting("/userdata/noise.json", "zstd, gzip"), nil, nil, allAnswered},
		{"a text that is compressed late and nobody reads", accepting("/userdata/short.json", "zstd, gzip"), nil, nil, allAnswered},
	}
}

// silentAt are those who send the headers of a request for a route, and then half of its body.
func silentAt(method, path string) silent {
	return silent{
		name:   method + " " + path,
		part:   func(f *fleet, _ int) []byte { return f.begun(method, path, "application/json", 16<<10, "") },
		rest:   []byte(`{"a": "` + strings.Repeat("x", 8<<10)),
		enough: taken,
	}
}

// silentRoutes are those at each method of each route, from the code's own table.
func silentRoutes(t *testing.T) (all []silent) {
	t.Helper()
	h := hub.New(config.Identity{Redis: "embedded", Data: t.TempDir(), GossipBind: "127.0.0.1:0"})
	t.Cleanup(func() { require.NoError(t, h.Close(context.WithoutCancel(t.Context()))) })
	routes := map[string]bool{"POST /of/a/node": true}
	for _, table := range mount.New(h).Routers() {
		for pattern, methods := range table.All() {
			path := strings.NewReplacer("**", "x/y", "*", "x").Replace(pattern.String())
			for _, method := range methods {
				routes[method+" "+path] = true
			}
		}
	}
	for _, route := range slices.Sorted(maps.Keys(routes)) {
		method, path, _ := strings.Cut(route, " ")
		if short, ok := strings.CutPrefix(path, "/api"); ok && routes[method+" "+short] {
			continue // the same one once more
		}
		all = append(all, silentAt(method, path))
	}
	return all
}

// oneIn picks every n-th kind of silent sender; `make attack` has them all.
func oneIn(n int, all []silent) (some []silent) {
	if os.Getenv(attackVariable) != "" {
		n = 1
	}
	for i := 0; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

// With HTTP/2 the hub's own process, not the system, keeps what a connection has sent and
// nobody has read. It needs little memory for that, too: most are refused.
func TestSilentOverHTTPS(t *testing.T) {
	t.Parallel()
	f := besieged(t)
	quiet := f.quietly(t)
	before := f.settle(t)
	ctx, leave := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	defer senders.Wait()
	defer leave()
	var refused, dropped, others atomic.Int32
	for range silentSenders {
		senders.Go(func() {
			// A transport of its own is a connection of its own.
			transport := &http.Transport{
				ForceAttemptHTTP2: true,
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the authority is its own
			}
			defer transport.CloseIdleConnections()
			body, part := io.Pipe()
			defer body.Close()
			senders.Go(func() { _, _ = io.WriteString(part, `{"prompt": {"1": "`+strings.Repeat("x", 3<<20)) })
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+f.Operators+"/prompt", body)
			if err != nil {
				return
			}
			r.SetBasicAuth(attacker, password)
			resp, err := transport.RoundTrip(r)
			if err != nil {
				if ctx.Err() == nil {
					dropped.Add(1) // it was let in, and silent while the memory was short
				}
				return
			}
			defer resp.Body.Close()
			if resp.ProtoMajor == 2 && resp.StatusCode == http.StatusServiceUnavailable {
				refused.Add(1)
				return
			}
			others.Add(1)
		})
	}
	require.NoError(t, f.Hub.Await(t.Context(), "most senders are refused or dropped", func(context.Context) error {
		if refused, dropped := refused.Load(), dropped.Load(); refused+dropped < silentSenders*9/10 {
			return fmt.Errorf("%d are refused, %d dropped", refused, dropped)
		}
		return nil
	}))
	took, err := f.rounds(t.Context(), smallPreview, 10)
	require.NoError(t, err, "the other user's requests")
	_, peak := f.Hub.Memory()
	require.GreaterOrEqual(t, refused.Load(), int32(silentSenders/2), "the others are dropped")
	require.Zero(t, others.Load(), "answers to what has not ended")
	require.Less(t, peak-before, int64(maxSilentPeak), "the most memory of the hub for %d connections with HTTPS", silentSenders)
	t.Logf("SILENT https senders=%d refused=%d dropped=%d p99=%s quiet=%s growth=%dMiB peak_rss=%dMiB", silentSenders, refused.Load(), dropped.Load(),
		p99(took).Round(time.Millisecond), p99(quiet).Round(time.Millisecond), (peak-before)>>20, peak>>20)
}
