package scale

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// As a program, this test is one that starts machines.
func TestMachineProgram(t *testing.T) {
	t.Parallel()
	switch os.Getenv("SCALE_TEST") {
	case "":
		t.Skip("only as a program")
	case "well":
		var c Change
		require.NoError(t, json.NewDecoder(os.Stdin).Decode(&c))
		require.NoError(t, os.WriteFile(os.Getenv("SCALE_FILE"), []byte(c.ID+" "+strings.Join(c.Remove, ",")+os.Getenv("COMFYHUB_SECRET")), 0o600))
	case "fails":
		_, _ = os.Stderr.WriteString(strings.Repeat("noise ", 1000) + "\nno quota\n")
		os.Exit(3)
	case "hangs":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, _ = l.Accept()
	}
}

// A program gets the change, and what it says when it fails is the error.
func TestExec(t *testing.T) {
	file := t.TempDir() + "/told"
	t.Setenv("COMFYHUB_SECRET", "none of its business")
	t.Setenv("SCALE_FILE", file)
	e := Exec{Command: []string{os.Args[0], "-test.run=^TestMachineProgram$"}}

	t.Setenv("SCALE_TEST", "well")
	require.NoError(t, e.Set(t.Context(), Change{ID: "abc", Class: "gpu", Wanted: 1, Remove: []string{"gpu-1"}}))
	told, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "abc gpu-1", string(told))

	t.Setenv("SCALE_TEST", "fails")
	err = e.Set(t.Context(), Change{})
	require.ErrorContains(t, err, "exit status 3")
	require.ErrorContains(t, err, "no quota")
	require.Less(t, len(err.Error()), 1000)
	require.NotContains(t, err.Error(), "\n")

	t.Setenv("SCALE_TEST", "hangs")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, e.Set(ctx, Change{}), "took too long")

	require.Error(t, Exec{Command: []string{"./there-is-no-such-program"}}.Set(t.Context(), Change{}))
}
