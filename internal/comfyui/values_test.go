package comfyui

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// What would take gigabytes once it is parsed is not taken in. A long text is, whatever is in it.
func TestValuesAreBounded(t *testing.T) {
	f := newFakeServer(t)
	c := newTestClient(t, f.URL)
	say := func(status int, body string) {
		f.answer(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/ws" {
				return false
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return true
		})
	}
	many := strings.Repeat("0,", maxValues)
	for text, want := range map[string]error{`[` + many + `0]`: ErrTooLarge, `"` + many + `"`: nil} {
		say(http.StatusOK, `{"p": {"outputs": `+text+`}}`)
		_, _, err := c.History(t.Context(), "p")
		require.ErrorIs(t, err, want)
		say(http.StatusOK, `{"prompt_id": "p", "node_errors": `+text+`}`)
		_, err = c.Submit(t.Context(), []byte("{}"))
		require.ErrorIs(t, err, want)
		say(http.StatusBadRequest, `{"error": {"type": "t"}, "node_errors": `+text+`}`)
		_, err = c.Submit(t.Context(), []byte("{}"))
		if want == nil {
			require.ErrorAs(t, err, new(*Refused))
		} else {
			require.ErrorIs(t, err, want)
		}
		info := strings.ReplaceAll(text, many, strings.Repeat("0,", maxInfoValues))
		say(http.StatusOK, `{"A": {"output": `+info+`}}`)
		_, _, err = c.ObjectInfo(t.Context(), nil)
		require.ErrorIs(t, err, want)
		socket := must.Get(c.Dial(t.Context(), "sid"))(t)
		must.Get(socket.Next(t.Context()))(t)
		f.mu.Lock()
		conns := slices.Collect(maps.Keys(f.sockets))
		f.mu.Unlock()
		// Beside the reader: the sockets' buffers do not always take so much.
		var sent sync.WaitGroup
		for _, conn := range conns {
			sent.Go(func() {
				_ = conn.Write(context.Background(), websocket.MessageText, []byte(`{"type": "executed", "data": `+text+`}`))
			})
		}
		_, err = socket.Next(t.Context())
		require.ErrorIs(t, err, want)
		socket.Close()
		sent.Wait()
	}
}
