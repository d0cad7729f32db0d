package hub

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// talkative is an instance that sends a TEXT frame to every socket before each
// `executing` message with a node, as API nodes do.
type talkative struct {
	*instance
	front *httptest.Server
	mute  bool // says nothing about runs
}

func newTalkative(t *testing.T) *talkative {
	t.Helper()
	f := &talkative{instance: newInstance(t, sim.Config{})}
	f.front = simtest.Front(t, f.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		if r.URL.Path != "/ws" {
			rest.ServeHTTP(w, r)
			return
		}
		f.socket(w, r)
	})
	return f
}

// socket joins a hub's socket with a socket of the instance.
func (f *talkative) socket(w http.ResponseWriter, r *http.Request) {
	near, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer near.CloseNow()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	far, _, err := websocket.Dial(ctx, f.url()+r.URL.RequestURI(), nil)
	if err != nil {
		return
	}
	defer far.CloseNow()
	near.SetReadLimit(-1)
	far.SetReadLimit(-1)
	go func() {
		defer cancel()
		for {
			kind, data, err := near.Read(ctx)
			if err != nil || far.Write(ctx, kind, data) != nil {
				return
			}
		}
	}()
	for {
		kind, data, err := far.Read(ctx)
		if err != nil {
			return
		}
		if f.mute && !bytes.Contains(data, []byte(`"status"`)) {
			continue
		}
		if bytes.Contains(data, []byte(`"executing"`)) && !bytes.Contains(data, []byte(`"node": null`)) {
			if near.Write(ctx, websocket.MessageBinary, textFrame()) != nil {
				return
			}
		}
		if near.Write(ctx, kind, data) != nil {
			return
		}
	}
}

// textFrame is a binary frame of event type 3.
func textFrame() []byte {
	frame := binary.BigEndian.AppendUint32(nil, 3)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len("2")))
	return append(frame, "2the clouds are counted: ☁"...)
}

// TEXT frames name no prompt, and a server sends them to everybody. Behind the hub
// they reach only the client whose prompt runs.
func TestTextFrames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newTalkative(t)
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{f.front.URL} })
		b.connected(1)
		others := b.dial("bob")
		socket := b.dial("ann")
		for n := range 3 {
			id := b.submit(picture(n+1), "ann")
			got, all := socket.sequence()
			require.Equal(t, id, got)
			texts := 0
			for i, h := range all {
				if h.binary != nil {
					require.Equal(t, textFrame(), h.binary)
					require.Equal(t, "executing", all[i+1].Type, "in its place")
					texts++
				}
			}
			require.Equal(t, 2, texts, "one for each node that ran")
		}
		id := b.submit(picture(9), "bob")
		first := others.any()
		for first.Type == "status" {
			first = others.any()
		}
		require.Equal(t, "execution_start", first.Type, fmt.Sprint("nothing came before its own: ", first.raw))
		require.Equal(t, id, first.Data.PromptID)
	})
}

// A run that the hub was told nothing about is still shown with its results,
// because many clients take results only from the socket.
func TestRunThatWasNotHeardOf(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newTalkative(t)
		f.mute = true
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{f.front.URL} })
		socket := b.dial("ann")
		types := socket.until(b.submit(picture(1), "ann"))
		require.Equal(t, []string{"execution_start", "executed", "execution_success", "executing"}, types)
	})
}
