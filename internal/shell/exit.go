package shell

import (
	"errors"
	"fmt"
)

// The exit codes of all commands. Scripts depend on them: see docs/shell.md.
const (
	// ExitDone is success: the job is done, or, without --wait, accepted.
	ExitDone = 0
	// ExitFailed says that the job has failed, that the hub has refused it, or that
	// there is no such job.
	ExitFailed = 1
	// ExitUsage says that the command makes no sense, or a file of its own cannot be
	// read.
	ExitUsage = 2
	// ExitCancelled says that the job was cancelled.
	ExitCancelled = 3
	// ExitUnknown says that the hub cannot be reached or that files could not be
	// stored, whatever has become of the job.
	ExitUnknown = 4
	// ExitInterrupted says that the user has interrupted the command. The job goes on.
	ExitInterrupted = 130
)

// errShown is an error about which everything has been said.
var errShown = errors.New("has been shown")

// coded is an error with the exit code that it leads to.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// usagef is an error in the command that the user wrote.
func usagef(format string, args ...any) error {
	return &coded{ExitUsage, fmt.Errorf(format, args...)}
}

// codeOf is the exit code of a command that ends with an error.
func codeOf(err error) int {
	var c *coded
	var refusal *Refusal
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &c):
		return c.code
	case errors.As(err, &refusal) && refusal.Status < 500:
		return ExitFailed
	}
	return ExitUnknown
}

// verdict is the end of a command that has waited for a job.
func verdict(j Job) error {
	switch j.Status {
	case StatusCompleted:
		return nil
	case StatusCancelled:
		return &coded{ExitCancelled, errShown}
	}
	return &coded{ExitFailed, errShown}
}
