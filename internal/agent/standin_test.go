package agent

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
)

// An A1111 server joins the fleet through the agent, and hubs use it there as they use a
// ComfyUI.
func TestA1111JoinsTheFleet(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	sd := simsd.New(simsd.Config{VRAM: 8 << 30})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = sd.Serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-done })

	h := startHub(t, "127.0.0.1:0")
	defer h.stop(t)
	list, err := targets("box", nil, nil, []string{"http://" + ln.Addr().String()})
	require.NoError(t, err)
	stop := startAgent(t, config{name: "box", join: []string{h.Local().Addr}, targets: list, bind: "127.0.0.1:0", serve: "127.0.0.1:0"})
	i := h.await(t, "the server is there", "box", ready)
	require.Equal(t, fleet.KindA1111, i.Kind)
	client := newClient(t, i)
	_, err = client.Submit(t.Context(), []byte(`{"prompt_id": "p", "client_id": "sid", "prompt": {"1": {"class_type": "A1111Txt2Img", "inputs": {"payload": "{\"steps\": 1, \"width\": 8, \"height\": 8}"}}}}`))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, found, err := client.History(t.Context(), "p")
		return err == nil && found
	}, time.Minute, 5*time.Millisecond)
	require.Len(t, sd.Done(), 1)
	stop()
}
