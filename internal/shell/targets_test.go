package shell

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestTargets(t *testing.T) {
	t.Parallel()
	var list []Instance
	for _, name := range []string{"studio-1", "studio-2", "studio-10", "studio-b", "attic", "attic-1"} {
		list = append(list, Instance{Name: name})
	}
	for argument, want := range map[string]string{
		"studio-1": "studio-1", "studio": "studio-1 studio-2 studio-10", "attic": "attic", "studio-*": "studio-1 studio-2 studio-10 studio-b",
		"*-1": "studio-1 attic-1", "studio-?": "studio-1 studio-2 studio-b", "cellar": "", "studi": "", "studio-": "",
	} {
		found, err := targetsOf(list, argument)
		require.NoError(t, err, argument)
		var names []string
		for _, i := range found {
			names = append(names, i.Name)
		}
		require.Equal(t, want, strings.Join(names, " "), argument)
	}
	for argument, says := range map[string]string{"cellar-*": "no instance fits", "studio-[": "no pattern"} {
		_, err := targetsOf(list, argument)
		require.ErrorContains(t, err, says)
	}
	gone := &Refusal{Status: 404, Detail: "no instance"}
	require.ErrorContains(t, unknown(list, "atitc", gone), "did you mean attic?")
	require.ErrorIs(t, unknown(list, "atitc", gone), gone)
	require.Equal(t, error(gone), unknown(list, "cellar", gone))
}

// A command asks once before it interrupts work or touches several instances, and never otherwise.
func TestAskOnce(t *testing.T) {
	t.Parallel()
	busy, idle := Instance{Name: "a", State: "busy"}, Instance{Name: "b", State: "idle"}
	for _, c := range []struct {
		o     operation
		found []Instance
		asks  string
	}{
		{operation{verb: "drain"}, []Instance{busy}, ""},
		{operation{verb: "drain", deadline: "10m"}, []Instance{idle}, ""},
		{operation{verb: "drain", deadline: "10m"}, []Instance{busy}, "drain a? What still runs on a after 10m begins again elsewhere."},
		{operation{verb: "drain"}, []Instance{busy, idle}, "drain a, b?"},
		{operation{verb: "restart"}, []Instance{idle}, "restart b?"},
		{operation{verb: "restart"}, []Instance{idle, busy}, "restart b, a? What runs on a begins again elsewhere."},
		{operation{verb: "forget"}, []Instance{idle}, ""},
	} {
		require.Equal(t, c.asks, c.o.warning(c.found))
		for answer, goes := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "": false} {
			cmd := &cobra.Command{}
			cmd.SetIn(strings.NewReader(answer))
			out := &bytes.Buffer{}
			cmd.SetErr(out)
			err := c.o.agreed(cmd, c.found)
			require.Equal(t, goes || c.asks == "", err == nil, "%s %q", c.asks, answer)
			require.Equal(t, c.asks != "", strings.HasPrefix(out.String(), c.o.verb), out.String())
		}
		// Nobody is there to be asked.
		nobody, err := os.Open(os.DevNull)
		require.NoError(t, err)
		defer nobody.Close()
		cmd := &cobra.Command{}
		cmd.SetIn(nobody)
		err = c.o.agreed(cmd, c.found)
		var known *coded
		alone := c.o.verb == "drain" && len(c.found) == 1
		require.Equal(t, c.asks != "" && !alone, errors.As(err, &known) && known.code == ExitUsage, c.asks)
		c.o.yes = true
		require.NoError(t, c.o.agreed(cmd, c.found))
	}
}
