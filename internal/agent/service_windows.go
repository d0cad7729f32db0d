package agent

import (
	"context"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
)

// serviceName is the name of the Windows service, and of the account that it runs under.
const serviceName = "comfyhub-agent"

// asService runs the agent as a Windows service if that is what started the process.
func asService() (isService bool, err error) {
	if isService, err = svc.IsWindowsService(); err != nil || !isService {
		return false, err
	}
	return true, svc.Run(serviceName, service{})
}

// service is the agent as Windows' service manager sees it.
type service struct{}

// stopTick is how often a service that stops says that it is still at it. Windows gives it
// up after three of them without a word.
const stopTick = 2 * time.Second

// Execute implements [svc.Handler]. Windows asks it to stop where other systems send SIGTERM:
// the agent waits for its runs then.
func (service) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (specific bool, code uint32) {
	status <- svc.Status{State: svc.StartPending}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	events := openEvents()
	defer events.close()
	go func() {
		cmd := newCommand()
		cmd.SetArgs(os.Args[1:])
		cmd.SetOut(events)
		cmd.SetErr(events)
		ended <- cmd.ExecuteContext(ctx)
	}()
	// Windows sends PreShutdown before it stops anything else, and waits for as long as
	// the service was installed with.
	now := svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptPreShutdown}
	status <- now
	tick := time.NewTicker(stopTick)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				events.error("agent: " + err.Error())
				return true, 1
			}
			return false, 0
		case request := <-requests:
			switch request.Cmd { //nolint:exhaustive // it accepts no others
			case svc.Interrogate:
				status <- now
			case svc.Stop, svc.PreShutdown:
				stop()
				now = stopping(now)
				status <- now
			}
		case <-tick.C:
			if now.State == svc.StopPending {
				now = stopping(now)
				status <- now
			}
		}
	}
}

// stopping is the next status of a service that stops.
func stopping(last svc.Status) svc.Status {
	return svc.Status{State: svc.StopPending, CheckPoint: last.CheckPoint + 1, WaitHint: uint32((3 * stopTick).Milliseconds())}
}

// events writes the lines of the log into the event log of Windows.
type events struct{ log *eventlog.Log }

// openEvents opens the event log. Without it the agent runs all the same.
func openEvents() events {
	log, err := eventlog.Open(serviceName)
	if err != nil {
		return events{}
	}
	return events{log}
}

// Write implements [io.Writer] for slog's text handler, which writes a line at a time.
func (e events) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	switch {
	case e.log == nil:
	case strings.Contains(text, " level=ERROR "):
		e.error(text)
	case strings.Contains(text, " level=WARN "):
		_ = e.log.Warning(1, text)
	default:
		_ = e.log.Info(1, text)
	}
	return len(line), nil
}

func (e events) error(text string) {
	if e.log != nil {
		_ = e.log.Error(1, text)
	}
}

func (e events) close() {
	if e.log != nil {
		_ = e.log.Close()
	}
}
