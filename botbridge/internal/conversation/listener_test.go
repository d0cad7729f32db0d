package conversation

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// What is said in a voice message counts as if it were written, and is shown to its author.
func TestVoiceMessages(t *testing.T) {
	r := parallelRig(t, limits.Config{Waiting: 100, Messages: 100, Words: []string{"forbidden"}})
	r.editing()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, rq *http.Request) {
		file, _, err := rq.FormFile("file")
		if rq.URL.Path != "/v1/audio/transcriptions" || rq.FormValue("model") != "whisper" || rq.Header.Get("Authorization") != "Bearer key" || err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		said, _ := io.ReadAll(file)
		if string(said) == "noise" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if string(said) == "silence" {
			said = nil
		}
		_, _ = w.Write([]byte(`{"text": " ` + string(said) + `\n"}`))
	}))
	t.Cleanup(server.Close)
	client := enhance.NewTranscriber(enhance.Transcribing{URL: server.URL + "/v1/", Key: "key", Model: "whisper", MaxBytes: 100})
	t.Cleanup(client.Close)
	voice := func(user, chat, to, said string) platform.Event {
		e := r.message(user, chat, "", to)
		e.Message.Files = []platform.File{{ID: said, Name: "voice.ogg", Type: platform.Voice}}
		r.p.files[said] = said
		return e
	}
	require.Empty(t, r.asks(voice("4", "4", "", "a red fox")))
	require.Contains(t, r.heard("4"), "I can't listen to voice messages", "nobody listens")
	r.with(func(o *Options) { o.Listener = &Listener{Client: client, PerDay: 3} })

	require.Equal(t, "generate a red fox", r.asks(voice("5", "5", "", "a red fox")))
	require.Equal(t, "🎙 a red fox", r.p.in("5")[0])
	r.event("5", "5", platform.Said, "m", "/edit")
	e := voice("5", "5", "", "make it snow")
	e.Message.ReplyTo = &platform.Message{ID: "photo", Files: []platform.File{{ID: "photo3", Type: "image/png"}}}
	require.Equal(t, "edit make it snow photo3", r.asks(e), "an answer")
	require.Empty(t, r.asks(voice("5", "5", "", "silence")))
	require.Contains(t, r.heard("5"), "couldn't make out any words")
	require.Empty(t, r.asks(voice("5", "5", "", "again")))
	require.Contains(t, r.heard("5"), "listened to 3 voice messages")

	for said, want := range map[string]string{
		"noise": "can't listen to voice messages right now", "a forbidden thing": "won't make", string(make([]byte, 101)): "too long",
	} {
		require.Empty(t, r.asks(voice("6", "6", "", said)))
		require.Contains(t, r.heard("6"), want)
	}
	require.Empty(t, r.asks(voice("7", "-9", "", "for the others")))
	require.Empty(t, r.p.in("-9"), "in a group it is for the others")
}
