package agent

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// restarting is a restarter whose command and process a test decides.
type restarting struct {
	restarter

	lock  sync.Mutex
	began []time.Duration
	boot  int64
	fails error
}

func newRestarting() *restarting {
	r := &restarting{boot: 1}
	start := time.Now()
	r.command = func() error {
		r.lock.Lock()
		defer r.lock.Unlock()
		r.began = append(r.began, time.Since(start))
		return r.fails
	}
	r.process = func() int64 {
		r.lock.Lock()
		defer r.lock.Unlock()
		return r.boot
	}
	// Hubs are told at once, with the state.
	r.begins, r.failed, r.log = func() { r.state() }, func() { r.state() }, discard()
	return r
}

// comesBack gives the server another process.
func (r *restarting) comesBack() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.boot++
}

// from makes the command fail from now on, or work if err is nil.
func (r *restarting) from(err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.fails = err
}

// times are when the command was run.
func (r *restarting) times() []time.Duration {
	r.lock.Lock()
	defer r.lock.Unlock()
	return slices.Clone(r.began)
}

// A server that is found sick again and again is restarted after longer and longer pauses,
// and soon again once it has gone well for hours.
func TestRestartsBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRestarting()
		require.NoError(t, r.start())
		for range 8 {
			synctest.Wait()
			r.comesBack() // it has come back, and is sick at once
			require.ErrorIs(t, r.start(), errRestarting)
			require.ErrorIs(t, r.start(), errRestarting, "which plans no second one")
			time.Sleep(time.Until(r.state().next))
		}
		synctest.Wait()
		m := time.Minute
		require.Equal(t, []time.Duration{0, 2 * m, 6 * m, 14 * m, 30 * m, 62 * m, 122 * m, 182 * m, 242 * m}, r.times())
		require.Equal(t, 9, r.state().count)
		time.Sleep(restartCured)
		require.Zero(t, r.state().count)
		require.NoError(t, r.start())
		synctest.Wait()
		require.Len(t, r.times(), 10)
	})
}

// A restart that was planned is not made when the process is another one by then.
func TestPlannedRestartOfAnotherProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRestarting()
		require.NoError(t, r.start())
		synctest.Wait()
		require.ErrorIs(t, r.start(), errRestarting, "the hub asks again, of the process that ends")
		r.comesBack()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, r.times(), 1)
		require.Zero(t, r.state().next)
	})
}

// A command that fails is tried again, and told of; the agent's end ends that.
func TestRestartCommandFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRestarting()
		r.from(errors.New("no such unit"))
		require.NoError(t, r.start())
		synctest.Wait()
		require.Equal(t, "no such unit", r.state().err)
		time.Sleep(restartPause)
		synctest.Wait()
		require.Len(t, r.times(), 2)
		r.from(nil)
		time.Sleep(2 * restartPause)
		synctest.Wait()
		require.Len(t, r.times(), 3)
		require.Empty(t, r.state().err)
		time.Sleep(2 * time.Hour)
		require.Len(t, r.times(), 3, "it has worked")

		r.from(errors.New("no"))
		require.NoError(t, r.start())
		synctest.Wait()
		r.close()
		time.Sleep(2 * time.Hour)
		require.Len(t, r.times(), 4)
	})
	require.Equal(t, restarts{}, (*restarter)(nil).state())
}
