package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// execFor is how long a program may take, and killedFor how long its output is waited for after it
// was killed.
const execFor, killedFor = 50 * time.Second, 2 * time.Second

// Exec is a program that starts and stops machines. It gets a [Change] as JSON on its standard
// input, and has done it if its exit code is 0. What it writes to its standard error says why not.
type Exec struct {
	// Command is the program and its arguments. It inherits the hub's environment, but for the hub's
	// own variables, which hold secrets.
	Command []string
}

// Set implements [Provider].
func (e Exec) Set(ctx context.Context, c Change) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, execFor)
	defer cancel()
	said := &tail{}
	p := exec.CommandContext(ctx, e.Command[0], e.Command[1:]...) // #nosec G204 -- the operator's own, from the configuration
	p.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "COMFYHUB_") })
	p.Stdin, p.Stderr, p.WaitDelay = bytes.NewReader(append(body, '\n')), said, killedFor
	endAll(p)
	err = p.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // done, and what it has left running has its output
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s took too long%s", e.Command[0], said)
	}
	return fmt.Errorf("%s: %w%s", e.Command[0], err, said)
}

// tail keeps the end of what is written.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p[max(len(p)-maxSaid, 0):]...)
	t.text = t.text[max(len(t.text)-maxSaid/2, 0):]
	return len(p), nil
}

// String is the text behind a colon, on one line; empty if there is none.
func (t *tail) String() string {
	text := strings.ToValidUTF8(strings.Join(strings.Fields(string(t.text)), " "), "?")
	if text == "" {
		return ""
	}
	return ": " + text
}
