package hubapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// hub is a client of a server that answers as told.
func hub(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c := must.Get(New(server.URL, Options{}))(t)
	t.Cleanup(c.Close)
	return c
}

// calls are all calls that read an answer.
var calls = map[string]func(context.Context, *Client) error{
	"submit": func(ctx context.Context, c *Client) error {
		_, err := c.Submit(ctx, Submission{Graph: []byte(`{}`)})
		return err
	},
	"job":    func(ctx context.Context, c *Client) error { _, err := c.Job(ctx, "t", "j"); return err },
	"cancel": func(ctx context.Context, c *Client) error { return c.Cancel(ctx, "t", "j") },
	"result": func(ctx context.Context, c *Client) error { _, err := c.Result(ctx, "t", "j"); return err },
	"stats":  func(ctx context.Context, c *Client) error { _, err := c.Stats(ctx); return err },
	"classes": func(ctx context.Context, c *Client) error {
		_, err := c.ObjectInfo(ctx)
		return err
	},
	"explain": func(ctx context.Context, c *Client) error { _, err := c.Explain(ctx, "t", "j"); return err },
	"upload": func(ctx context.Context, c *Client) error {
		_, err := c.Upload(ctx, "t", "a.png", strings.NewReader("x"))
		return err
	},
	"view": func(ctx context.Context, c *Client) error {
		body, _, err := c.View(ctx, "t", comfyui.FileRef{Filename: "a.png"})
		if err == nil {
			body.Close()
		}
		return err
	},
	"link": func(ctx context.Context, c *Client) error {
		_, err := c.Link(ctx, "t", comfyui.FileRef{Filename: "a.png"}, time.Hour)
		return err
	},
	"follow": func(ctx context.Context, c *Client) error {
		s, err := c.Follow(ctx, "t", "c")
		if err == nil {
			s.Close()
		}
		return err
	},
}

// "Not now" is ErrUnavailable from every call, and nothing else is: what is
// repeated for ever must be worth it.
func TestNotNow(t *testing.T) {
	t.Parallel()
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, status := range []int{408, 429, 500, 502, 503, 504} {
				c := hub(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
				require.ErrorIs(t, call(t.Context(), c), ErrUnavailable, "%d", status)
			}
			broken := hub(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			require.ErrorIs(t, call(t.Context(), broken), ErrUnavailable, "a connection that ends")
			if name == "follow" {
				return // a socket that does not open is always worth another attempt
			}
			for _, status := range []int{400, 413} {
				c := hub(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
				err := call(t.Context(), c)
				require.Error(t, err, "%d", status)
				require.NotErrorIs(t, err, ErrUnavailable, "%d", status)
			}
		})
	}
}

func TestUnknownToTheHub(t *testing.T) {
	t.Parallel()
	c := hub(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	for _, name := range []string{"job", "result", "explain", "view", "link"} {
		require.ErrorIs(t, calls[name](t.Context(), c), ErrNotFound, name)
	}
	require.NoError(t, calls["cancel"](t.Context(), c), "what is not there needs no cancel")
	none := hub(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
	_, err := none.Result(t.Context(), "t", "j")
	require.ErrorIs(t, err, ErrNotFound, "a history without the job")
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status           int
		position, answer string
		want             int
		refused          *RefusedError
		said             string
		eta              time.Duration
	}{
		"a time":     {status: 200, answer: `{"prompt_id": "p"}`, want: -1, said: "12.5", eta: 12500 * time.Millisecond},
		"no time":    {status: 200, answer: `{"prompt_id": "p"}`, want: -1, said: "NaN"},
		"an age":     {status: 200, answer: `{"prompt_id": "p"}`, want: -1, said: "1e99"},
		"taken":      {200, "3", `{"prompt_id": "p"}`, 3, nil, "", 0},
		"no place":   {200, "", `{"prompt_id": "p"}`, -1, nil, "", 0},
		"odd place":  {200, "first", `{"prompt_id": "p"}`, -1, nil, "", 0},
		"refused":    {400, "", `{"error": {"type": "t", "message": "m", "details": "d"}, "node_errors": {}}`, -1, &RefusedError{400, "t", "m", "d"}, "", 0},
		"of a node":  {400, "", `{"error": {"type": "t", "message": "m"}, "node_errors": {"5": {"class_type": "K", "errors": [{"message": "bad", "details": "steps"}]}}}`, -1, &RefusedError{400, "t", "m", "K (node 5): bad: steps"}, "", 0},
		"no text":    {413, "", `too large`, -1, &RefusedError{Status: 413}, "", 0},
		"other JSON": {400, "", `{"error": "old"}`, -1, &RefusedError{Status: 400}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tenant, body string
			client := hub(t, func(w http.ResponseWriter, r *http.Request) {
				data, _ := io.ReadAll(r.Body)
				tenant, body = r.Header.Get(tenantHeader), string(data)
				w.Header().Set("X-ComfyHub-Position", c.position)
				w.Header().Set("X-ComfyHub-Eta", c.said)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.answer)
			})
			taken, err := client.Submit(t.Context(), Submission{Tenant: "telegram:1", Client: "c", Prompt: "p", Graph: []byte(`{"1":{"seed":18446744073709551615}}`)})
			require.Equal(t, c.want, taken.Position)
			require.Equal(t, c.eta, taken.ETA)
			require.Equal(t, "telegram:1", tenant)
			require.Equal(t, `{"client_id":"c","prompt":{"1":{"seed":18446744073709551615}},"prompt_id":"p"}`, body, "the graph is as it was")
			if c.refused == nil {
				require.NoError(t, err)
				return
			}
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, c.refused, refused)
		})
	}
}

func TestJob(t *testing.T) {
	t.Parallel()
	c := hub(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/hub/jobs/a%2Fb", r.URL.EscapedPath(), "an id stays in its segment")
		_, _ = io.WriteString(w, `{"id": "a/b", "status": "done", "position": null, "started_at": 10.5, "finished_at": 12}`)
	})
	j := must.Get(c.Job(t.Context(), "t", "a/b"))(t)
	require.True(t, j.Ended())
	require.Equal(t, 1500*time.Millisecond, j.Took())
	require.Nil(t, j.Position)
	require.Zero(t, Job{}.Took())
	require.Zero(t, Job{}.Left())
	for eta, want := range map[float64]time.Duration{2.5: 2500 * time.Millisecond, -1: 0, 1e99: 0} {
		require.Equal(t, want, Job{ETA: &eta}.Left())
	}
	require.False(t, Job{Status: "running"}.Ended())
}

func TestResult(t *testing.T) {
	t.Parallel()
	const record = `{"p": {"prompt": [0, "p", {}, {}, ["9"]],
		"outputs": {"9": {"images": [{"filename": "a.png", "subfolder": "s", "type": "output"}, {"filename": "a.png", "subfolder": "s", "type": "output"}]}},
		"status": {"status_str": "error", "completed": false, "messages": [["execution_error", {"prompt_id": "p"MESSAGE}]]}}}`
	for message, want := range map[string]string{`, "exception_message": "out of memory"`: "out of memory", ``: "unknown error"} {
		c := hub(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Replace(record, "MESSAGE", message, 1))
		})
		result := must.Get(c.Result(t.Context(), "t", "p"))(t)
		require.Equal(t, []comfyui.FileRef{{Filename: "a.png", Subfolder: "s", Type: "output"}}, result.Files, "each file once")
		require.Equal(t, want, result.Failure)
	}
}

func TestUpload(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"name": "a (1).png", "subfolder": "", "type": "input"}`: "a (1).png",
		`{"name": "a.png", "subfolder": "s", "type": "input"}`:    "s/a.png",
		`{}`: "", `no JSON`: "",
	} {
		c := hub(t, func(w http.ResponseWriter, r *http.Request) {
			file, header, err := r.FormFile("image")
			if err != nil || header.Filename != "a.png" {
				t.Errorf("the form: %v %v", header, err)
				return
			}
			data, err := io.ReadAll(file)
			if err != nil || string(data) != "pixels" {
				t.Errorf("the file: %q %v", data, err)
			}
			_, _ = io.WriteString(w, answer)
		})
		name, err := c.Upload(t.Context(), "t", "a.png", strings.NewReader("pixels"))
		require.Equal(t, want, name)
		require.Equal(t, want == "", err != nil, answer)
	}
	// What cannot be read is not stored as a shorter file.
	stored := false
	c := hub(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			stored = true
		}
		_, _ = io.WriteString(w, `{"name": "a.png"}`)
	})
	_, err := c.Upload(t.Context(), "t", "a.png", io.MultiReader(strings.NewReader("pix"), failing{}))
	require.Error(t, err)
	require.False(t, stored)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("gone") }

// Pictures and messages come as they are; what is neither is left out.
func TestFollow(t *testing.T) {
	t.Parallel()
	preview := append([]byte{0, 0, 0, 1, 0, 0, 0, 1}, "jpeg"...)
	c := hub(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("clientId") != "a b&c" || r.Header.Get(tenantHeader) != "t" {
			t.Errorf("%s of %s", r.URL, r.Header.Get(tenantHeader))
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		for _, frame := range []struct {
			kind websocket.MessageType
			data []byte
		}{
			{websocket.MessageBinary, []byte{1}},
			{websocket.MessageText, []byte(`no JSON`)},
			{websocket.MessageBinary, preview},
			{websocket.MessageText, []byte(`{"type": "executing", "data": {"node": null, "prompt_id": "p"}}`)},
			{websocket.MessageBinary, bytes.Repeat([]byte{1}, maxFrame+1)},
		} {
			if conn.Write(r.Context(), frame.kind, frame.data) != nil {
				return
			}
		}
		_, _, _ = conn.Read(r.Context())
	})
	s := must.Get(c.Follow(t.Context(), "t", "a b&c"))(t)
	defer s.Close()
	require.Equal(t, "jpeg", string(must.Get(s.Next(t.Context()))(t).Preview))
	second := must.Get(s.Next(t.Context()))(t)
	require.Equal(t, "executing", second.Type)
	require.Equal(t, "p", second.PromptID)
	_, err := s.Next(t.Context())
	require.ErrorIs(t, err, ErrUnavailable, "a frame without bounds ends the stream")
}

// A hub that does not answer holds up nobody for long.
func TestTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	c := must.Get(New(server.URL, Options{Timeout: 50 * time.Millisecond}))(t)
	defer c.Close()
	for _, name := range []string{"submit", "job", "cancel", "result", "stats", "classes", "explain", "link", "follow"} {
		require.ErrorIs(t, calls[name](t.Context(), c), ErrUnavailable, name)
	}
}

func TestNewReadsTheHubsURL(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"http://127.0.0.1:8188", "https://user:pass@hub.example/comfy/"} {
		c, err := New(base, Options{})
		require.NoError(t, err, base)
		c.Close()
	}
	// A query or fragment would swallow every path.
	for _, base := range []string{"hub.example", "http://", "ftp://hub.example", "http://hub.example/?a=", "http://hub.example/#x", "http://u:secret@hub.example:x/"} {
		_, err := New(base, Options{})
		require.ErrorIs(t, err, errBase, base)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A link is put behind the operator's own address; it must not lead away.
func TestLinkIsAPath(t *testing.T) {
	t.Parallel()
	var link string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"url":"` + link + `"}`))
	}))
	defer server.Close()
	c := must.Get(New(server.URL, Options{}))(t)
	defer c.Close()
	for _, link = range []string{"@evil.example/x", ".evil.example/x", "https://evil.example/x", "//evil.example/x", ""} {
		_, err := c.Link(t.Context(), "t", comfyui.FileRef{Filename: "a.png"}, time.Hour)
		require.ErrorIs(t, err, errLink, link)
	}
	link = "/hub/files/a.png?exp=1"
	got := must.Get(c.Link(t.Context(), "t", comfyui.FileRef{Filename: "a.png"}, time.Hour))(t)
	require.Equal(t, link, got)
	link = "/comfyui/hub/files/a.png?exp=1" // the hub was asked below a path
	got = must.Get(c.Link(t.Context(), "t", comfyui.FileRef{Filename: "a.png"}, time.Hour))(t)
	require.Equal(t, "/hub/files/a.png?exp=1", got)
}

func TestNoOtherServerHearsOfTheTenant(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s of %s", r.Method, r.URL, r.Header.Get(tenantHeader))
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL+"/view", http.StatusTemporaryRedirect))
	defer server.Close()
	c := must.Get(New(server.URL, Options{}))(t)
	defer c.Close()
	_, _, err := c.View(t.Context(), "telegram:1", comfyui.FileRef{Filename: "a.png"})
	require.ErrorIs(t, err, ErrNotFound)
}

// What only the operator can mend is waited for like an outage, and known by its cause.
func TestDenied(t *testing.T) {
	t.Parallel()
	const missing = `{"error": {"type": "missing_scope", "message": "Your API key does not permit this", "details": "It would need the scope read.", "extra_info": {}}, "node_errors": {}}`
	for name, c := range map[string]struct {
		status int
		body   string
		call   string
		denied bool
	}{
		"no key":                   {http.StatusUnauthorized, `{"error": {"type": "unauthorized", "message": "no key"}}`, "submit", true},
		"no key for the fleet":     {http.StatusUnauthorized, "", "stats", true},
		"a key for too little":     {http.StatusForbidden, "", "submit", true},
		"a scope is missing":       {http.StatusForbidden, missing, "submit", true},
		"no scope to upload":       {http.StatusForbidden, missing, "upload", true},
		"no scope to cancel":       {http.StatusForbidden, missing, "cancel", true},
		"no scope to explain":      {http.StatusForbidden, missing, "explain", true},
		"no scope to link":         {http.StatusForbidden, missing, "link", true},
		"no scope to read":         {http.StatusForbidden, missing, "view", true},
		"another host name":        {http.StatusForbidden, `{"error": {"type": "unknown_host", "message": "The hub does not answer to this host name", "details": "", "extra_info": {}}, "node_errors": {}}`, "submit", true},
		"a proxy without Host":     {http.StatusForbidden, `{"error": {"type": "foreign_origin", "message": "The request comes from a page of another site"}}`, "submit", true},
		"no hub to upload to":      {http.StatusNotFound, "<html>", "upload", true},
		"a file that is not there": {http.StatusNotFound, "", "view", false},
		"another server":           {http.StatusNotFound, "<html>", "submit", true},
		"a workflow that is not":   {http.StatusForbidden, `{"error": {"type": "forbidden", "message": "not this model"}}`, "submit", false},
		"a job that is not there":  {http.StatusNotFound, "", "job", false},
		"a hub that is away":       {http.StatusBadGateway, "", "submit", false},
	} {
		client := hub(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		})
		require.NoError(t, client.Denied())
		err := calls[c.call](t.Context(), client)
		require.Error(t, err)
		if !c.denied {
			require.NotErrorIs(t, err, ErrDenied, name)
			require.NoError(t, client.Denied(), name)
			continue
		}
		require.ErrorIs(t, err, ErrDenied, name)
		require.ErrorIs(t, err, ErrUnavailable, name)
		require.ErrorIs(t, client.Denied(), ErrDenied, name)
	}
}

// An output in a folder that is none is not there, and no fault of the key: the hub answers 403.
func TestViewOfNoFolder(t *testing.T) {
	t.Parallel()
	c := hub(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	for _, folder := range []string{"..", `a\..\..`, "/etc"} {
		_, _, err := c.View(t.Context(), "t", comfyui.FileRef{Filename: "a.png", Subfolder: folder, Type: "output"})
		require.ErrorIs(t, err, ErrNotFound, folder)
	}
	require.NoError(t, c.Denied())
}
