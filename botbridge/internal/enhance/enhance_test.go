package enhance_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakellm"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// endpoint starts a fake endpoint and a client of it; change may alter the options.
func endpoint(t *testing.T, change ...func(*enhance.Options)) (*fakellm.Fake, *enhance.Client) {
	t.Helper()
	fake := must.Get(fakellm.New())(t)
	server := httptest.NewServer(fake)
	o := enhance.Options{URL: server.URL + "/v1", Key: fakellm.Key, Model: fakellm.Model, Timeout: 20 * time.Second}
	for _, c := range change {
		c(&o)
	}
	client := enhance.New(o)
	t.Cleanup(func() {
		client.Close()
		server.Close()
		require.Empty(t, fake.Broken())
	})
	return fake, client
}

func TestAsk(t *testing.T) {
	t.Parallel()
	fake, client := endpoint(t, func(o *enhance.Options) { o.MaxTokens, o.Instructions, o.English = 77, "Make it blue.", true })
	require.Equal(t, "A FOX", must.Get(client.Ask(t.Context(), enhance.Improve, "a fox"))(t))
	must.Get(client.Ask(t.Context(), enhance.Translate, "лиса"))(t)
	calls := fake.Calls()
	require.Equal(t, 77, calls[0].MaxTokens)
	require.Contains(t, calls[0].Messages[0].Content, "Make it blue. Write in English.")
	require.Contains(t, calls[1].Messages[0].Content, "Translate")
	require.NotContains(t, calls[1].Messages[0].Content, "blue")
}

// Models that know max_tokens only by its newer name are asked by that, once it is known.
func TestNewerNameOfMaxTokens(t *testing.T) {
	t.Parallel()
	fake, client := endpoint(t)
	fake.Misbehave(fake.NoMaxTokens)
	for range 2 {
		require.Equal(t, "better", must.Get(client.Ask(t.Context(), enhance.Improve, "a fox"))(t))
	}
	require.Len(t, fake.Calls(), 3)
	require.Equal(t, 400, fake.Calls()[2].MaxCompletion)
}

func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

func completion(t *testing.T, words, reason string) http.HandlerFunc {
	t.Helper()
	return body(string(must.Get(json.Marshal(fakellm.Completion(words, reason)))(t)))
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"error": {"message": "` + fakellm.Key + ` a secret fox"}}`))
	}
}

// Whatever an endpoint does, the error is one of ours, and says nothing of the words and
// the key.
func TestHostileEndpoints(t *testing.T) {
	type row struct {
		answer http.HandlerFunc
		want   error
	}
	beside.Cases(t, map[string]row{
		"HTML":                {body("<!DOCTYPE html><html>hello</html>"), enhance.ErrOdd},
		"half JSON":           {body(`{"choices": [{"message": {"content": "a secret f`), enhance.ErrOdd},
		"nothing":             {body(""), enhance.ErrOdd},
		"another form":        {body(`{"choices": "a secret fox"}`), enhance.ErrOdd},
		"no choices":          {body(`{"choices": []}`), enhance.ErrOdd},
		"null":                {body(`null`), enhance.ErrOdd},
		"no text":             {body(`{"choices": [{"message": {"content": null}, "finish_reason": "tool_calls"}]}`), enhance.ErrOdd},
		"parts":               {body(`{"choices": [{"message": {"content": [{"type": "text", "text": "a"}]}}]}`), enhance.ErrOdd},
		"blank":               {completion(t, " \n\t\u200b", "stop"), enhance.ErrOdd},
		"only quotes":         {completion(t, `""`, "stop"), enhance.ErrOdd},
		"cut off":             {completion(t, "a secret fox in the", "length"), enhance.ErrOdd},
		"filtered":            {completion(t, "", "content_filter"), enhance.ErrRefused},
		"refused":             {body(`{"choices": [{"message": {"content": null, "refusal": "I will not"}}]}`), enhance.ErrRefused},
		"too large":           {completion(t, strings.Repeat("fox ", 30_000), "stop"), enhance.ErrOdd},
		"too many":            {status(429), enhance.ErrBusy},
		"come back later":     {status(503, "Retry-After", "7"), enhance.ErrBusy},
		"broken":              {status(500), enhance.ErrAway},
		"bad gateway":         {status(502), enhance.ErrAway},
		"wrong key":           {status(401), enhance.ErrOdd},
		"bad request":         {status(400), enhance.ErrOdd},
		"another success":     {status(204), enhance.ErrOdd},
		"a redirect":          {status(307, "Location", "http://127.0.0.1:1/v1/chat/completions"), enhance.ErrOdd},
		"a broken connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, enhance.ErrAway},
		"large headers":       {status(200, "X-Large", strings.Repeat("x", 100_000)), enhance.ErrAway},
	}, func(t *testing.T, c row) {
		fake, client := endpoint(t)
		fake.Misbehave(c.answer)
		answer, err := client.Ask(t.Context(), enhance.Improve, "a secret fox")
		require.ErrorIs(t, err, c.want)
		require.Empty(t, answer)
		require.NotContains(t, err.Error(), fakellm.Key)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), "127.0.0.1")
	})
}

// The key goes nowhere else, and neither do the words.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var strangers atomic.Int64
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
	defer stranger.Close()
	fake, client := endpoint(t)
	for _, code := range []int{301, 302, 303, 307, 308} {
		fake.Misbehave(status(code, "Location", stranger.URL))
		_, err := client.Ask(t.Context(), enhance.Improve, "a fox")
		require.ErrorIs(t, err, enhance.ErrOdd)
		require.ErrorContains(t, err, "redirect")
	}
	require.Zero(t, strangers.Load())
}

// An endpoint that does not answer holds nobody up for longer than the timeout, and after
// three calls nobody at all.
func TestSilentEndpoint(t *testing.T) {
	t.Parallel()
	fake, client := endpoint(t, func(o *enhance.Options) { o.Timeout = 50 * time.Millisecond })
	fake.Misbehave(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for range 3 {
		_, err := client.Ask(t.Context(), enhance.Improve, "a fox")
		require.ErrorIs(t, err, enhance.ErrAway)
	}
	_, err := client.Ask(t.Context(), enhance.Improve, "a fox")
	require.ErrorIs(t, err, enhance.ErrBusy)
}

// An endpoint that asks to be left alone is left alone.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"60", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), "", "soon", "-1", "99999999999999999999"} {
		fake, client := endpoint(t)
		fake.Misbehave(status(429, "Retry-After", header))
		for range 3 {
			_, err := client.Ask(t.Context(), enhance.Improve, "a fox")
			require.ErrorIs(t, err, enhance.ErrBusy, header)
		}
		require.Len(t, fake.Calls(), 1, header)
	}
}

// No more calls than allowed are made at the same time, and only so many wait.
func TestCallsAtOnce(t *testing.T) {
	t.Parallel()
	fake, client := endpoint(t, func(o *enhance.Options) { o.AtOnce = 2 })
	release := make(chan struct{})
	var now, most atomic.Int64
	fake.Misbehave(func(w http.ResponseWriter, r *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
		now.Add(-1)
		completion(t, "better", "stop")(w, r)
	})
	var wg sync.WaitGroup
	var busy, done atomic.Int64
	for range 40 {
		wg.Go(func() {
			switch _, err := client.Ask(t.Context(), enhance.Improve, "a fox"); {
			case err == nil:
				done.Add(1)
			default:
				busy.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return busy.Load() == 40-18 && now.Load() == 2 }, 20*time.Second, time.Millisecond)
	close(release)
	wg.Wait()
	require.EqualValues(t, 2, most.Load())
	require.EqualValues(t, 18, done.Load())
}

func TestClean(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" a\n red\t fox ":                    "a red fox",
		`"a red fox"`:                        "a red fox",
		`"a" and "b"`:                        `"a" and "b"`,
		"```\na red fox\n```":                "a red fox",
		"<think>hm</think>\n\na red fox":     "a red fox",
		"a fox </think> b":                   "a fox </think> b",
		"a\u202e red\u0000 fox\ufeff":        "a red fox",
		"--steps 999 -n 4 <b>a</b> /ban all": "--steps 999 -n 4 <b>a</b> /ban all",
		"a \xff fox":                         "a fox",
		"":                                   "",
	} {
		require.Equal(t, want, enhance.Clean(text), "%q", text)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\"a\"")
	f.Add("<think>x</think>y")
	f.Fuzz(func(t *testing.T, text string) {
		clean := enhance.Clean(text)
		require.LessOrEqual(t, len(clean), len(text)+3*len(text))
		require.NotContains(t, clean, "\n")
	})
}

func TestForeign(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]bool{
		"a red fox": false, "рыжая лиса": true, "赤い狐": true, "a sign that says «привет»": false, "лиса, style of Monet": false,
		"лиса в стиле Monet": true, "": false, "42 :)": false, "un renard rouge": false,
	} {
		require.Equal(t, want, enhance.Foreign(words), words)
	}
}
