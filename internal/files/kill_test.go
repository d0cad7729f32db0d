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

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// victimEnv makes the test program upload files into the folder it names, until it
// is killed.
const victimEnv = "COMFYHUB_FILES_TEST_VICTIM"

// victimData returns the content of the n-th file. Every third one is the same.
func victimData(n int) []byte {
	return bytes.Repeat([]byte{byte(n), byte(n % 3)}, 1000*(1+n%3*50))
}

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

// After kill -9 at any moment, every name that was answered exists, and every file
// that exists is whole.
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
