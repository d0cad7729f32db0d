package e2e

import (
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// enclosure is a network of its own, with nothing but loopback. What runs in it can reach
// one address outside, by way of its gateway, and nobody can reach into it.
type enclosure struct {
	t  *testing.T
	do chan func()
	// gateway is where the hub is, as seen from inside.
	gateway string
}

// enclose makes a network from which only a TCP address outside can be dialed. It skips the
// test where that takes rights that the test has not.
func enclose(t *testing.T, outside string) *enclosure {
	t.Helper()
	e := &enclosure{t: t, do: make(chan func())}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it: the thread ends with the network
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = upLoopback()
		}
		entered <- err
		for f := range e.do {
			f()
		}
	}()
	t.Cleanup(func() { close(e.do) })
	if err := <-entered; err != nil {
		t.Skip("a network namespace takes root: ", err)
	}
	var inside net.Listener
	e.within(func() (err error) { inside, err = net.Listen("tcp", "127.0.0.1:80"); return err })
	t.Cleanup(func() { inside.Close() })
	e.gateway = "http://" + inside.Addr().String()
	go forward(inside, outside)
	return e
}

// within does something inside. Programs that it starts run there.
func (e *enclosure) within(f func() error) {
	e.t.Helper()
	done := make(chan error)
	e.do <- func() { done <- f() }
	require.NoError(e.t, <-done)
}

// upLoopback switches on the loopback interface of a new network.
func upLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// forward passes on what is dialed at a listener, until that is closed.
func forward(l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				defer in.Close()
				_, _ = io.Copy(in, out)
			}()
			_, _ = io.Copy(out, in)
		}()
	}
}
