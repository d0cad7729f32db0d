package instance

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// An unused panel is closed.
func TestIdlePanel(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var work panics.Group
		panels := &Panels{work: &work}
		conn := NewLink(fleet.Instance{Name: "gpu"}, nil, &FreeSets{}, slog.New(slog.DiscardHandler))
		conn.overheard.listen()
		var closed atomic.Bool
		p := &panel{conn: conn, used: time.Now(), cancel: func() { closed.Store(true) }}
		panels.all = map[*panel]struct{}{p: {}}
		stop := p.watchIdle(panels)
		time.Sleep(panelIdle - time.Second)
		require.True(t, panels.touch(p))
		time.Sleep(panelIdle - time.Second)
		synctest.Wait()
		require.False(t, closed.Load())
		time.Sleep(panelIdle / 2)
		synctest.Wait()
		require.True(t, closed.Load())
		require.False(t, panels.touch(p))
		stop()
		work.Wait()
	})
}

func TestBackground(t *testing.T) {
	t.Parallel()
	frame := func(kind, prompt string) comfyui.Frame {
		data := sure(json.Marshal(map[string]any{"type": kind, "data": map[string]string{"prompt_id": prompt}}))
		return comfyui.Frame{Data: data}
	}
	idle, busy := func() bool { return true }, func() bool { return false }
	var b background
	b.note(frame("monitor", ""), idle)
	b.note(frame("trainer", ""), busy)
	b.note(frame("finished", "p"), idle)
	b.note(frame(comfyui.TypeProgress, ""), idle)
	b.note(comfyui.Frame{Binary: true, Data: []byte("monitor")}, idle)
	require.True(t, b.Has(comfyui.Message{Type: "monitor"}))
	require.False(t, b.Has(comfyui.Message{Type: "monitor", PromptID: "p"}))
	for _, kind := range []string{"trainer", "finished", comfyui.TypeProgress} {
		require.False(t, b.Has(comfyui.Message{Type: kind}), kind)
	}
	for n := range 10 * maxBackground {
		b.note(frame(strconv.Itoa(n), ""), idle)
	}
	require.Len(t, b.types, maxBackground)
}

func said(text string) comfyui.Frame {
	return comfyui.Frame{Data: []byte(`{"type": "my.panel", "data": "` + text + `"}`)}
}

func TestOverheard(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var o overheard
		o.note(said("nobody listens"))
		require.Empty(t, o.notes)
		a, b := o.listen(), o.listen()
		now := func(text string) arrived { return arrived{said(text), time.Now()} }

		require.False(t, o.broadcast(now("mine"), &a))
		o.note(said("everybody's"))
		require.True(t, o.broadcast(now("everybody's"), &a))
		require.False(t, o.broadcast(now("everybody's"), &a), "the same text once more, to this client alone")
		require.True(t, o.broadcast(now("everybody's"), &b), "each socket has its own")

		o.note(said("before"))
		c := o.listen()
		require.False(t, o.broadcast(now("before"), &c), "it was sent when this socket was not there")

		late := now("late")
		time.Sleep(catchUp + time.Second)
		require.True(t, o.broadcast(late, &a), "it can no longer be known")

		early := now("flood 1")
		for i := range maxOverheard + 10 {
			o.note(said(fmt.Sprint("flood ", i)))
		}
		require.Len(t, o.notes, maxOverheard)
		require.True(t, o.broadcast(early, &a), "what was forgotten counts as sent to everybody")
		require.True(t, o.broadcast(now("mine"), &a), "for a while")
		time.Sleep(catchUp + time.Second)
		require.False(t, o.broadcast(now("mine"), &a))

		for range 3 {
			o.unlisten()
		}
		o.note(said("nobody listens"))
		require.Empty(t, o.notes)
	})
}

// TestCoreMessagesAreNotPassed: messages of runs come over the connection instead.
func TestCoreMessagesAreNotPassed(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{
		"status", "execution_start", "execution_cached", "executing", "progress", "progress_state", "executed", "execution_success",
		"execution_error", "execution_interrupted", "feature_flags", "logs",
	} {
		require.False(t, isCustom(comfyui.Frame{Data: []byte(`{"type": "` + kind + `", "data": {}}`)}), kind)
	}
	for event := range byte(7) {
		require.Equal(t, event > 4, isCustom(comfyui.Frame{Binary: true, Data: []byte{0, 0, 0, event, 0, 0, 0, 1, 'x'}}), event)
	}
	require.True(t, isCustom(said("")))
	for _, odd := range []string{"", "{", "[]", `{"data": {}}`} {
		require.False(t, isCustom(comfyui.Frame{Data: []byte(odd)}))
	}
}
