package webchat

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// called is a platform whose callback is a server that answers as told.
func called(t *testing.T, answer http.HandlerFunc) (*Webchat, chan Said) {
	t.Helper()
	said := make(chan Said, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var s Said
		if err != nil || !Verify(secret, r.Header, body, time.Now()) || json.Unmarshal(body, &s) != nil {
			t.Errorf("a callback that is not signed: %s", body)
		}
		said <- s
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	w, err := New(Options{Secret: secret, Callback: server.URL})
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w, said
}

func TestWhatIsSaid(t *testing.T) {
	t.Parallel()
	w, said := called(t, func(http.ResponseWriter, *http.Request) {})
	ctx := t.Context()
	link := func(context.Context) (string, error) { return "https://hub.example/hub/files/a.png", nil }
	post := platform.Post{
		Text: "done", ReplyTo: "1", Buttons: [][]platform.Button{{{Label: "Again", Data: "again"}}, {{Label: "Larger", Data: "upscale"}, {Label: "Help", URL: "https://help.example"}}},
		Files: []platform.Attachment{
			{Name: "a.png", Media: platform.Photo, Size: 7, Link: link},
			{Name: "preview.jpg", Media: platform.Photo}, // exists only here
			{Name: "b.png", Media: platform.Document, Link: link},
		},
	}
	ids, err := w.Send(ctx, platform.Chat{ID: "c", Topic: "t"}, post)
	require.NoError(t, err)
	require.Len(t, ids, 3, "one for each file")
	want := Said{
		Event: "send", Chat: "c", Topic: "t", Message: ids[0], ReplyTo: "1", Text: "done",
		Buttons: [][]Button{{{Label: "Again", Data: "again"}}, {{Label: "Larger", Data: "upscale"}, {Label: "Help", URL: "https://help.example"}}},
		Files: []File{
			{Name: "a.png", Media: "photo", Size: 7, URL: "https://hub.example/hub/files/a.png"},
			{Name: "b.png", Media: "document", URL: "https://hub.example/hub/files/a.png"},
		},
	}
	require.Equal(t, want, <-said)
	again := post
	again.ID = "known"
	for range 2 {
		known, err := w.Send(ctx, platform.Chat{ID: "c"}, again)
		require.NoError(t, err)
		require.Equal(t, []string{"known", "known", "known"}, known)
		require.Equal(t, "known", (<-said).Message, "one id for each attempt")
	}
	require.NoError(t, w.Edit(ctx, platform.Chat{ID: "c"}, "m", platform.Post{Text: "half"}))
	require.Equal(t, Said{Event: "edit", Chat: "c", Message: "m", Text: "half"}, <-said)
	require.NoError(t, w.Delete(ctx, platform.Chat{ID: "c"}, "m"))
	require.Equal(t, Said{Event: "delete", Chat: "c", Message: "m"}, <-said)
	require.NoError(t, w.Answer(ctx, "p", "ok"))
	require.Equal(t, Said{Event: "answer", Press: "p", Text: "ok"}, <-said)

	broken := func(context.Context) (string, error) { return "", errors.New("no link") }
	_, err = w.Send(ctx, platform.Chat{ID: "c"}, platform.Post{Files: []platform.Attachment{{Name: "a", Link: broken}}})
	require.ErrorIs(t, err, platform.ErrSource)
	require.Empty(t, said, "nothing is sent without its files")
}

// What the callback answers decides whether the bridge tries again.
func TestAnswersOfTheCallback(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		is        error
		permanent bool
	}{
		http.StatusOK:                  {nil, false},
		http.StatusNoContent:           {nil, false},
		http.StatusFound:               {platform.ErrRefused, true}, // no other server gets it
		http.StatusBadRequest:          {platform.ErrRefused, true},
		http.StatusUnauthorized:        {platform.ErrRefused, true},
		http.StatusForbidden:           {platform.ErrForbidden, true},
		http.StatusNotFound:            {platform.ErrGone, true},
		http.StatusGone:                {platform.ErrGone, true},
		http.StatusInternalServerError: {nil, false},
		http.StatusBadGateway:          {nil, false},
	} {
		w, _ := called(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "http://127.0.0.1:1/")
			rw.WriteHeader(status)
		})
		err := w.Answer(t.Context(), "p", "")
		require.Equal(t, status < 300, err == nil, "%d: %v", status, err)
		if want.is != nil {
			require.ErrorIs(t, err, want.is, "%d", status)
		}
		require.Equal(t, want.permanent, err != nil && platform.Permanent(err), "%d", status)
	}
	for after, want := range map[string]time.Duration{"7": 7 * time.Second, "": time.Second, "soon": time.Second} {
		w, _ := called(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", after)
			rw.WriteHeader(http.StatusTooManyRequests)
		})
		var wait *platform.WaitError
		require.ErrorAs(t, w.Answer(t.Context(), "p", ""), &wait)
		require.Equal(t, want, wait.After)
	}
}

// A callback that breaks off may have taken the message; the error is logged, and
// the URL may hold a secret.
func TestCallbackBreaksOff(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	w, err := New(Options{Secret: secret, Callback: server.URL + "/?token=private"})
	require.NoError(t, err)
	defer w.Close()
	err = w.Answer(t.Context(), "p", "")
	require.ErrorIs(t, err, platform.ErrUncertain)
	require.NotContains(t, err.Error(), "private")
}

func TestShortSecret(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Secret: "short", Callback: "https://chat.example/"})
	require.ErrorContains(t, err, "16 characters")
}
