package members

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// A machine with a token gets no instance under another's name, and whoever looks at the fleet sees why.
func TestNameThatATokenDoesNotAdmit(t *testing.T) {
	t.Parallel()
	registry := fleet.NewRegistry()
	m := New(Options{
		Fleet: registry, Refused: func(string) {}, Policy: func() *fleet.Policy { return &fleet.Policy{Prefix: "/i/"} },
		Log: func() *slog.Logger { return slog.New(slog.DiscardHandler) },
	})
	m.seen = func(fleet.Report) {}
	m.take(fleet.Report{
		Agent: "attic", Boot: 1, Seq: 1, Sender: fleet.Sender{Key: fleet.TunnelKey, Tunnel: true},
		Instances: []fleet.InstanceReport{{Name: "gpu7-x", URL: "tunnel://attic/i/gpu7-x", Up: true}},
	})
	_, known := registry.Instance("gpu7-x")
	require.False(t, known)
	list := registry.Instances()
	require.Len(t, list, 1)
	require.Equal(t, "attic", list[0].Name)
	require.Contains(t, list[0].Reason, "admits only the names attic and attic-...")
}
