package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// ann is a client with a socket, who posts prompts of one kind.
type ann struct {
	together
	t      *testing.T
	w      *system.World
	hub    *system.Hub
	socket *websocket.Conn
	// heard are the frames since the last post.
	heard [][]byte
}

func (a *ann) listen() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	socket, _, err := websocket.Dial(ctx, a.hub.URL()+"/ws?clientId=ann", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: a.w.Net.Dialer("ann"), DisableKeepAlives: true}},
	})
	require.NoError(a.t, err)
	socket.SetReadLimit(64 << 20)
	a.socket = socket
}

func (a *ann) post(id string, seed int, extra string) {
	a.t.Helper()
	a.heard = nil
	body := fmt.Sprintf(`{"prompt_id": %q, "client_id": "ann", "extra_data": {%s}, "prompt": %s}`, id, extra, a.graph(seed))
	status, answer := a.hub.Call(http.MethodPost, "/prompt", body)
	require.Equal(a.t, http.StatusOK, status, string(answer))
}

// follow reads the socket until the end of a prompt, and a little longer.
func (a *ann) follow(id string) {
	a.t.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		kind, frame, err := a.socket.Read(ctx)
		cancel()
		require.NoError(a.t, err)
		require.NotContains(a.t, string(frame), "comfyhub_part")
		if kind != websocket.MessageText {
			continue
		}
		a.heard = append(a.heard, frame)
		if bytes.Contains(frame, []byte(`"executing"`)) && bytes.Contains(frame, []byte(`"node": null`)) && bytes.Contains(frame, []byte(id)) {
			return
		}
	}
}

// othersSave has each server count its files from another number than the rest, as after years of other
// people's pictures.
func (a *ann) othersSave() {
	a.t.Helper()
	web := &http.Client{Transport: &http.Transport{DialContext: a.w.Net.Dialer("ann"), DisableKeepAlives: true}}
	for n, c := range a.w.Comfys {
		body := fmt.Sprintf(`{"prompt": {"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": %d, "color": 0}},
			"2": {"class_type": "SaveImage", "inputs": {"filename_prefix": "ComfyUI", "images": ["1", 0]}}}}`, 90-20*n)
		answer, err := web.Post(c.URL()+"/prompt", "application/json", strings.NewReader(body))
		require.NoError(a.t, err)
		require.Equal(a.t, http.StatusOK, answer.StatusCode)
		_ = answer.Body.Close()
	}
	<-time.After(15 * time.Second)
}

// told are the messages of a type.
func (a *ann) told(kind string) (list []string) {
	for _, frame := range a.heard {
		if bytes.HasPrefix(frame, []byte(`{"type": "`+kind+`"`)) {
			list = append(list, string(frame))
		}
	}
	return list
}

// toldOfAllNodes checks that the client was told of each node, and of the progress of all in one
// message.
func (a *ann) toldOfAllNodes() {
	a.t.Helper()
	var graph map[string]any
	require.NoError(a.t, json.Unmarshal([]byte(a.graph(0)), &graph))
	boards := a.told("progress_state")
	require.NotEmpty(a.t, boards)
	cached := strings.Join(a.told("execution_cached"), "")
	for id := range graph {
		if strings.Contains(cached, strconv.Quote(id)) {
			continue
		}
		require.Contains(a.t, strings.Join(a.told("executing"), ""), `"node": "`+id+`"`)
		require.Contains(a.t, boards[len(boards)-1], `"`+id+`": {`)
	}
}

// history is the entry of a prompt, and the names of its pictures.
func (a *ann) history(id string) (entry string, names []string) {
	a.t.Helper()
	status, answer := a.hub.Call(http.MethodGet, "/history/"+id, "")
	require.Equal(a.t, http.StatusOK, status)
	var history map[string]struct {
		Outputs map[string]struct {
			Images []struct{ Filename string }
		}
	}
	require.NoError(a.t, json.Unmarshal(answer, &history), string(answer))
	for _, saver := range a.savers {
		for _, i := range history[id].Outputs[saver].Images {
			names = append(names, i.Filename)
		}
	}
	return string(answer), names
}

// looks are the pictures of a prompt, those of a batch without what they say about their graph.
func (a *ann) looks(id string) (all []string) {
	a.t.Helper()
	_, names := a.history(id)
	require.Len(a.t, names, pictures)
	for _, name := range names {
		status, picture := a.hub.Call(http.MethodGet, "/view?filename="+url.QueryEscape(name)+a.channel, "")
		require.Equal(a.t, http.StatusOK, status, name)
		all = append(all, string(picture))
	}
	return all
}

// sees checks that a prompt was one run to its client, and that its pictures are those of one server.
func (a *ann) sees(id string, seed int) {
	a.t.Helper()
	entry, names := a.history(id)
	require.NotContains(a.t, entry, "comfyhub_part")
	require.Equal(a.t, 1, strings.Count(entry, "execution_start"))
	require.Contains(a.t, entry, `"success"`)
	var history map[string]struct {
		Prompt []json.RawMessage
		Meta   map[string]any
	}
	require.NoError(a.t, json.Unmarshal([]byte(entry), &history))
	var wanted []string
	require.NoError(a.t, json.Unmarshal(history[id].Prompt[4], &wanted))
	require.ElementsMatch(a.t, a.savers, wanted)
	require.Len(a.t, history[id].Meta, len(a.savers))
	require.Len(a.t, names, pictures)
	require.True(a.t, slices.IsSorted(names))
	var first, last int
	_, err := fmt.Sscanf(names[0]+" "+names[pictures-1], "ComfyUI_%d_.png ComfyUI_%d_.png", &first, &last)
	require.NoError(a.t, err)
	require.Equal(a.t, pictures-1, last-first, names)
	looks := a.looks(id)
	whole := id + "-whole"
	a.post(whole, seed, wholly)
	a.follow(whole)
	for n, picture := range a.looks(whole) {
		require.True(a.t, picture == looks[n], "picture %d", n) // the bytes say nothing to a reader
		require.False(a.t, n > 0 && looks[n] == looks[n-1], "picture %d is that before it", n)
	}
}
