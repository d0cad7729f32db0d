package e2e

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// The users of the hub under attack: one works, the other one attacks.
const (
	worker   = "ada"
	attacker = "mallory"
	password = "correct horse"
)

// maxAttackedMemory is the most memory that a hub may take up under attack, in
// resident bytes.
const maxAttackedMemory = 1 << 30

// attack is one way to hurt a hub, repeated until the context ends.
type attack struct {
	name string
	// at is how many do it at the same time.
	at int
	do func(ctx context.Context, f *fleet, n int) error
}

// siege is a hub with two users who log in, and with lines in the block of the app. It
// listens with HTTPS where operators do elsewhere.
func siege(t *testing.T, lines string) *fleet {
	t.Helper()
	f := newFleet(t, "embedded")
	hash := must.Get(bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost))(t)
	_, port, err := net.SplitHostPort(f.Addr)
	require.NoError(t, err)
	f.Set.Caddyfile = filepath.Join(f.Dir, "Caddyfile")
	require.NoError(t, os.WriteFile(f.Set.Caddyfile, fmt.Appendf(nil, `{
	admin {$COMFYHUB_ADMIN}
	persist_config off
	skip_install_trust
	auto_https disable_redirects
	comfyhub {
		data {$COMFYHUB_DATA}
		gossip {
			bind {$COMFYHUB_GOSSIP}
		}
		%s
	}
}
(site) {
	basic_auth {
		%s %s
		%s %s
	}
	encode zstd gzip
	comfyhub
}
http://:%s {
	bind 127.0.0.1
	import site
}
https://{$COMFYHUB_OPERATORS} {
	tls internal
	import site
}
`, lines, worker, hash, attacker, hash, port), 0o600))
	f.startHub()
	f.startAgent("gpu", 2)
	f.idle(2)
	return f
}

// as sends a request of a user and returns the answer.
func (f *fleet) as(ctx context.Context, user, method, path string, header http.Header, body io.Reader) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, f.URL(path), body)
	if err != nil {
		return 0, nil, err
	}
	maps.Copy(r.Header, header)
	r.SetBasicAuth(user, password)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// asSender begins the head of a request of the attacker's.
func (f *fleet) asSender(method, path string) []byte {
	r, _ := http.NewRequest(http.MethodGet, "http://x", http.NoBody)
	r.SetBasicAuth(attacker, password)
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\n", method, path, f.Addr, r.Header.Get("Authorization"))
}

// work is what the worker does until the context ends. It returns how long each request
// took.
func (f *fleet) work(ctx context.Context, preview string) ([]time.Duration, error) {
	var took []time.Duration
	for n := 0; ctx.Err() == nil; n++ {
		round, err := f.round(context.WithoutCancel(ctx), preview, n)
		took = append(took, round...)
		if err != nil {
			return took, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return took, nil
}

// round is some of the worker's work: a listing, a preview of a small picture, and the n-th
// prompt. It returns how long each request took.
func (f *fleet) round(ctx context.Context, preview string, n int) (took []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	steps := []struct{ method, path, body string }{
		{http.MethodGet, "/queue", ""},
		{http.MethodGet, preview, ""},
		{http.MethodPost, "/prompt", fmt.Sprintf(`{"prompt": {
			"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": %d}},
			"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "small"}}}}`, n)},
	}
	for _, s := range steps {
		begin := time.Now()
		code, answer, err := f.as(ctx, worker, s.method, s.path, nil, strings.NewReader(s.body))
		took = append(took, time.Since(begin))
		if err != nil || code != http.StatusOK {
			return took, fmt.Errorf("%s %s: %d %.200s %w", s.method, s.path, code, answer, err)
		}
	}
	return took, nil
}

// p99 is the time that one request in a hundred exceeds.
func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

// The hub survives each attack of a logged-in user: the other user's requests
// are answered, and the hub's memory stays within bounds. How long those
// requests take is printed.
func TestAttacks(t *testing.T) {
	t.Parallel()
	length := attackLength(t)
	f := siege(t, "")
	for name, data := range map[string][]byte{"small.png": deepPNG(8, 8), "deep.png": deepPNG(12500, 8000), "print.jpg": progressiveCMYK(12500, 8000)} {
		code, answer, err := f.as(t.Context(), cmp.Or(map[string]string{"small.png": worker}[name], attacker), http.MethodPost, "/upload/image",
			http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}, form(name, data))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, "%s: %s", name, answer)
	}
	const preview = "/view?type=input&filename=small.png&preview=webp;80"
	quiet := f.during(t, length, preview, attack{})
	for _, a := range attacks() {
		// What an earlier attack has left does not count against this one.
		clear := fmt.Sprintf("/proc/%d/clear_refs", f.Hub.PID())
		if err := os.WriteFile(clear, []byte("5"), 0); err != nil {
			t.Logf("peaks are those of all attacks so far: %v", err)
		}
		took := f.during(t, length, preview, a)
		now, peak := f.Hub.Memory()
		if peak == 0 {
			t.Skip("this system does not tell how much memory a process has")
		}
		t.Logf("ATTACK name=%s p99=%s quiet=%s ratio=%.1f requests=%d peak_rss=%dMiB rss_after=%dMiB", a.name,
			p99(took).Round(time.Millisecond), p99(quiet).Round(time.Millisecond), float64(p99(took))/float64(p99(quiet)),
			len(took), peak>>20, now>>20)
		require.Less(t, peak, int64(maxAttackedMemory), "memory of the hub under the attack %s", a.name)
	}
}

// attackVariable says how long each attack lasts, and asks for all points at which senders
// fall silent. Without it each attack is made once or twice.
const attackVariable = "COMFYHUB_ATTACK"

// attackLength is how long each attack lasts.
func attackLength(t *testing.T) time.Duration {
	t.Helper()
	return must.Get(time.ParseDuration(cmp.Or(os.Getenv(attackVariable), "400ms")))(t)
}

// during is how long the worker's requests take while an attack goes on.
func (f *fleet) during(t *testing.T, length time.Duration, preview string, a attack) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wait sync.WaitGroup
	for n := range a.at {
		wait.Go(func() {
			for ctx.Err() == nil {
				if err := a.do(ctx, f, n); err != nil && ctx.Err() == nil {
					t.Logf("%s: %v", a.name, err)
					return
				}
			}
		})
	}
	took, err := f.work(ctx, preview)
	require.NoError(t, err, "the other user's requests during the attack %s", a.name)
	wait.Wait()
	return took
}

// attacks are those that hurt a hub once, and their siblings.
func attacks() []attack {
	values := bytes.Repeat([]byte("{},"), 100<<20/3)
	values[len(values)-1] = ' '
	list := append(append([]byte(`{"prompt": [`), values...), "]}"...)
	deflated := gzipped(list)
	prompt := list[:60<<20]
	long := fmt.Appendf(nil, `{"prompt": {"1": {"class_type": "Nothing", "inputs": {"text": %q}}}}`, bytes.Repeat([]byte("a"), 60<<20))
	post := func(path string, header http.Header, body []byte) func(context.Context, *fleet, int) error {
		return func(ctx context.Context, f *fleet, _ int) error {
			code, answer, err := f.as(ctx, attacker, http.MethodPost, path, header, bytes.NewReader(body))
			if err == nil && code == http.StatusOK {
				err = fmt.Errorf("accepted: %.100s", answer)
			}
			if code >= 400 && code < 600 {
				// The connection may be closed before all of the body is sent.
				return nil
			}
			return ignoreCut(err)
		}
	}
	view := func(file string) func(context.Context, *fleet, int) error {
		return func(ctx context.Context, f *fleet, n int) error {
			_, _, err := f.as(ctx, attacker, http.MethodGet, fmt.Sprintf("/view?type=input&filename=%s&preview=webp;%d", file, 50+n), nil, nil)
			return ignoreCut(err)
		}
	}
	return []attack{
		{"inflated", 4, post("/prompt", http.Header{"Content-Encoding": {"gzip"}}, deflated)},
		{"inflated-queue", 4, post("/queue", http.Header{"Content-Encoding": {"gzip"}}, deflated)},
		{"large", 9, post("/prompt", nil, prompt)},
		{"strings", 9, post("/prompt", nil, long)},
		{"deep", 4, post("/prompt", nil, bytes.Repeat([]byte(`{"a":[`), 5<<20))},
		{"trickle", 200, trickle},
		{"progressive-cmyk", 4, view("print.jpg")},
		{"deep-png", 4, view("deep.png")},
		{"settings", 4, func(ctx context.Context, f *fleet, n int) error {
			_, _, err := f.as(ctx, attacker, http.MethodPost, fmt.Sprintf("/settings/%d-%d", n, time.Now().UnixNano()), nil, bytes.NewReader(prompt[:1<<20]))
			return ignoreCut(err)
		}},
		// This comes last, because what it leaves waiting is still there afterwards.
		{"sockets", 10, sockets},
	}
}

// ignoreCut does not count a connection that the hub has closed as an error:
// that is how the hub defends itself.
func ignoreCut(err error) error {
	if err == nil || strings.Contains(err.Error(), "reset") || strings.Contains(err.Error(), "broken pipe") || strings.Contains(err.Error(), "EOF") {
		return nil
	}
	return err
}

// trickle sends a body one byte at a time, now and then.
func trickle(ctx context.Context, f *fleet, _ int) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", f.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%sContent-Length: 50000000\r\n\r\n{", f.asSender(http.MethodPost, "/prompt")); err != nil {
		return ignoreCut(err)
	}
	for ctx.Err() == nil {
		if _, err := conn.Write([]byte(" ")); err != nil {
			return nil //nolint:nilerr // the hub has had enough
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// sockets keeps opening sockets under new ids, posts to each and reads from none.
func sockets(ctx context.Context, f *fleet, n int) error {
	id := fmt.Sprintf("%d-%d", n, time.Now().UnixNano())
	r, err := http.NewRequest(http.MethodGet, f.URL("/ws"), http.NoBody)
	if err != nil {
		return err
	}
	r.SetBasicAuth(attacker, password)
	conn, _, err := websocket.Dial(ctx, f.URL("/ws?clientId="+id), &websocket.DialOptions{HTTPHeader: r.Header})
	if err != nil {
		return nil //nolint:nilerr // refused: there are too many
	}
	defer conn.CloseNow()
	body := fmt.Sprintf(`{"client_id": %q, "prompt": {"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": %d}},
		"2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}}}`, id, n)
	_, _, err = f.as(ctx, attacker, http.MethodPost, "/prompt", nil, strings.NewReader(body))
	return ignoreCut(err)
}

// These files are small but expensive to read. They are put together by hand:
// an encoder would need as much memory as they are meant to cost.

// deepPNG is a picture with 16 bits per channel.
func deepPNG(width, height uint32) []byte {
	var out bytes.Buffer
	out.WriteString("\x89PNG\r\n\x1a\n")
	chunk := func(kind string, data []byte) {
		_ = binary.Write(&out, binary.BigEndian, uint32(len(data)))
		body := append([]byte(kind), data...)
		out.Write(body)
		_ = binary.Write(&out, binary.BigEndian, crc32.ChecksumIEEE(body))
	}
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height)
	chunk("IHDR", append(header, 16, 6, 0, 0, 0)) // RGBA
	var pixels bytes.Buffer
	deflate, _ := zlib.NewWriterLevel(&pixels, zlib.BestSpeed)
	row := make([]byte, 1+8*int(width))
	for range height {
		_, _ = deflate.Write(row)
	}
	_ = deflate.Close()
	chunk("IDAT", pixels.Bytes())
	chunk("IEND", nil)
	return out.Bytes()
}

// progressiveCMYK is a JPEG whose decoder must hold the coefficients of all
// four components at once. Each block is one bit: no difference.
func progressiveCMYK(width, height uint16) []byte {
	var out bytes.Buffer
	marker := func(kind byte, data ...byte) {
		out.Write([]byte{0xFF, kind})
		_ = binary.Write(&out, binary.BigEndian, uint16(len(data)+2))
		out.Write(data)
	}
	out.Write([]byte{0xFF, 0xD8})
	marker(0xDB, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)
	frame := []byte{8, byte(height >> 8), byte(height), byte(width >> 8), byte(width), 4}
	scan := []byte{4}
	for c := range byte(4) {
		frame = append(frame, c+1, 0x11, 0)
		scan = append(scan, c+1, 0)
	}
	marker(0xC2, frame...)
	marker(0xC4, append([]byte{0, 1}, make([]byte, 16)...)...) // one code, "0", for no difference
	marker(0xDA, append(scan, 0, 0, 0)...)
	blocks := (int(width) + 7) / 8 * ((int(height) + 7) / 8) * 4
	out.Write(make([]byte, (blocks+7)/8))
	out.Write([]byte{0xFF, 0xD9})
	return out.Bytes()
}

func gzipped(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

// form is the body of an upload, with the boundary "b".
func form(name string, data []byte) io.Reader {
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	_ = w.SetBoundary("b")
	part, _ := w.CreateFormFile("image", name)
	_, _ = part.Write(data)
	_ = w.Close()
	return &out
}
