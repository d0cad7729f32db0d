package hub

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// TestReadOnce: clients that open a socket for each prompt under one client id
// read up to the prompt's end and not the ping behind it. Whatever they do next,
// their next socket is not told the last prompt again.
func TestReadOnce(t *testing.T) {
	b := newBench(t, 1)
	b.dial("neighbour") // so that several clients are at one place from the start
	get := func(paths ...string) func(t *testing.T, c *client, id string) {
		return func(t *testing.T, c *client, id string) {
			for _, path := range paths {
				status, body := b.get(path + id)
				require.Equal(t, http.StatusOK, status, string(body))
			}
			require.NoError(t, c.conn.CloseNow())
		}
	}
	for name, c := range map[string]struct {
		goOn func(t *testing.T, c *client, id string)
		// again means that nothing shows that the client has read it.
		again bool
	}{
		"closes in order":           {goOn: func(_ *testing.T, c *client, _ string) { _ = c.conn.Close(websocket.StatusNormalClosure, "") }},
		"fetches the history entry": {goOn: get("/history/")},
		"fetches it below /api":     {goOn: get("/api/history/")},
		"fetches the job":           {goOn: get("/api/jobs/")},
		"posts a prompt that is refused": {goOn: func(t *testing.T, c *client, _ string) {
			status, body := b.post("/prompt", `{"prompt": {}, "client_id": "reads once and posts a prompt that is refused"}`)
			require.Equal(t, http.StatusBadRequest, status, string(body))
			require.NoError(t, c.conn.CloseNow())
		}},
		"looks at another entry":           {goOn: get("/history/another"), again: true},
		"is cut off":                       {goOn: get(), again: true},
		"lists the history under its name": {goOn: get("/history?clientId=" + url.QueryEscape("reads once and lists the history under its name") + "&of=")},
		"lists the history beside others":  {goOn: get("/history?of="), again: true},
		"another one fetches it": {again: true, goOn: func(t *testing.T, c *client, id string) {
			status, _ := b.get("/history/" + id + "?clientId=another")
			require.Equal(t, http.StatusOK, status)
			require.NoError(t, c.conn.CloseNow())
		}},
		"fetches the picture, as many do before they read the end": {again: true, goOn: func(t *testing.T, c *client, id string) {
			// Reading the history under another name is not a receipt for this client.
			status, body := b.get("/history/" + id + "?clientId=another")
			require.Equal(t, http.StatusOK, status, string(body))
			var all map[string]entry
			require.NoError(t, json.Unmarshal(body, &all), string(body))
			status, body = b.get("/view?type=output&filename=" + all[id].Outputs["2"].Images[0].Filename)
			require.Equal(t, http.StatusOK, status, string(body))
			require.NoError(t, c.conn.CloseNow())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			client := "reads once and " + name
			first := b.dial(url.QueryEscape(client))
			id := b.submit(picture(len(name)), client)
			first.until(id)
			c.goOn(t, first, id)
			next := b.dial(url.QueryEscape(client))
			if c.again {
				require.Equal(t, id, next.next().Data.PromptID)
				return
			}
			second := b.submit(picture(len(name)), client)
			require.Equal(t, second, next.next().Data.PromptID)
		})
	}
}

// TestPostAtAnotherHub: the hub that has a client's socket hears late of a prompt that was
// posted to another hub. The client may have made that POST before it was told the last
// end, have begun to read then, and have lost its socket before it read the end. Nor is it
// a POST when a waiting job moves in the queue.
func TestPostAtAnotherHub(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newPair(t, 1, 0)
		first := one.dial("me")
		id := one.submit(picture(1), "me")
		first.until(id)
		require.NoError(t, first.conn.CloseNow())
		two.finished(two.submit(picture(2), "me"))
		require.Equal(t, id, one.dial("me").next().Data.PromptID)
	})
}
