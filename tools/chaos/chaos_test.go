package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// patience bounds each wait for something that must happen.
const patience = time.Minute

// echo sends back whatever a connection sends.
func echo(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

func TestProxy(t *testing.T) {
	t.Parallel()
	p := must.Get(newProxy(echo(t)))(t)
	t.Cleanup(p.close)
	dial := func() net.Conn {
		c := must.Get(net.Dial("tcp", p.addr()))(t)
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		t.Cleanup(func() { c.Close() })
		return c
	}
	say := func(c net.Conn) error {
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 5))
		return err
	}
	c := dial()
	require.NoError(t, say(c))

	p.cut()
	require.Error(t, say(c))
	require.NoError(t, say(dial()), "new ones pass")

	p.part()
	require.Error(t, say(dial()))
	p.heal()

	c = dial()
	require.NoError(t, say(c))
	p.hold()
	answered := make(chan error, 1)
	go func() { answered <- say(c) }()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	require.Error(t, <-answered, "nothing arrives")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	p.heal()
	_, err := io.ReadFull(c, make([]byte, 5))
	require.NoError(t, err, "what was held back arrives")

	p.slow(30 * time.Millisecond)
	begin := time.Now()
	require.NoError(t, say(c))
	require.GreaterOrEqual(t, time.Since(begin), 60*time.Millisecond, "once in each direction")
	p.heal()

	p.loseReplies()
	require.Error(t, say(c))
	p.heal()
	require.NoError(t, say(dial()))
}

func TestASeedDrawsTheSameFaults(t *testing.T) {
	t.Parallel()
	s := &stage{store: &store{addr: "127.0.0.1:1", nodes: make([]*programs.Program, 1)}, hubs: make([]*hub, 3), agents: make([]*programs.Program, 3), servers: make([]*server, 6), ears: make([]*ear, 5), tunnels: make([]*proxy, 3), disk: &disk{}}
	text := func(seed uint64) (all []string) {
		for _, one := range schedule(seed, kinds(), s, 5*time.Minute, 3*time.Second) {
			require.Less(t, one.target, one.kind.targets(s))
			require.GreaterOrEqual(t, one.lasts, one.kind.shortest)
			require.LessOrEqual(t, one.lasts, one.kind.longest)
			all = append(all, one.String())
		}
		return all
	}
	require.Equal(t, text(1), text(1))
	require.NotEqual(t, text(1), text(2))
	require.Greater(t, len(text(1)), 2*len(kinds()), "each kind at least twice")
	require.Empty(t, schedule(1, nil, s, 5*time.Minute, 3*time.Second))
}

func TestKindsByName(t *testing.T) {
	t.Parallel()
	some := must.Get(named([]string{"kill-", "reload"}))(t)
	var names []string
	for _, k := range some {
		names = append(names, k.name)
	}
	require.Equal(t, []string{"kill-hub", "kill-redis", "kill-agent", "kill-instance", "reload-hub"}, names)
	some = must.Get(named([]string{"none"}))(t)
	require.Empty(t, some)
	_, err := named([]string{"none", "no such"})
	require.Error(t, err)
	_, err = named([]string{"no such"})
	require.Error(t, err)
	seen := map[string]bool{}
	for _, k := range kinds() {
		require.False(t, seen[k.name], k.name)
		seen[k.name] = true
	}
}

func TestTheLongestSilence(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	a := newAvailability(2)
	a.spans, a.since = []span{{at(0), at(10)}, {at(30), at(40)}}, time.Time{}
	longest, from := a.longest([]time.Time{at(3), at(1), at(9), at(20), at(32)}, at(50))
	require.Equal(t, 8*time.Second, longest, "from 32 to 40; what happens between the spans does not count")
	require.Equal(t, at(32), from)

	a = newAvailability(2)
	for _, step := range []struct {
		change   func(string)
		target   string
		possible bool
	}{
		{a.down, hubName(0), true},
		{a.down, hubName(1), false},
		{a.up, hubName(0), true},
		{a.down, redisName, false},
		{a.up, hubName(1), false},
		{a.up, redisName, true},
	} {
		step.change(step.target)
		require.Equal(t, step.possible, !a.since.IsZero(), step.target)
	}
	require.Len(t, a.spans, 2)
}

func TestEveryPixelCounts(t *testing.T) {
	t.Parallel()
	p := newPrompt(0x010203, rand.New(rand.NewPCG(1, 1)))
	require.NoError(t, p.check(painted(t, 0x010203)))
	require.Error(t, p.check(painted(t, 0x010204)))
	require.Error(t, p.check(painted(t, 0x010203)[:60]))
	picture := must.Get(png.Decode(bytes.NewReader(painted(t, 0x010203))))(t)
	canvas, ok := picture.(*image.RGBA)
	require.True(t, ok)
	canvas.SetRGBA(size-1, size-1, color.RGBA{1, 2, 4, 255})
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, canvas))
	require.Error(t, p.check(b.Bytes()), "one pixel")
}

func TestAFullDisk(t *testing.T) {
	t.Parallel()
	d := must.Get(newDisk(filepath.Join(t.TempDir(), "disk")))(t)
	if d.folder != nil {
		t.Skip("only root can mount a file system: ", d.folder)
	}
	t.Cleanup(d.close)
	file, old := filepath.Join(d.path, "file"), filepath.Join(d.path, "old")
	require.NoError(t, os.WriteFile(old, make([]byte, 10_000), 0o600))
	require.NoError(t, d.fill())
	require.ErrorIs(t, os.WriteFile(file, []byte("x"), 0o600), syscall.ENOSPC)
	require.Len(t, must.Get(os.ReadFile(old))(t), 10_000)
	require.NoError(t, d.free())
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
}

func TestEar(t *testing.T) {
	t.Parallel()
	address := must.Get(freeport.Address())(t)
	member := must.Get(net.ListenPacket("udp", address))(t)
	t.Cleanup(func() { member.Close() })
	e := must.Get(newEar(address))(t)
	t.Cleanup(e.close)
	sender := must.Get(net.Dial("udp", e.addr()))(t)
	t.Cleanup(func() { sender.Close() })
	say := func(text string) { must.Get(sender.Write([]byte(text)))(t) }
	hear := func() string {
		buffer := make([]byte, 10)
		require.NoError(t, member.SetReadDeadline(time.Now().Add(patience)))
		n, _, err := member.ReadFrom(buffer)
		require.NoError(t, err)
		return string(buffer[:n])
	}
	say("first")
	require.Equal(t, "first", hear())

	e.part()
	say("second")
	require.Eventually(t, func() bool { return e.lost.Load() == 1 }, patience, time.Millisecond)
	c := must.Get(net.Dial("tcp", e.addr()))(t)
	t.Cleanup(func() { c.Close() })
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err, "a stream does not pass either")
	require.EqualValues(t, 1, e.streams.refused.Load())
	e.heal()
	say("third")
	require.Equal(t, "third", hear(), "the second is lost")

	e.slow()
	say("fourth")
	require.Equal(t, "fourth", hear())
	require.EqualValues(t, 1, e.late.Load())
	e.heal()

	e.leak()
	require.Eventually(t, func() bool { say("x"); return e.lost.Load() > 1 }, patience, time.Millisecond)
	require.Equal(t, "x", func() string { e.heal(); say("x"); return hear() }())
}

func TestLeaksOfDescriptorsAndGoroutines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after usage
		grown         string
	}{
		"the same":                 {usage{files: 50, goroutines: 80}, usage{files: 50, goroutines: 80}, ""},
		"twice and some":           {usage{files: 50, goroutines: 80}, usage{files: 164, goroutines: 224}, ""},
		"descriptors":              {usage{files: 50, goroutines: 80}, usage{files: 165, goroutines: 80}, "165 descriptors, 50 at the start"},
		"goroutines":               {usage{files: 50, goroutines: 80}, usage{files: 50, goroutines: 225}, "225 goroutines, 80 at the start"},
		"both":                     {usage{files: 1, goroutines: 1}, usage{files: 100, goroutines: 100}, "100 descriptors, 1 at the start; 100 goroutines, 1 at the start"},
		"unknown at the start":     {usage{files: 50}, usage{files: 50, goroutines: 500}, ""},
		"memory that was returned": {usage{resident: 100 << 20}, usage{resident: 10 << 20}, ""},
	} {
		require.Equal(t, c.grown, grown(c.before, c.after), name)
	}
}
