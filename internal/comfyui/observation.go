package comfyui

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"syscall"
	"time"
)

// Observation is what [Watch] knows of a server at one moment. Observations can
// be compared with ==.
type Observation struct {
	// Up says that the server answers and its event socket is open. While it
	// is false, the fields about the queue are empty and the others tell what
	// was known last.
	Up bool
	// Reason says in plain words why the server is not up.
	Reason string
	// QueueRemaining counts running and waiting prompts.
	QueueRemaining int
	// Foreign counts those of them that no hub dispatched.
	Foreign int
	// Running is the server's id of the running prompt, "" when none runs.
	Running string
	// RunningMark says whose it is; zero for a foreign one.
	RunningMark Mark
	// Version, GPU, GPUType and VRAM (bytes) are from /system_stats; VRAMFree
	// is refreshed at each check.
	Version             Version
	GPU, GPUType        string
	VRAMTotal, VRAMFree int64
	// CUDADevice is the server's --cuda-device, "" when it was not given.
	CUDADevice string
	// Command is the server's command line without the interpreter, its arguments
	// separated by NULs.
	Command string
	// ObjectInfoHash names the server's object_info, "" until it was read.
	ObjectInfoHash string
	// Boot tells one life of the server process from the next: the moment
	// when it was first seen, in milliseconds since the Unix epoch.
	Boot int64
	// Since is when Up or Idle last changed.
	Since time.Time
}

// Idle reports whether the server would start a prompt at once.
func (o Observation) Idle() bool { return o.Up && o.QueueRemaining == 0 }

func (o *Observation) takeStats(stats Stats) {
	o.Version = stats.Version
	o.Command = strings.Join(stats.Argv, "\x00")
	o.CUDADevice = stats.Flag("--cuda-device")
	if len(stats.Devices) > 0 {
		d := stats.Devices[0]
		o.GPU, o.GPUType, o.VRAMTotal, o.VRAMFree = d.Name, d.Type, d.VRAMTotal, d.VRAMFree
	}
}

// plainReason says in a few words why a server cannot be reached. Operators
// read it on the dashboard.
func plainReason(err error) string {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var status *StatusError
	switch {
	case errors.Is(err, ErrHub):
		return ErrHub.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns):
		return "host name unknown: " + dns.Name
	case errors.As(err, &certificate):
		return "its certificate is not trusted"
	case errors.As(err, &status):
		return status.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrSilent):
		return "no answer in time"
	case errors.Is(err, ErrUnreachable):
		return "no connection"
	}
	return err.Error()
}

// isTimeout reports whether an error says only that something took too long.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
