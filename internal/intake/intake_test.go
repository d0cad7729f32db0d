package intake

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newIntake(t testing.TB, o Options) *Intake {
	t.Helper()
	o.Dir = t.TempDir()
	return New(o)
}

func request(body io.Reader, encoding string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.ContentLength = -1
	r.Header.Set("Content-Encoding", encoding)
	return r
}

func pack(t testing.TB, encoding, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw deflate":
		w, _ = flate.NewWriter(&b, 6)
	default:
		return []byte(text)
	}
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// What arrives is what was sent, whatever its size and encoding, and nothing of
// it stays: no file, no memory on anybody's account.
func TestBodies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := New(Options{Dir: dir, Limits: Limits{Memory: 64 << 20}})
	noise := make([]byte, 1<<20+1)
	source := rand.NewChaCha8([32]byte{})
	_, _ = source.Read(noise)
	for i := range noise {
		noise[i] = 'a' + noise[i]%26
	}
	for range 2 { // what was given back is there again
		for _, encoding := range []string{"", "gzip", "GZIP", "deflate", "raw deflate"} {
			for _, size := range []int{0, 1, 512, 513, 1 << 20, 1<<20 + 1} {
				text := string(noise[:size])
				header := strings.TrimPrefix(encoding, "raw ")
				r := request(bytes.NewReader(pack(t, strings.ToLower(encoding), text)), header)
				body, err := in.Receive(r, "ann", Class{Limit: 4 << 20, Values: 10})
				require.NoError(t, err, "%s %d", encoding, size)
				require.EqualValues(t, size, body.Size())
				read := must.Get(io.ReadAll(body.Reader()))(t)
				require.Equal(t, text, string(read))
				data := must.Get(body.Load(t.Context()))(t)
				require.Equal(t, text, string(data))
				body.Close()
			}
		}
	}
	left := must.Get(os.ReadDir(dir))(t)
	require.Empty(t, left)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	in := newIntake(t, Options{})
	c := Class{Limit: 64 << 20, Values: 1000}
	for name, tt := range map[string]struct {
		body, encoding string
		class          Class
		err            error
	}{
		"many values":          {"[" + strings.Repeat("{},", 1<<20) + "{}]", "", c, ErrValues},
		"many values, packed":  {"[" + strings.Repeat("{},", 1<<20) + "{}]", "gzip", c, ErrValues},
		"many members":         {"{" + strings.Repeat(`"a":0,`, 1<<20) + "}", "deflate", c, ErrValues},
		"deep":                 {strings.Repeat("[", 1<<20), "", c, ErrDeep},
		"deep objects":         {strings.Repeat(`{"a":`, 990), "", c, ErrDeep},
		"bomb":                 {strings.Repeat("a", 32<<20), "gzip", c, ErrInflated},
		"bomb of deflate":      {strings.Repeat("a", 32<<20), "deflate", c, ErrInflated},
		"bomb of raw deflate":  {strings.Repeat("a", 32<<20), "raw deflate", c, ErrInflated},
		"bomb that is no JSON": {strings.Repeat("a", 32<<20), "gzip", Class{Limit: 64 << 20}, ErrInflated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request(bytes.NewReader(pack(t, tt.encoding, tt.body)), strings.TrimPrefix(tt.encoding, "raw "))
			_, err := in.Receive(r, "ann", tt.class)
			require.ErrorIs(t, err, tt.err)
		})
	}
	for name, sent := range map[string][]byte{
		"no gzip":   []byte("hello"),
		"truncated": pack(t, "gzip", strings.Repeat("hello", 1000))[:20],
	} {
		_, err := in.Receive(request(bytes.NewReader(sent), "gzip"), "ann", c)
		require.ErrorIs(t, err, ErrBroken, name)
	}
	var large *TooLargeError
	_, err := in.Receive(request(strings.NewReader("12345"), ""), "ann", Class{Limit: 5})
	require.ErrorAs(t, err, &large)
	require.Equal(t, TooLargeError{Limit: 5, Actual: 5}, *large)
	r := request(http.NoBody, "")
	r.ContentLength = 7
	_, err = in.Receive(r, "ann", Class{Limit: 5})
	require.ErrorAs(t, err, &large)
	require.EqualValues(t, 7, large.Actual, "known before it is read")
}

// endless never ends.
type endless struct {
	unit string
	sent int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, strings.Repeat(e.unit, len(p)/len(e.unit)))
	e.sent += int64(n)
	return n, nil
}

// A hostile body costs next to nothing to refuse: it is read no further than to
// the bound, and nothing is made of what was read.
func TestRefusalsAreCheap(t *testing.T) {
	in := newIntake(t, Options{})
	for name, unit := range map[string]string{"objects": "{},", "members": `"":0,`, "deep": "["} {
		body := &endless{unit: unit}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := in.Receive(request(body, ""), "ann", Class{Limit: 100 << 20, Values: 100_000})
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		require.Less(t, body.sent, int64(1<<20), name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), name)
	}
}

// What a body is said to weigh is enough for its text, the tree of its values
// and two copies of it.
func TestWeight(t *testing.T) {
	in := newIntake(t, Options{})
	fill := func(head, unit, tail string) string { return head + strings.Repeat(unit, 50_000) + tail }
	distinct := strings.Builder{}
	for i := range 50_000 {
		distinct.WriteString(`"` + strings.Repeat("k", 3) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) + string(rune('a'+i/17576)) + `":1,`)
	}
	for name, text := range map[string]string{
		"objects":          fill("[", "{},", "{}]"),
		"arrays":           fill("[", "[],", "[]]"),
		"arrays of one":    fill("[", "[0],", "[]]"),
		"numbers":          fill("[", "0,", "0]"),
		"strings":          fill("[", `"",`, `""]`),
		"escapes":          fill(`["`, `\n`, `"]`),
		"objects of one":   fill("[", `{"":0},`, "{}]"),
		"one key":          fill("{", `"":0,`, `"":0}`),
		"members":          "{" + distinct.String() + `"a":0}`,
		"members of nulls": "[" + strings.Repeat(`{"a":null,"b":null,"c":null,"d":null,"e":null},`, 10_000) + "0]",
		"one string":       fill(`"`, "0123456789", `"`),
	} {
		body, err := in.Receive(request(strings.NewReader(text), ""), "ann", Class{Limit: 100 << 20, Values: 1 << 30})
		require.NoError(t, err)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = pyjson.Parse([]byte(text))
		runtime.ReadMemStats(&after)
		require.NoError(t, err, name)
		parsed := int64(after.TotalAlloc - before.TotalAlloc) // with a copy of the text
		t.Logf("%s: %d bytes, parsed in %d, weigh %d", name, len(text), parsed, body.weight())
		require.GreaterOrEqual(t, body.weight(), parsed, name)
		require.LessOrEqual(t, body.weight(), max(30*parsed, 1<<20), name)
		body.Close()
	}
}

// A sender that trickles is cut off; one that is only slow is not.
func TestSlowSenders(t *testing.T) {
	type row struct {
		bytes int
		every time.Duration
		err   error
	}
	beside.Cases(t, map[string]row{
		"one byte a second":      {1, time.Second, ErrSlow},
		"a silent one":           {0, time.Minute, ErrSlow},
		"a phone on a bad line":  {10 << 10, time.Second, nil},
		"one that makes a pause": {600 << 10, 20 * time.Second, nil},
	}, func(t *testing.T, tt row) {
		dir := t.TempDir() // outside of the bubble, which has a clock of its own
		synctest.Test(t, func(t *testing.T) {
			in := New(Options{Dir: dir})
			client, server := net.Pipe()
			go func() {
				defer client.Close()
				part := bytes.Repeat([]byte("0"), tt.bytes)
				for range 600 << 10 / max(tt.bytes, 1) {
					<-time.After(tt.every) // the sender is the thing that is tested, in false time
					if _, err := client.Write(part); err != nil {
						return
					}
				}
			}()
			r := request(server, "")
			w := &deadliner{ResponseRecorder: httptest.NewRecorder(), conn: server}
			r, done, err := in.Guard(w, r, "ann")
			require.NoError(t, err)
			defer done()
			begin := time.Now()
			body, err := in.Receive(r, "ann", Class{Limit: 1 << 20})
			server.Close()
			defer func() { <-time.After(2 * time.Minute) }() // the sender has noticed
			if tt.err != nil {
				require.ErrorIs(t, err, tt.err)
				require.Less(t, time.Since(begin), 40*time.Second)
				return
			}
			require.NoError(t, err)
			body.Close()
		})
	})
}

// Speed earns nobody more than two minutes of silence.
func TestSilenceAfterSpeed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		in := New(Options{Dir: dir})
		client, server := net.Pipe()
		go func() { _, _ = client.Write(make([]byte, 900<<10)) }() // enough for 142 s at the minimum speed
		w := &deadliner{ResponseRecorder: httptest.NewRecorder(), conn: server}
		r, done, err := in.Guard(w, request(server, ""), "ann")
		require.NoError(t, err)
		defer done()
		begin := time.Now()
		_, err = in.Receive(r, "ann", Class{Limit: 1 << 20})
		require.ErrorIs(t, err, ErrSlow)
		require.Equal(t, 2*time.Minute, time.Since(begin)) // in false time
		server.Close()
		client.Close()
	})
}

// deadliner is an answer on a connection with deadlines.
type deadliner struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (d *deadliner) SetReadDeadline(at time.Time) error { return d.conn.SetReadDeadline(at) }

// One sender cannot take all the places of bodies that arrive.
func TestArrivals(t *testing.T) {
	t.Parallel()
	in := newIntake(t, Options{})
	n := 0
	guard := func(share string) error {
		_, done, err := in.Guard(httptest.NewRecorder(), request(strings.NewReader("x"), ""), share)
		if err == nil {
			t.Cleanup(done)
		}
		return err
	}
	for ; n < 5000; n++ {
		if guard("greedy") != nil {
			break
		}
	}
	require.Equal(t, 1024, n)
	require.NoError(t, guard("modest"))
	_, done, err := in.Guard(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), "greedy")
	require.NoError(t, err, "a request without a body is not one of them")
	done()
}

// A sender may not fill the disk, and what it fills is free again at the end.
func TestSpoolIsBounded(t *testing.T) {
	t.Parallel()
	in := newIntake(t, Options{Limits: Limits{Memory: 1 << 20}}) // 16 MiB of disk
	receive := func(share string) (*Body, error) {
		return in.Receive(request(strings.NewReader(strings.Repeat("x", 3<<20)), ""), share, Class{Limit: 1 << 30})
	}
	var bodies []*Body
	var err error
	for range 10 {
		var body *Body
		if body, err = receive("greedy"); err != nil {
			break
		}
		bodies = append(bodies, body)
	}
	require.ErrorIs(t, err, ErrBusy)
	require.Len(t, bodies, 2)
	body, err := receive("modest")
	require.NoError(t, err)
	body.Close()
	for _, body := range bodies {
		body.Close()
	}
	body = must.Get(receive("greedy"))(t)
	body.Close()
}

// FuzzEncodings reads bytes as each encoding: nothing is read without bounds,
// and whatever happens all is given back.
func FuzzEncodings(f *testing.F) {
	for _, encoding := range []string{"gzip", "deflate", "raw deflate"} {
		f.Add(pack(f, encoding, "hello, hello, hello"))
	}
	f.Add([]byte{0x78})
	f.Add([]byte{})
	in := newIntake(f, Options{Limits: Limits{Memory: 8 << 20}})
	f.Fuzz(func(t *testing.T, sent []byte) {
		for _, encoding := range []string{"gzip", "deflate", ""} {
			body, err := in.Receive(request(bytes.NewReader(sent), encoding), "ann", Class{Limit: 2 << 20, Values: 100})
			if err != nil {
				continue
			}
			_, err = body.Load(context.Background())
			require.NoError(t, err)
			body.Close()
		}
	})
}
