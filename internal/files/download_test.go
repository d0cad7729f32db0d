package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// blinking serves one file over connections that keep breaking off.
type blinking struct {
	data     atomic.Pointer[[]byte]
	modified atomic.Int64
	// plain sends nothing that tells one file from another; whole does not support ranges.
	plain, whole bool
	// most is how many bytes each connection carries; the last one applies to all that follow.
	most []int
	// after is called when a connection has broken off.
	after func(b *blinking)
	// stall keeps the connection open in silence instead of cutting it.
	stall bool

	sent     atomic.Int64 // bytes
	requests atomic.Int64
	web      *httptest.Server
}

func (b *blinking) start(t *testing.T, data []byte) {
	t.Helper()
	b.data.Store(&data)
	b.modified.Store(1_790_000_000)
	b.web = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.web.Close)
	t.Cleanup(b.web.CloseClientConnections)
}

func (b *blinking) serve(w http.ResponseWriter, r *http.Request) {
	n := int(b.requests.Add(1))
	data := b.data.Load()
	if data == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	modified := time.Unix(b.modified.Load(), 0)
	if b.whole {
		r.Header.Del("Range")
	}
	if b.plain {
		modified = time.Time{}
	} else {
		w.Header().Set("Etag", makeETag(modified, int64(len(*data))))
	}
	http.ServeContent(&cutWriter{ResponseWriter: w, b: b, r: r, left: b.most[min(n, len(b.most))-1]}, r, "x.bin", modified, bytes.NewReader(*data))
}

func (b *blinking) fetch(ctx context.Context, _ Source, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.web.URL, nil)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	return b.web.Client().Do(req)
}

// cutWriter breaks the connection off after some bytes.
type cutWriter struct {
	http.ResponseWriter
	b    *blinking
	r    *http.Request
	left int
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if len(p) <= c.left {
		c.left -= len(p)
		c.b.sent.Add(int64(len(p)))
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	c.b.sent.Add(int64(c.left))
	c.ResponseWriter.(http.Flusher).Flush()
	if c.b.after != nil {
		c.b.after(c.b)
	}
	if c.b.stall {
		<-c.r.Context().Done()
	}
	panic(http.ErrAbortHandler)
}

// A file arrives complete over a line that breaks off again and again, and no byte comes twice if
// the instance can go on where it broke off.
func TestDownloadGoesOn(t *testing.T) {
	data := make([]byte, 300<<10)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	type row struct {
		instance *blinking
		want     error // nil: the file arrives
		most     int64 // bytes sent; 0 for the file once
	}
	beside.Cases(t, map[string]row{
		"it never breaks off":       {&blinking{most: []int{1 << 20}}, nil, 0},
		"it breaks off":             {&blinking{most: []int{70 << 10}}, nil, 0},
		"before the first byte":     {&blinking{most: []int{0}}, ErrInstance, 0},
		"it stalls":                 {&blinking{most: []int{110 << 10}, stall: true}, nil, 0},
		"the server knows no range": {&blinking{most: []int{200 << 10, 1 << 20}, whole: true}, nil, 500 << 10},
		"nothing identifies it":     {&blinking{most: []int{70 << 10}, plain: true}, ErrInstance, 0},
		"it is replaced":            {&blinking{most: []int{70 << 10}, after: func(b *blinking) { b.modified.Add(1) }}, ErrChanged, 0},
		"it is deleted":             {&blinking{most: []int{70 << 10}, after: func(b *blinking) { b.data.Store(nil) }}, ErrGone, 0},
	}, func(t *testing.T, c row) {
		c.instance.start(t, data)
		patience := Patience{Contact: time.Minute, Stall: 100 * time.Millisecond}
		if errors.Is(c.want, ErrInstance) {
			patience.Contact = 300 * time.Millisecond
		}
		if !c.instance.stall {
			patience.Stall = time.Minute
		}
		d := must(startDownload(t.Context(), c.instance.fetch, Source{}, patience))
		defer d.drop()
		got, err := io.ReadAll(d)
		if c.want != nil {
			require.ErrorIs(t, err, c.want)
			return
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
		if c.instance.stall {
			return // a connection may be cut while bytes are on their way
		}
		most := c.most
		if most == 0 {
			most = int64(len(data))
		}
		require.LessOrEqual(t, c.instance.sent.Load(), most)
	})
}

// A machine with a line that hangs does not hold up the files of the others, nor do all of its own
// waiting files take up slots.
func TestSlowLineHoldsUpOnlyItself(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	hang := make(chan struct{})
	var hanging atomic.Int32
	c := NewCollector(s, func(ctx context.Context, src Source, h http.Header) (*http.Response, error) {
		if strings.HasPrefix(src.Instance, "slow") {
			hanging.Add(1)
			select {
			case <-hang:
			case <-ctx.Done():
			}
		}
		return i.fetch(ctx, src, h)
	}, CollectorOptions{Parallel: 8, Uplink: func(instance string) string { return instance[:4] }})
	t.Cleanup(c.Close)
	type copied struct {
		name string
		err  error
	}
	ends := make(chan copied, 100)
	collect := func(instance, name string) {
		i.put(output(name), "picture")
		ref := must(s.AllotOutput(t.Context(), tenant, i.source(instance, output(name))))
		go func() { _, err := c.Collect(t.Context(), tenant, ref); ends <- copied{name, err} }()
	}
	for n := range 12 {
		collect([]string{"slow/0", "slow/1"}[n%2], "slow"+string(rune('a'+n)))
	}
	require.Eventually(t, func() bool { return hanging.Load() == perUplink }, time.Minute, time.Millisecond)
	for n := range 6 {
		collect("fast/"+string(rune('0'+n)), "fast"+string(rune('a'+n)))
	}
	for range 6 {
		end := <-ends
		require.NoError(t, end.err)
		require.Contains(t, end.name, "fast")
	}
	require.EqualValues(t, perUplink, hanging.Load())
	close(hang)
	for range 12 {
		require.NoError(t, (<-ends).err)
	}
}

// A slot that nobody is waiting for any more goes to the next one.
func TestSlots(t *testing.T) {
	t.Parallel()
	s := newSlots(2)
	leave := must(s.enter(t.Context(), "a"))
	second := must(s.enter(t.Context(), "b"))
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { _, err := s.enter(ctx, "c"); gone <- err }()
	waiting := func(n int) func() bool {
		return func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.waiting) == n
		}
	}
	require.Eventually(t, waiting(1), time.Minute, time.Millisecond)
	next := make(chan func(), 1)
	go func() {
		leave, err := s.enter(t.Context(), "d")
		if err == nil {
			next <- leave
		}
	}()
	require.Eventually(t, waiting(2), time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	leave()
	(<-next)()
	second()
	require.Zero(t, s.used)
	require.Empty(t, s.byLine)
}

func TestFetch(t *testing.T) {
	s := parallelStore(t)
	s.spool = t.TempDir()
	content := "\x89PNG\r\n\x1a\n" + strings.Repeat("x", 92)
	f := must(s.Fetch(t.Context(), strings.NewReader(content), 100))
	require.EqualValues(t, 100, f.Size)
	for range 2 {
		require.Equal(t, content, string(must(io.ReadAll(f.Content()))))
	}
	e := must(ReadDataURL("data:;base64,"+base64.StdEncoding.EncodeToString([]byte(content)), 100))
	require.Equal(t, e.Ref, f.Ref, "a file has one name, however it came")
	f.Close()

	for name, c := range map[string]struct {
		content io.Reader
		wrong   error
	}{
		"too large":  {strings.NewReader(content + "x"), ErrTooLarge},
		"endless":    {io.MultiReader(strings.NewReader(content), endless{}), ErrTooLarge},
		"empty":      {strings.NewReader(""), ErrNoMedia},
		"a page":     {strings.NewReader("<html>"), ErrNoMedia},
		"broken off": {brokenReader{strings.NewReader(content)}, errBroken},
	} {
		_, err := s.Fetch(t.Context(), c.content, 100)
		require.ErrorIs(t, err, c.wrong, name)
	}
	require.Empty(t, must(os.ReadDir(s.spool)))
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
