package system

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// Comfy is a ComfyUI server on a machine of its own.
type Comfy struct {
	*sim.Server
	w    *World
	name string
	stop context.CancelFunc
	done chan struct{}
}

func newComfy(w *World, name string) *Comfy {
	config := w.size.Comfy
	config.Name, config.Dir, config.Logger = name, w.folder(name), w.log.With("server", name)
	if config.Models == nil {
		config.Models = map[string][]string{"checkpoints": {"a.safetensors"}}
	}
	if config.WorkPreview == 0 {
		config.WorkPreview = 8
	}
	server, err := sim.New(config)
	require.NoError(w.t, err)
	c := &Comfy{Server: server, w: w, name: name}
	c.listen()
	return c
}

// Name is that of its machine.
func (c *Comfy) Name() string { return c.name }

// URL is its address.
func (c *Comfy) URL() string { return "http://" + c.name + ":8188" }

func (c *Comfy) listen() {
	l, err := c.w.Net.Listen(c.name + ":8188")
	require.NoError(c.w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.done = stop, make(chan struct{})
	go func() {
		defer close(c.done)
		_ = c.Serve(ctx, l)
	}()
}

// Kill is kill -9.
func (c *Comfy) Kill() {
	c.w.deaths.add(c.name)
	c.w.Net.Kill(c.name)
	c.Server.Kill()
	c.stop()
	<-c.done
}

// Restart starts it again after Kill.
func (c *Comfy) Restart() {
	c.Server.Restart()
	c.listen()
}

func (c *Comfy) close() {
	c.Kill()
	c.Server.Close()
}
