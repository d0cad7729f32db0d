package notebook

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// open opens a book, and returns it with what others have noted.
func open(t *testing.T, o Options) (b *Book, noted []string) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b = Open(o, func(n Note) {
		var parts []string
		for _, part := range n.Parts {
			parts = append(parts, string(part))
		}
		noted = append(noted, strings.Join(parts, "|"))
	})
	return b, noted
}

func note(b *Book, parts ...string) {
	var all [][]byte
	for _, part := range parts {
		all = append(all, []byte(part))
	}
	b.Add(all...)
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// What was noted is there for the next process, whether the one before was closed or killed.
func TestNextProcessReadsTheNotes(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		o := Options{Dir: filepath.Join(t.TempDir(), "notes"), Life: time.Minute, Bytes: 1 << 20}
		first, noted := open(t, o)
		require.Empty(t, noted)
		note(first, "a", "", strings.Repeat("long", 10_000))
		note(first, "b")
		synctest.Wait() // written, not closed
		second, noted := open(t, o)
		require.Equal(t, []string{"a||" + strings.Repeat("long", 10_000), "b"}, noted)
		note(second, "c")
		second.Close()
		note(second, "too late")
		first.Close()
		third, noted := open(t, o)
		defer third.Close()
		require.Equal(t, []string{"b", "c"}, noted[1:])
	})
}

// A process that is killed while it writes leaves half a note. Those before it are read.
func TestTornNote(t *testing.T) {
	t.Parallel()
	o := Options{Dir: t.TempDir(), Life: time.Minute, Bytes: 1 << 20}
	b, _ := open(t, o)
	note(b, "whole")
	b.Close()
	path := filepath.Join(o.Dir, names(t, o.Dir)[0])
	whole := must.Get(os.ReadFile(path))(t)
	for n := range whole {
		require.NoError(t, os.WriteFile(path, slices.Concat(whole, whole[:n]), 0o600))
		_, noted := open(t, o)
		require.Equal(t, []string{"whole"}, noted, "%d bytes of the second", n)
	}
	damaged := slices.Concat(whole, whole)
	damaged[len(damaged)-1]++
	require.NoError(t, os.WriteFile(path, damaged, 0o600))
	_, noted := open(t, o)
	require.Equal(t, []string{"whole"}, noted)
}

// Notes go when they are too old or too much, those of the processes before as well.
func TestNotesAreBounded(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		o := Options{Dir: t.TempDir(), Life: time.Minute, Bytes: 100_000}
		add := func(b *Book, n int, pause time.Duration) {
			for i := range n {
				note(b, fmt.Sprintf("%0200d", i))
				synctest.Wait()
				<-time.After(pause)
			}
		}
		b, _ := open(t, o)
		add(b, 300, time.Second) // small, for five minutes
		b.Close()
		b, noted := open(t, o)
		require.GreaterOrEqual(t, len(noted), 60)
		require.Less(t, len(noted), 100)
		add(b, 2000, time.Millisecond) // much, within two seconds
		b.Close()
		size := int64(0)
		for _, name := range names(t, o.Dir) {
			info := must.Get(os.Stat(filepath.Join(o.Dir, name)))(t)
			size += info.Size()
		}
		require.LessOrEqual(t, size, o.Bytes+o.Bytes/10)
		b, noted = open(t, o)
		require.Greater(t, len(noted), 200)
		<-time.After(time.Hour)
		add(b, 1, 0)
		b.Close()
		_, noted = open(t, o)
		require.Len(t, noted, 1)
	})
}

// While the disk takes nothing, notes are lost, which is said once. Then it goes on.
func TestDiskTakesNoNotes(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var log strings.Builder
		o := Options{Dir: filepath.Join(t.TempDir(), "notes"), Life: time.Minute, Bytes: 1 << 20, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		b, _ := open(t, o)
		require.NoError(t, os.WriteFile(o.Dir, nil, 0o600)) // no folder can be made here
		for range 10 {
			note(b, "lost")
			synctest.Wait()
		}
		require.Equal(t, 1, strings.Count(log.String(), "cannot note"))
		require.NoError(t, os.Remove(o.Dir))
		note(b, "kept")
		b.Close()
		_, noted := open(t, o)
		require.Equal(t, []string{"kept"}, noted)
	})
}

// A disk that gives nothing keeps nobody from starting, and no note is written over. What could not
// be read is there for the process after this one.
func TestDiskGivesNoNotes(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	o := Options{Dir: filepath.Join(t.TempDir(), "notes"), Life: time.Minute, Bytes: 1 << 20, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	first, _ := open(t, o)
	note(first, "before")
	first.Close()
	require.Empty(t, log.String())

	require.NoError(t, os.Rename(o.Dir, o.Dir+".away"))
	require.NoError(t, os.WriteFile(o.Dir, nil, 0o600)) // no folder can be read here
	second, noted := open(t, o)
	require.Empty(t, noted)
	require.Equal(t, 1, strings.Count(log.String(), "cannot read"))
	require.NoError(t, os.Remove(o.Dir))
	require.NoError(t, os.Rename(o.Dir+".away", o.Dir))
	note(second, "after")
	second.Close()

	page := filepath.Join(o.Dir, names(t, o.Dir)[0])
	require.NoError(t, os.Rename(page, page+".away"))
	require.NoError(t, os.Mkdir(page, 0o700)) // no file can be read here
	third, noted := open(t, o)
	require.Equal(t, []string{"after"}, noted)
	note(third, "last")
	third.Close()
	require.NoError(t, os.Remove(page))
	require.NoError(t, os.Rename(page+".away", page))
	_, noted = open(t, o)
	require.Equal(t, []string{"before", "after", "last"}, noted)
}

// What waits for the disk is bounded.
func TestUnwrittenNotesAreBounded(t *testing.T) {
	t.Parallel()
	b, _ := open(t, Options{Dir: t.TempDir(), Life: time.Minute, Bytes: 1 << 30})
	b.writing = true // somebody is, and the disk does not answer
	large := make([]byte, maxUnwritten/4)
	for range 10 {
		b.Add(large)
	}
	require.LessOrEqual(t, b.bytes, int64(maxUnwritten))
	require.Len(t, b.unwritten, 3)
}

func FuzzCut(f *testing.F) {
	for _, n := range []Note{{At: time.UnixMilli(0)}, {At: time.UnixMilli(-7), Parts: [][]byte{nil, []byte("a"), make([]byte, 300)}}} {
		f.Add(written(n))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, rest, ok := cut(data)
		if !ok {
			return
		}
		again, none, ok := cut(written(n))
		require.True(t, ok)
		require.Empty(t, none)
		require.Equal(t, n, again)
		require.Less(t, len(rest), len(data))
	})
}

func written(n Note) []byte {
	var b strings.Builder
	_ = n.write(&b)
	return []byte(b.String())
}
