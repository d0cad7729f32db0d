package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// parallel is newTelegram for a test that runs beside others.
func parallel(t *testing.T, fo fakebot.Options, o Options) (*Telegram, *fakebot.Fake) {
	t.Helper()
	t.Parallel()
	return newTelegram(t, fo, o)
}

func newTelegram(t *testing.T, fo fakebot.Options, o Options) (*Telegram, *fakebot.Fake) {
	t.Helper()
	fake := fakebot.New(fo)
	server := httptest.NewServer(fake)
	t.Cleanup(func() {
		fake.Close()
		server.CloseClientConnections()
		server.Close()
	})
	o.Token, o.Server = fakebot.Token, server.URL
	tg := must.Get(New(o))(t)
	t.Cleanup(tg.Close)
	return tg, fake
}

func attachment(name string, media platform.Media, data string) platform.Attachment {
	return platform.Attachment{Name: name, Media: media, Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(data)), nil
	}}
}

// picture is a small one that Telegram takes.
func picture(t *testing.T) platform.Attachment {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewRGBA(image.Rect(0, 0, 8, 8))))
	return platform.Attachment{Name: "a.png", Media: platform.Photo, Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}}
}

var home = platform.Chat{ID: "7"}

// What became of a call is told from what went over the wire.
func TestFates(t *testing.T) {
	t.Parallel()
	for fault, want := range map[fakebot.Fault]error{
		fakebot.CutBefore: platform.ErrUncertain, fakebot.CutAfter: platform.ErrUncertain, fakebot.Hang: platform.ErrUncertain,
		fakebot.Broken: nil, fakebot.Flood: nil,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		tg, _ := newTelegram(t, fakebot.Options{Fault: func(string) fakebot.Fault {
			if fault == fakebot.Hang {
				cancel() // the call was heard, and is given up
			}
			return fault
		}}, Options{})
		_, err := tg.Send(ctx, home, platform.Post{Text: "x"})
		cancel()
		require.Error(t, err)
		require.NotContains(t, err.Error(), fakebot.Token, "the token is in no error")
		var wait *platform.WaitError
		switch {
		case want != nil:
			require.ErrorIs(t, err, want)
		case fault == fakebot.Flood:
			require.ErrorAs(t, err, &wait)
			require.Equal(t, time.Second, wait.After)
		default:
			require.NotErrorIs(t, err, platform.ErrUncertain, "Telegram has said that nothing happened")
			require.False(t, platform.Permanent(err))
		}
	}
	nowhere := must.Get(New(Options{Token: fakebot.Token, Server: "http://127.0.0.1:1"}))(t)
	_, err := nowhere.Send(t.Context(), home, platform.Post{Text: "x"})
	require.NotErrorIs(t, err, platform.ErrUncertain, "nothing was sent")
	require.NotContains(t, err.Error(), fakebot.Token)
}

// A video has its size and its length, which Telegram does not read itself.
func TestVideoIsDescribed(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	video := attachment("a.mp4", platform.Video, "x")
	video.Width, video.Height, video.Length = 640, 368, 4250*time.Millisecond
	must.Get(tg.Send(t.Context(), home, platform.Post{Files: []platform.Attachment{video}}))(t)
	shown := fake.Person(7, "").All()[0].File
	require.Equal(t, [3]int{640, 368, 5}, [3]int{shown.Width, shown.Height, shown.Seconds})
}

// What the bot may not do is known before, where Telegram says it, and by its cause.
func TestRights(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	group := platform.Chat{ID: "-9", Group: true}
	shown := platform.Post{Files: []platform.Attachment{picture(t)}}
	plain := platform.Post{Files: []platform.Attachment{attachment("a.txt", platform.Document, "x")}}
	require.NoError(t, tg.MayShow(t.Context(), group, platform.Photo))
	for text, want := range map[string]struct{ picture, file, words, before error }{
		"not enough rights to send photos to the chat": {picture: platform.ErrNoMedia},
		"CHAT_SEND_PHOTOS_FORBIDDEN":                   {picture: platform.ErrNoMedia},
		"CHAT_SEND_PLAIN_FORBIDDEN":                    {words: platform.ErrForbidden},
		"CHAT_WRITE_FORBIDDEN":                         {platform.ErrForbidden, platform.ErrForbidden, platform.ErrForbidden, platform.ErrNoMedia},
		"message thread not found":                     {platform.ErrForbidden, platform.ErrForbidden, platform.ErrForbidden, platform.ErrNoMedia},
	} {
		fake.Restrict(-9, text)
		for _, sent := range []struct {
			post platform.Post
			want error
		}{{shown, want.picture}, {plain, want.file}, {platform.Post{Text: "x"}, want.words}} {
			_, err := tg.Send(t.Context(), group, sent.post)
			require.ErrorIs(t, err, sent.want, text)
		}
		require.ErrorIs(t, tg.MayShow(t.Context(), group, platform.Photo), want.before, "%s: a picture can go as a file", text)
		require.NoError(t, tg.MayShow(t.Context(), group, ""), "text is another right")
	}
	fake.Restrict(-9, "")
	in := group
	in.Topic = "77"
	_, err := tg.Send(t.Context(), in, shown)
	require.ErrorIs(t, err, platform.ErrForbidden, "there is no such topic")
	fake.SetTopic(-9, 77, true)
	must.Get(tg.Send(t.Context(), in, shown))(t)
	fake.SetTopic(-9, 77, false)
	_, err = tg.Send(t.Context(), in, shown)
	require.ErrorIs(t, err, platform.ErrForbidden)
}

func TestFileThatCannotBeRead(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	broken := platform.Attachment{Name: "a.png", Media: platform.Document, Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("beginning"), failing{})), nil
	}}
	_, err := tg.Send(t.Context(), home, platform.Post{Files: []platform.Attachment{broken}})
	require.ErrorIs(t, err, platform.ErrSource)
	require.Empty(t, fake.Person(7, "").All(), "half a file is no file")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the hub went away") }

func TestRefusals(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	ids := must.Get(tg.Send(t.Context(), home, platform.Post{Text: "one", Buttons: [][]platform.Button{{{Label: "b", Data: "d"}}}}))(t)
	require.NoError(t, tg.Edit(t.Context(), home, ids[0], platform.Post{Text: "two"}))
	require.NoError(t, tg.Edit(t.Context(), home, ids[0], platform.Post{Text: "two"}), "not modified is no error")
	require.ErrorIs(t, tg.Edit(t.Context(), home, "999", platform.Post{Text: "two"}), platform.ErrGone)
	require.NoError(t, tg.Delete(t.Context(), home, ids[0]))
	require.NoError(t, tg.Delete(t.Context(), home, ids[0]), "gone is gone")
	_, err := tg.Send(t.Context(), home, platform.Post{Files: []platform.Attachment{attachment("x.png", platform.Photo, "no picture")}})
	require.ErrorIs(t, err, platform.ErrRefused)
	fake.Block(7, true)
	_, err = tg.Send(t.Context(), home, platform.Post{Text: "x"})
	require.ErrorIs(t, err, platform.ErrForbidden)
	_, err = tg.Open(t.Context(), platform.File{ID: "nothing"})
	require.ErrorIs(t, err, platform.ErrGone)
	_, err = tg.Open(t.Context(), platform.File{ID: "x", Size: maxDownload + 1})
	require.ErrorIs(t, err, platform.ErrTooLarge)
	fake.Person(8, "").Send(fakebot.Draft{File: []byte("x"), Name: "a.mp4", Size: maxDownload + 1})
	_, err = tg.Open(t.Context(), platform.File{ID: "file1"})
	require.ErrorIs(t, err, platform.ErrTooLarge, "Telegram knows better")
}

// A server with --local says where a file is on its disk, and takes larger ones.
func TestLocalServer(t *testing.T) {
	dir := t.TempDir()
	tg, fake := parallel(t, fakebot.Options{Local: dir}, Options{Local: dir})
	require.EqualValues(t, 2000<<20, tg.Limits().File)
	person := fake.Person(7, "en")
	person.Send(fakebot.Draft{Text: "look", Photo: []byte("a photo")})
	body := must.Get(tg.Open(t.Context(), platform.File{ID: "photo1", Size: maxDownload + 1}))(t)
	require.Equal(t, "a photo", string(must.Get(io.ReadAll(body))(t)))
	require.NoError(t, body.Close())

	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, []byte("x"), 0o600))
	_, err := openLocal(dir, outside)
	require.Error(t, err, "nothing else is read")
	_, err = openLocal(dir, filepath.Join(dir, "gone"))
	require.ErrorIs(t, err, platform.ErrGone)
}

func TestLongTextsAreCut(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	must.Get(tg.Send(t.Context(), home, platform.Post{Text: strings.Repeat("🦊", 5000)}))(t)
	must.Get(tg.Send(t.Context(), home, platform.Post{
		Text: strings.Repeat("я", 3000), Files: []platform.Attachment{attachment("a.mp4", platform.Video, "video")},
	}))(t)
	require.Len(t, fake.Person(7, "").All(), 2)
}

// An update that could not be stored comes again, and none is lost after it.
func TestPollStoresBeforeItAcknowledges(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{PollTimeout: time.Second})
	person := fake.Person(7, "en")
	for n := range 5 {
		person.Say(fmt.Sprint("/x ", n))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var got []string
	failures := 2
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tg.Listen(ctx, func(_ context.Context, e platform.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasSuffix(e.Message.Text, "2") && failures > 0 {
				failures--
				return errors.New("the state is away")
			}
			got = append(got, e.Message.Text)
			return nil
		})
	}()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == 5
	}, time.Minute, 10*time.Millisecond)
	cancel()
	<-done
	require.Equal(t, []string{"/x 0", "/x 1", "/x 2", "/x 3", "/x 4"}, got)
}

func TestWebhook(t *testing.T) {
	var nameless atomic.Bool
	nameless.Store(true)
	tg, _ := parallel(t, fakebot.Options{Fault: func(string) fakebot.Fault {
		if nameless.Load() {
			return fakebot.Broken
		}
		return fakebot.None
	}}, Options{Webhook: "https://example.org" + WebhookPath, Secret: "the secret"})
	var stored []platform.Event
	var fail error
	handler := tg.Routes(func(_ context.Context, e platform.Event) error {
		if fail == nil {
			stored = append(stored, e)
		}
		return fail
	})["POST "+WebhookPath]
	call := func(secret, body string) int {
		r := httptest.NewRequest(http.MethodPost, WebhookPath, strings.NewReader(body))
		r.Header.Set(secretHeader, secret)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	update := `{"update_id": 5, "message": {"message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 7}, "text": "/x"}}`
	require.Equal(t, http.StatusUnauthorized, call("", update))
	require.Equal(t, http.StatusUnauthorized, call("the secreT", update))
	require.Equal(t, http.StatusBadRequest, call("the secret", "{"))
	require.Equal(t, http.StatusBadRequest, call("the secret", `{"x": "`+strings.Repeat("a", maxUpdate)+`"}`))
	// A process that only waits to lead takes calls too.
	named := strings.NewReplacer(`"chat": {"id": 7, "type": "private"}`, `"chat": {"id": -7, "type": "group"}`, "/x", "a fox @"+fakebot.Username).Replace(update)
	require.Equal(t, http.StatusServiceUnavailable, call("the secret", named), "whom it is for is not known yet")
	require.Empty(t, stored)
	nameless.Store(false)
	require.Equal(t, http.StatusOK, call("the secret", named))
	require.Equal(t, http.StatusOK, call("the secret", update))
	require.Len(t, stored, 2)
	fail = errors.New("the state is away")
	require.Equal(t, http.StatusServiceUnavailable, call("the secret", update), "Telegram is to bring it again")
	_, err := New(Options{Token: fakebot.Token, Webhook: "https://example.org"})
	require.Error(t, err, "a webhook without a secret is open to anybody")
}

func FuzzUpdate(f *testing.F) {
	f.Add([]byte(`{"update_id": 1, "callback_query": {"id": "1", "from": {"id": 1}, "data": "x", "message": {"message_id": 1, "date": 0, "chat": {"id": 1, "type": "private"}}}}`))
	f.Add([]byte(`{"update_id": 1, "message": {"message_id": 1, "date": 9, "chat": {"id": -1, "type": "group"}, "from": {"id": 1}, "caption": "/x@y", "photo": [{}]}}`))
	tg := must.Get(New(Options{Token: fakebot.Token}))(f)
	tg.self.Store(&me{Username: fakebot.Username})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, u := range tg.decode([]json.RawMessage{bytes.Clone(data)}) {
			if e, ok := tg.event(u); ok {
				must.Get(json.Marshal(e))(t)
			}
		}
	})
}

// An update of a kind that is not known yet is not delivered again and again.
func TestWebhookTakesUnknownKinds(t *testing.T) {
	tg, _ := parallel(t, fakebot.Options{}, Options{Webhook: "https://x.example/telegram/webhook", Secret: "s"})
	handler := tg.Routes(func(context.Context, platform.Event) error { return errors.New("nothing is to be stored") })["POST "+WebhookPath]
	for body, want := range map[string]int{
		`{"update_id": 1, "new_kind": {"x": 1}}`: http.StatusOK, `{"update_id": 2, "message": {"message_id": "of another type"}}`: http.StatusOK,
		`{"update_id": 3, "my_chat_member": {"new_chat_member": {"status": "of_a_new_kind"}}}`: http.StatusOK,
		`[]`: http.StatusBadRequest, `{`: http.StatusBadRequest, ``: http.StatusBadRequest, `null`: http.StatusBadRequest,
	} {
		r := httptest.NewRequest(http.MethodPost, WebhookPath, strings.NewReader(body))
		r.Header.Set(secretHeader, "s")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, body)
	}
}

// A bridge that gets no updates says so.
func TestHealth(t *testing.T) {
	tg, _ := parallel(t, fakebot.Options{}, Options{PollTimeout: time.Second})
	require.NoError(t, tg.Health(time.Now().Add(time.Hour)), "it is not for this process to listen")
	listen := func(tg *Telegram) {
		ctx, cancel := context.WithCancel(t.Context())
		var listening sync.WaitGroup
		listening.Go(func() { _ = tg.Listen(ctx, func(context.Context, platform.Event) error { return nil }) })
		t.Cleanup(func() { cancel(); listening.Wait() })
	}
	listen(tg)
	require.Eventually(t, func() bool { return tg.lastPoll.Load() != 0 }, time.Minute, time.Millisecond)
	require.NoError(t, tg.Health(time.Now()))
	require.Error(t, tg.Health(time.Now().Add(time.Hour)), "polling has stopped")

	wrong := must.Get(New(Options{Token: "4242:another", Server: tg.o.Server}))(t)
	defer wrong.Close()
	_, err := wrong.Me(t.Context())
	require.ErrorIs(t, err, ErrToken)
	listen(wrong)
	require.Eventually(t, func() bool { return errors.Is(wrong.Health(time.Now()), ErrToken) }, time.Minute, time.Millisecond)
}
