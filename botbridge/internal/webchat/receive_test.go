package webchat

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
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
	t.Parallel()
	w, err := New(Options{Secret: secret, Callback: "http://127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(w.Close)
	const least = `{"id": "1", "chat": "c", "user": "u"}`
	for name, c := range map[string]struct {
		body, secret string
		age          time.Duration
		admit        error
		status       int
	}{
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admitted := 0
			answer := deliver(w, func(context.Context, platform.Event) error { admitted++; return c.admit }, c.body, c.secret, c.age)
			require.Equal(t, c.status, answer.Code, answer.Body)
			handled := c.status == http.StatusAccepted || c.admit != nil
			require.Equal(t, handled, admitted == 1, "only what is signed and whole is handled")
			require.Equal(t, c.admit != nil, answer.Header().Get("Retry-After") != "")
		})
	}
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
	t.Parallel()
	w, err := New(Options{Secret: secret, Callback: "http://127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(w.Close)
	picture := []platform.File{{ID: "https://chat.example/a.png", Name: "a.png", Type: "image/png"}}
	const files = `"files": [{"url": "https://chat.example/a.png", "name": "a.png", "type": "image/png"}]`
	for name, c := range map[string]struct {
		body string
		want platform.Event
	}{
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got platform.Event
			answer := deliver(w, func(_ context.Context, e platform.Event) error { got = e; return nil }, c.body, secret, 0)
			require.Equal(t, http.StatusAccepted, answer.Code, answer.Body)
			require.WithinDuration(t, time.Now(), got.At, time.Minute)
			got.At, c.want.Platform = time.Time{}, Name
			require.Equal(t, c.want, got)
		})
	}
}

func FuzzReceive(f *testing.F) {
	f.Add(`{"id": "1", "chat": "c", "user": "u", "reply_to": {}, "press": {}, "files": [{}]}`)
	w, err := New(Options{Secret: secret, Callback: "http://127.0.0.1:1"})
	require.NoError(f, err)
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
