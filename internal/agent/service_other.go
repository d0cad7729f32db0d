//go:build !windows

package agent

import "github.com/spf13/cobra"

// asService runs the agent as a Windows service if that is what started the process.
func asService() (isService bool, err error) { return false, nil }

// platformCommands are the commands that only this system has.
func platformCommands() []*cobra.Command { return nil }
