package files

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// losing has the stores of two hubs on one storage and one Redis, which loses its last writes.
type losing struct {
	*Store
	t     *testing.T
	other *Store
}

// losesWrites returns stores, and a function that makes Redis lose what was written since the call.
func losesWrites(t *testing.T, before func(l *losing)) (l *losing, rewind func()) {
	t.Helper()
	server, dir := redistest.Start(t), t.TempDir()
	db := redistest.Open(t, server.URL())
	l = &losing{Store: newStoreAt(t, db, dir), t: t, other: newStoreAt(t, redistest.Open(t, server.URL()), dir)}
	for _, s := range []*Store{l.Store, l.other} {
		require.NoError(t, s.recovery.Heal(t.Context()))
	}
	before(l)
	back := server.Save()
	return l, func() {
		back()
		// Commands must not meet connections that ended with the server.
		for _, s := range []*Store{l.Store, l.other} {
			require.Eventually(t, func() bool { return s.db.Ping(t.Context()) == nil }, time.Minute, time.Millisecond)
		}
	}
}

// allot gives a file of an instance its name.
func (l *losing) allot(s *Store, src Source) string {
	l.t.Helper()
	return must(s.AllotOutput(l.t.Context(), tenant, src)).Filename
}

// store copies the bytes of an output to the storage.
func (l *losing) store(name, data string) Entry {
	l.t.Helper()
	e := must(l.Resolve(l.t.Context(), tenant, output(name)))
	key := outputKey("ab" + name)
	must(l.storage.Write(l.t.Context(), key, strings.NewReader(data)))
	require.NoError(l.t, l.blobs.hold(l.t.Context(), key))
	e = must(l.SetStored(l.t.Context(), tenant, e, Copied{Key: key, Size: int64(len(data)), SHA256: strings.Repeat("a", 64)}))
	return e
}

// A name that Redis has forgotten is not given to another file, whichever hub is asked, even if the
// hub that gave it is gone.
func TestLostNamesAreNotGivenAgain(t *testing.T) {
	beside.Cases(t, map[string][]string{
		"the next number":              {"x_00001_.png", "x_00001_.png"},
		"a number of the instance":     {"x_00002_.png", "x_00003_.png"},
		"a number far above":           {"x_00002_.png", "x_00500_.png"},
		"no counter":                   {"out.glb", "out.glb"},
		"no counter, the first of all": {"x_00001_.png", "out.glb"},
	}, func(t *testing.T, names []string) {
		l, rewind := losesWrites(t, func(l *losing) { l.allot(l.Store, made("a", names[0], "1")) })
		given := map[string]bool{}
		for n := range 3 * blockSize {
			given[l.allot(l.Store, made("b", names[1], string(rune('b'+n))))] = true
		}
		require.Len(t, given, 3*blockSize)
		rewind()
		for n := range 3 * blockSize {
			again := l.allot(l.other, made("c", names[1], string(rune('b'+n))))
			require.False(t, given[again], "%s was given before", again)
			given[again] = true
		}
	})
}

// Numbers continue without gaps if nothing was lost, and two hubs share their blocks.
func TestNumbersHaveNoGapsWhileRedisLives(t *testing.T) {
	t.Parallel()
	l, rewind := losesWrites(t, func(*losing) {})
	for n := range 40 {
		s := []*Store{l.Store, l.other}[n%2]
		require.Equal(t, numberedName(n+1), l.allot(s, made(string(rune('a'+n)), "x_00001_.png", "1")))
	}
	rewind() // all of them
	name := l.allot(l.Store, made("z", "x_00001_.png", "2"))
	n, ok := parseNumbered(name)
	require.True(t, ok)
	require.Greater(t, n.number, int64(40))
	require.LessOrEqual(t, n.number, int64(40+4*blockSize))
}

func numberedName(n int) string {
	return "x_" + string([]byte{'0', '0', '0', byte('0' + n/10), byte('0' + n%10)}) + "_.png"
}

// What a hub has given within the last minute is put back, with all counts.
func TestLostNamesArePutBack(t *testing.T) {
	beside.Cases(t, map[string]func(l *losing){
		"by the look after a restart": func(l *losing) { require.NoError(l.t, l.recovery.Heal(l.t.Context())) },
		"by the one who asks for it": func(l *losing) {
			must(l.Resolve(l.t.Context(), tenant, output("x_00001_.png")))
		},
	}, func(t *testing.T, find func(l *losing)) {
		l, rewind := losesWrites(t, func(*losing) {})
		l.allot(l.Store, made("a", "x_00001_.png", "1"))
		stored := l.store("x_00001_.png", "the picture")
		l.allot(l.Store, made("a", "x_00002_.png", "2"))
		must(l.Upload(t.Context(), tenant, job.FileRef{Type: job.TypeInput, Filename: "in.png"}, false, strings.NewReader("input")))
		removed := l.allot(l.Store, made("a", "x_00003_.png", "3"))
		require.NoError(t, l.Remove(t.Context(), tenant, []job.FileRef{output(removed)}))
		before := allOf(t, l.db)
		rewind()
		find(l)
		e := must(l.other.Resolve(t.Context(), tenant, output("x_00001_.png")))
		require.Equal(t, stored.Key, e.Key)
		require.NoError(t, must(l.other.Open(t.Context(), e, 0, -1)).Close())
		l.other.recovery.settled.Store(nil) // no hub is left that could put it back
		_, err := l.other.Resolve(t.Context(), tenant, output("x_00003_.png"))
		require.ErrorIs(t, err, ErrNotFound, "it was removed on purpose")
		after := allOf(t, l.db)
		for _, key := range []string{"refs", "shares", "total", "uploads:" + tenant} {
			require.Equal(t, before[key], after[key], key)
		}
		require.Equal(t, "x_00002_.png", l.allot(l.Store, made("a", "x_00002_.png", "2")), "a file that is met again keeps its name")
	})
}

// A hub that is asked for a name that another one has given waits for that to put it back.
func TestLostNamesOfAnotherHub(t *testing.T) {
	t.Parallel()
	l, rewind := losesWrites(t, func(*losing) {})
	name := output(l.allot(l.Store, made("a", "x_00001_.png", "1")))
	rewind()
	ctx, cancel := context.WithTimeout(t.Context(), settleFor/10)
	defer cancel()
	_, err := l.other.Resolve(ctx, tenant, name)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, l.recovery.Heal(t.Context()))
	must(l.other.Resolve(t.Context(), tenant, name))
}

// allOf reads counts that scripts keep.
func allOf(t *testing.T, db *redis.DB) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, name := range []string{"refs", "total", "uploads:" + tenant} {
		all := must(db.Client().HGetAll(t.Context(), db.Key("files", name)).Result())
		out[name] = all
	}
	shares := must(db.Client().ZRangeWithScores(t.Context(), db.Key("files", "shares"), 0, -1).Result())
	out["shares"] = shares
	return out
}

// A name that another hub has removed stays away as long as Redis loses nothing.
func TestNothingIsPutBackThatWasNotLost(t *testing.T) {
	t.Parallel()
	l, _ := losesWrites(t, func(*losing) {})
	name := l.allot(l.Store, made("a", "x_00001_.png", "1"))
	require.NoError(t, l.other.Remove(t.Context(), tenant, []job.FileRef{output(name)}))
	require.NoError(t, l.recovery.Heal(t.Context()))
	_, err := l.Resolve(t.Context(), tenant, output(name))
	require.ErrorIs(t, err, ErrNotFound)
}

// No name is given while the storage cannot say whether it is free; afterwards it is the one that
// would have been given right away.
func TestNoNamesWithoutTheStorage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStoreAt(t, redistest.Open(t, redistest.Start(t).URL()), dir)
	folder := filepath.Join(dir, "names")
	require.NoError(t, os.Symlink(folder, folder)) // nobody can read that
	src := made("a", "x_00001_.png", "1")
	_, err := s.AllotOutput(t.Context(), tenant, src)
	require.ErrorIs(t, err, ErrStorage)
	require.NoError(t, os.Remove(folder))
	require.Equal(t, "x_00001_.png", must(s.AllotOutput(t.Context(), tenant, src)).Filename)
}

// What the storage knows about numbers that were given long ago is eventually deleted; no name is
// given again then, because Redis knows it.
func TestOldBlocksAreSwept(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Open(t, redistest.Start(t).URL()))
	for n := range 2 * blockSize {
		must(s.AllotOutput(t.Context(), tenant, made(string(rune('a'+n)), "x_00001_.png", "1")))
	}
	require.Len(t, s.stored(t, blockPrefix), 3, "numbers begin at 1")
	for _, days := range []int{59, 61} {
		for part := range SweepParts {
			must(NewRetention(s).Sweep(t.Context(), part, time.Now().AddDate(0, 0, days), 0, func(context.Context) (map[string]bool, error) { return nil, nil }))
		}
		if days < 60 {
			require.Len(t, s.stored(t, blockPrefix), 3)
		} else {
			require.Empty(t, s.stored(t, blockPrefix))
		}
	}
	require.Equal(t, numberedName(2*blockSize+1), must(s.AllotOutput(t.Context(), tenant, made("z", "x_00001_.png", "2"))).Filename)
}

// victimEnv makes the test program upload files into the folder it names until it is killed.
const victimEnv = "COMFYHUB_FILES_TEST_VICTIM"

// victimData returns the content of the n-th file. Every third one is the same.
func victimData(n int) []byte { return bytes.Repeat([]byte{byte(n), byte(n % 3)}, 1000*(1+n%3*50)) }

// victim prints each name to standard output once it has been answered.
func victim(dir string) error {
	ctx := context.Background()
	db, err := redis.Open(ctx, redis.Options{URL: redis.Embedded, Dir: dir})
	if err != nil {
		return err
	}
	storage, err := OpenStorage(ctx, filepath.Join(dir, "files"))
	if err != nil {
		return err
	}
	s := New(db, storage, Options{SpoolDir: dir})
	for n := 0; ; n++ {
		ref, err := s.Upload(ctx, tenant, input("a.bin"), n%5 == 0, bytes.NewReader(victimData(n%200)))
		if err != nil {
			return err
		}
		fmt.Println(ref.Filename)
	}
}

// After kill -9 at any moment, every name that was answered exists, and every file that exists is
// complete.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answered := map[string]bool{}
	for round := range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimEnv+"="+dir)
		var trouble strings.Builder
		cmd.Stderr = &trouble
		out := must(cmd.StdoutPipe())
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for range 5 + 7*round {
			require.True(t, lines.Scan(), trouble.String())
			answered[lines.Text()] = true
		}
		require.NoError(t, cmd.Process.Kill())
		for lines.Scan() {
			answered[lines.Text()] = true
		}
		_ = cmd.Wait()
		checkWhole(t, dir, answered)
	}
	left := must(filepath.Glob(filepath.Join(dir, "comfyhub-upload-*")))
	require.LessOrEqual(t, len(left), 4, "a death between making and unlinking a spool leaves at most that one")
}

func checkWhole(t *testing.T, dir string, answered map[string]bool) {
	t.Helper()
	db := redistest.OpenDir(t, dir)
	defer db.Close() // the next round needs the folder
	storage := must(OpenStorage(t.Context(), filepath.Join(dir, "files")))
	defer storage.Close()
	s := New(db, storage, Options{})
	entries := must(s.List(t.Context(), tenant, job.TypeInput, ""))
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Ref.Filename] = true
		body := must(s.Open(t.Context(), e, 0, -1))
		data := must(io.ReadAll(body))
		require.NoError(t, body.Close())
		require.Equal(t, e.SHA256, sum(data), e.Ref.Filename)
	}
	for name := range answered {
		require.True(t, there[name], name)
	}
}
