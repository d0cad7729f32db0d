package programs

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A program outlives the thread of whoever has started it.
func TestProgramOutlivesAThread(t *testing.T) {
	t.Parallel()
	var p *Program
	var err error
	task := ""
	for task == "" {
		thread := make(chan string)
		go func() {
			runtime.LockOSThread()
			if syscall.Gettid() == os.Getpid() { // the process's first thread never ends
				runtime.UnlockOSThread()
				thread <- ""
				return
			}
			// It is not unlocked any more: the thread ends with this goroutine.
			p, err = Start(Spec{Name: "sleeper", Path: "/bin/sleep", Args: []string{"60"}, Dir: t.TempDir()})
			thread <- "/proc/self/task/" + strconv.Itoa(syscall.Gettid())
		}()
		task = <-thread
	}
	require.NoError(t, err)
	defer p.Kill()
	require.Eventually(t, func() bool {
		_, err := os.Stat(task)
		return os.IsNotExist(err)
	}, time.Minute, time.Millisecond)
	select {
	case <-p.Ended():
		t.Error("it was killed with the thread")
	case <-time.After(500 * time.Millisecond):
	}
}
