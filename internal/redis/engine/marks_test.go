package engine_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

// written makes a journal of four synced scripts, and gives it with the sizes that it had
// after each.
func written(t *testing.T) (data []byte, ends []int) {
	dir := t.TempDir()
	db := open(t, dir)
	for i := range 4 {
		run(t, db, push, fmt.Sprint(i, " ", string(bytes.Repeat([]byte{'x'}, 200))))
		info := must(os.Stat(filepath.Join(dir, aof)))
		ends = append(ends, int(info.Size()))
	}
	require.NoError(t, db.Close())
	return must(os.ReadFile(filepath.Join(dir, aof))), ends
}

// broken makes the beginning of a script's block unreadable, as a page does that did not
// reach the disk.
func broken(data []byte, from int) []byte {
	b := slices.Clone(data)
	clear(b[from+4 : from+14])
	return b
}

// What was being written in a crash may be damaged anywhere, not only at its end. It is cut
// off by itself: nobody was told that it is kept.
func TestDamagedTailIsCut(t *testing.T) {
	t.Parallel()
	data, ends := written(t)
	for from := ends[2]; from < len(data)-40; from++ {
		b := slices.Clone(data)
		clear(b[from : from+40])
		db := openCopy(t, b)
		require.Len(t, list(t, db), 3, "zeros at %d of %d", from, len(data))
		run(t, db, push, "on")
		require.NoError(t, db.Close())
	}
}

// What was synced and is damaged now stops the hub, and one command repairs it.
func TestDamageBeforeTheTailIsRepaired(t *testing.T) {
	t.Parallel()
	data, ends := written(t)
	dir, b := t.TempDir(), broken(data, ends[1])
	require.NoError(t, os.WriteFile(filepath.Join(dir, aof), b, 0o600))
	require.ErrorContains(t, errOf(engine.Open(engine.Options{Dir: dir})), "comfyhub repair-journal")
	require.Equal(t, b, must(os.ReadFile(filepath.Join(dir, aof))), "evidence is not touched")

	kept, lost, err := engine.Repair(dir)
	require.NoError(t, err)
	require.Equal(t, len(data), int(kept+lost))
	evidence := must(os.ReadFile(filepath.Join(dir, aof+".damaged")))
	require.Equal(t, b, evidence)
	db := open(t, dir)
	require.Len(t, list(t, db), 2)
	_, _, err = engine.Repair(dir)
	require.ErrorIs(t, err, engine.ErrLocked)
	require.NoError(t, db.Close())
	_, lost, err = engine.Repair(dir)
	require.NoError(t, err)
	require.Zero(t, lost, "it is well")
}

// A journal of a version without marks is read as that version did.
func TestJournalWithoutMarks(t *testing.T) {
	t.Parallel()
	var data []byte
	var ends []int
	for i := range 3 {
		for _, args := range [][]string{{"MULTI"}, {"RPUSH", "list", fmt.Sprint(i)}, {"SET", "last", fmt.Sprint(i)}, {"EXEC"}} {
			data = engine.AppendCommand(data, args...)
		}
		ends = append(ends, len(data))
	}
	db := openCopy(t, data)
	require.Len(t, list(t, db), 3)
	run(t, db, push, "on")
	require.NoError(t, db.Close())
	dir := t.TempDir()
	b := slices.Clone(data)
	copy(b[ends[1]:], "nonsense")
	require.NoError(t, os.WriteFile(filepath.Join(dir, aof), b, 0o600))
	require.ErrorContains(t, errOf(engine.Open(engine.Options{Dir: dir})), "damaged after byte")
}

// A disk that is full in the middle of a block loses nothing that was acknowledged, at
// whichever byte that is, whether the process dies then or there is space again.
func TestDiskIsFullAtEachByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	block := 0
	acknowledged := []string{"first"}
	run(t, db, push, "first")
	for n, whole := 0, false; !whole; n++ {
		repair := db.FillDisk(n)
		value := fmt.Sprint("value ", n)
		if _, err := db.run(push, value); err == nil {
			whole, block = true, n
		} else {
			require.ErrorIs(t, err, syscall.ENOSPC)
			data := must(os.ReadFile(filepath.Join(dir, aof)))
			crashed := openCopy(t, data)
			require.Equal(t, acknowledged, list(t, crashed))
			require.NoError(t, crashed.Close())
			require.ErrorIs(t, errOf(db.run(push, "refused")), syscall.ENOSPC)
			repair()
			require.NoError(t, db.Usable())
		}
		acknowledged = append(acknowledged, value)
		require.Equal(t, acknowledged, list(t, db))
	}
	require.Greater(t, block, len("MULTI EXEC"))
	db.Abandon()
	require.Equal(t, acknowledged, list(t, open(t, dir)))
}

// A sync that began before the disk was full, and had to wait, finds that all it was called for
// is on the disk. The disk is full all the same, and nothing more is done.
func TestLateSyncKnowsNothingOfAFullDisk(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	run(t, db, push, "first")
	late := db.SyncLate()
	repair := db.FillDisk(0)
	require.ErrorIs(t, errOf(db.run(push, "second")), syscall.ENOSPC)
	require.NoError(t, late())
	require.ErrorIs(t, errOf(db.run(push, "refused")), syscall.ENOSPC)
	repair()
	require.NoError(t, db.Usable())
	require.Equal(t, []string{"first", "second"}, list(t, db))
}

func TestPipe(t *testing.T) {
	t.Parallel()
	client, server := engine.Pipe()
	must(client.Write(bytes.Repeat([]byte("x"), 1<<20))) // nobody reads yet
	require.NoError(t, server.SetReadDeadline(time.Now().Add(-time.Second)))
	buf := make([]byte, 1<<20)
	n, err := io.ReadFull(server, buf)
	require.NoError(t, err, "what is there is read whatever the deadline")
	require.Equal(t, 1<<20, n)
	require.ErrorIs(t, errOf(server.Read(buf)), os.ErrDeadlineExceeded)
	require.NoError(t, server.SetReadDeadline(time.Time{}))
	read := make(chan error)
	go func() { _, err := server.Read(buf); read <- err }()
	require.NoError(t, server.SetReadDeadline(time.Now()))
	require.ErrorIs(t, <-read, os.ErrDeadlineExceeded, "a deadline ends a read that waits")
	require.NoError(t, server.SetReadDeadline(time.Time{}))

	must(client.Write([]byte("last")))
	require.NoError(t, client.Close())
	require.Equal(t, "last", string(must(io.ReadAll(server))))
	require.ErrorIs(t, errOf(server.Write([]byte("x"))), io.ErrClosedPipe)
	require.ErrorIs(t, errOf(client.Read(buf)), io.EOF)
}

// bench is an engine with a client.
type bench struct {
	*engine.Engine
	client goredis.UniversalClient
}

// open starts an engine in a folder; "" keeps nothing. It ends with the test.
func open(t testing.TB, dir string) *bench {
	e := must(engine.Open(engine.Options{Dir: dir}))
	b := &bench{Engine: e, client: goredis.NewClient(&goredis.Options{Dialer: e.Dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1})}
	t.Cleanup(func() { _ = b.client.Close(); require.NoError(t, e.Close()) })
	return b
}

// run runs a script and waits until it is on the disk.
func (b *bench) run(script string, args ...any) ([]string, error) {
	compiled, err := engine.Compile("test", engine.Undeclared+script)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = fmt.Sprint(arg)
	}
	if err := b.Usable(); err != nil {
		return nil, err
	}
	reply, err := b.Run(compiled, nil, texts)
	if syncErr := b.Sync(); syncErr != nil {
		return nil, syncErr
	}
	return reply, err
}

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errOf returns the error of a call alone.
func errOf[T any](_ T, err error) error { return err }
