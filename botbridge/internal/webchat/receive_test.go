package webchat

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

var secret = strings.Repeat("s", 16)

// deliver posts a message with a signature of some age and gives the answer.
func deliver(w *Webchat, admit platform.Admit, body, with string, age time.Duration) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body))
	timestamp := strconv.FormatInt(time.Now().Add(-age).Unix(), 10)
	r.Header.Set(timestampHeader, timestamp)
	r.Header.Set(signatureHeader, Sign(with, timestamp, []byte(body)))
	answer := httptest.NewRecorder()
	w.Routes(admit)["POST "+Path].ServeHTTP(answer, r)
	return answer
}

func TestReceive(t *testing.T) {
	w := must.Get(New(Options{Secret: secret, Callback: "http://127.0.0.1:1"}))(t)
	t.Cleanup(w.Close)
	const least = `{"id": "1", "chat": "c", "user": "u"}`
	type row struct {
		body, secret string
		age          time.Duration
		admit        error
		status       int
	}
	beside.Cases(t, map[string]row{
		"the least":           {least, secret, 0, nil, http.StatusAccepted},
		"a clock ahead":       {least, secret, -maxSkew + time.Minute, nil, http.StatusAccepted},
		"another secret":      {least, strings.Repeat("x", 16), 0, nil, http.StatusUnauthorized},
		"an old one":          {least, secret, maxSkew + time.Minute, nil, http.StatusUnauthorized},
		"one of the future":   {least, secret, -maxSkew - time.Minute, nil, http.StatusUnauthorized},
		"no JSON":             {`{`, secret, 0, nil, http.StatusBadRequest},
		"no id":               {`{"chat": "c", "user": "u"}`, secret, 0, nil, http.StatusBadRequest},
		"no chat":             {`{"id": "1", "user": "u"}`, secret, 0, nil, http.StatusBadRequest},
		"no user":             {`{"id": "1", "chat": "c"}`, secret, 0, nil, http.StatusBadRequest},
		"a long one":          {`{"id": "1", "chat": "c", "user": "u", "text": "` + strings.Repeat("x", maxBody) + `"}`, secret, 0, nil, http.StatusRequestEntityTooLarge},
		"one for another day": {least, secret, 0, errors.New("Redis is away"), http.StatusServiceUnavailable},
	}, func(t *testing.T, c row) {
		admitted := 0
		answer := deliver(w, func(context.Context, platform.Event) error { admitted++; return c.admit }, c.body, c.secret, c.age)
		require.Equal(t, c.status, answer.Code, answer.Body)
		handled := c.status == http.StatusAccepted || c.admit != nil
		require.Equal(t, handled, admitted == 1, "only what is signed and whole is handled")
		require.Equal(t, c.admit != nil, answer.Header().Get("Retry-After") != "")
	})
}

// A signature is one of its body and time.
func TestVerify(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	header := func(timestamp, signature string) http.Header {
		h := http.Header{}
		h.Set(timestampHeader, timestamp)
		h.Set(signatureHeader, signature)
		return h
	}
	good := Sign(secret, "1700000000", []byte("body"))
	require.True(t, Verify(secret, header("1700000000", good), []byte("body"), now))
	require.False(t, Verify(secret, header("1700000000", good), []byte("other"), now))
	require.False(t, Verify(secret, header("1700000001", good), []byte("body"), now))
	require.False(t, Verify(secret, header("", good), []byte("body"), now))
	require.False(t, Verify(secret, header("now", good), []byte("body"), now))
	require.False(t, Verify(secret, header("1700000000", ""), []byte("body"), now))
	require.False(t, Verify(secret, http.Header{}, []byte("body"), now))
}

func TestHeardIsAnEvent(t *testing.T) {
	w := must.Get(New(Options{Secret: secret, Callback: "http://127.0.0.1:1"}))(t)
	t.Cleanup(w.Close)
	picture := []platform.File{{ID: "https://chat.example/a.png", Name: "a.png", Type: "image/png"}}
	const files = `"files": [{"url": "https://chat.example/a.png", "name": "a.png", "type": "image/png"}]`
	type row struct {
		body string
		want platform.Event
	}
	beside.Cases(t, map[string]row{
		"said": {
			`{"id": "1", "chat": "c", "group": true, "user": "u", "name": "Ann", "language": "ru", "text": "cat", ` + files + `}`,
			platform.Event{
				ID: "1", Kind: platform.Said, Chat: platform.Chat{ID: "c", Group: true}, User: platform.User{ID: "u", Name: "Ann", Language: "ru"},
				Message: platform.Message{ID: "1", Text: "cat", Files: picture},
			},
		},
		"edited": {
			`{"id": "2", "chat": "c", "user": "u", "message": "1", "edited": true, "text": "dog"}`,
			platform.Event{ID: "2", Kind: platform.Edited, Chat: platform.Chat{ID: "c"}, User: platform.User{ID: "u"}, Message: platform.Message{ID: "1", Text: "dog"}},
		},
		"a reply": {
			`{"id": "3", "chat": "c", "user": "u", "reply_to": {"message": "1", ` + files + `}}`,
			platform.Event{
				ID: "3", Kind: platform.Said, Chat: platform.Chat{ID: "c"}, User: platform.User{ID: "u"},
				Message: platform.Message{ID: "3", ReplyTo: &platform.Message{ID: "1", Files: picture}},
			},
		},
		"pressed": {
			`{"id": "4", "chat": "c", "user": "u", "message": "b", "press": {"id": "p", "data": "again"}}`,
			platform.Event{
				ID: "4", Kind: platform.Pressed, Chat: platform.Chat{ID: "c"}, User: platform.User{ID: "u"},
				Message: platform.Message{ID: "b"}, Press: "p", Data: "again",
			},
		},
	}, func(t *testing.T, c row) {
		var got platform.Event
		answer := deliver(w, func(_ context.Context, e platform.Event) error { got = e; return nil }, c.body, secret, 0)
		require.Equal(t, http.StatusAccepted, answer.Code, answer.Body)
		require.WithinDuration(t, time.Now(), got.At, time.Minute)
		got.At, c.want.Platform = time.Time{}, Name
		require.Equal(t, c.want, got)
	})
}

func FuzzReceive(f *testing.F) {
	f.Add(`{"id": "1", "chat": "c", "user": "u", "reply_to": {}, "press": {}, "files": [{}]}`)
	w := must.Get(New(Options{Secret: secret, Callback: "http://127.0.0.1:1"}))(f)
	f.Cleanup(w.Close)
	f.Fuzz(func(t *testing.T, body string) {
		var got platform.Event
		answer := deliver(w, func(_ context.Context, e platform.Event) error { got = e; return nil }, body, secret, 0)
		if answer.Code == http.StatusAccepted {
			require.NotEmpty(t, got.ID)
			require.NotEmpty(t, got.Chat.ID)
			require.NotEmpty(t, got.User.ID)
			require.NotEmpty(t, got.Message.ID)
		}
	})
}

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
	w := must.Get(New(Options{Secret: secret, Callback: server.URL}))(t)
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
	ids := must.Get(w.Send(ctx, platform.Chat{ID: "c", Topic: "t"}, post))(t)
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
		require.Equal(t, []string{"known", "known", "known"}, must.Get(w.Send(ctx, platform.Chat{ID: "c"}, again))(t))
		require.Equal(t, "known", (<-said).Message, "one id for each attempt")
	}
	require.NoError(t, w.Edit(ctx, platform.Chat{ID: "c"}, "m", platform.Post{Text: "half"}))
	require.Equal(t, Said{Event: "edit", Chat: "c", Message: "m", Text: "half"}, <-said)
	require.NoError(t, w.Delete(ctx, platform.Chat{ID: "c"}, "m"))
	require.Equal(t, Said{Event: "delete", Chat: "c", Message: "m"}, <-said)
	require.NoError(t, w.Answer(ctx, "p", "ok"))
	require.Equal(t, Said{Event: "answer", Press: "p", Text: "ok"}, <-said)

	broken := func(context.Context) (string, error) { return "", errors.New("no link") }
	_, err := w.Send(ctx, platform.Chat{ID: "c"}, platform.Post{Files: []platform.Attachment{{Name: "a", Link: broken}}})
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
	w := must.Get(New(Options{Secret: secret, Callback: server.URL + "/?token=private"}))(t)
	defer w.Close()
	err := w.Answer(t.Context(), "p", "")
	require.ErrorIs(t, err, platform.ErrUncertain)
	require.NotContains(t, err.Error(), "private")
}

func TestShortSecret(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Secret: "short", Callback: "https://chat.example/"})
	require.ErrorContains(t, err, "16 characters")
}
