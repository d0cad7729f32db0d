package limits_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
)

// Whatever the service answers, there is a verdict, and without an answer it is that of
// bot.yaml.
func TestJudge(t *testing.T) {
	t.Parallel()
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string // "" for none
	}{
		"allow":    {say(`{"verdict": "allow"}`), limits.Allow},
		"spoiler":  {say(`{"verdict": "spoiler", "reason": "blood"}`), limits.Spoiler},
		"refuse":   {say(`{"verdict": "refuse"}`), limits.Refuse},
		"HTML":     {say("<html>"), ""},
		"unknown":  {say(`{"verdict": "ok"}`), ""},
		"nothing":  {say(""), ""},
		"too long": {say(`{"verdict": "allow", "reason": "` + strings.Repeat("x", 1<<20) + `"}`), ""},
		"500":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, ""},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}, ""},
		"silence":   {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, ""},
		"a cut one": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/other" {
					_, _ = io.WriteString(w, `{"verdict": "allow"}`)
					return
				}
				file, header, err := r.FormFile("file")
				if err == nil {
					data, _ := io.ReadAll(file)
					if string(data) != "picture" || header.Filename != "a.png" || !strings.Contains(r.PostFormValue("request"), `"words":"a fox"`) {
						w.WriteHeader(http.StatusBadRequest)
						return
					}
				}
				c.answer(w, r)
			}))
			defer service.Close()
			for fail, without := range map[string]string{"": limits.Refuse, "closed": limits.Refuse, "open": limits.Allow} {
				timeout := 20 * time.Second
				if name == "silence" {
					timeout = 20 * time.Millisecond
				}
				judge := limits.NewJudge(limits.Results{Hook: service.URL, Fail: fail, Timeout: timeout}, http.DefaultTransport)
				made := limits.Made{Name: "a.png", Words: "a fox", Command: "generate", Read: func(context.Context) ([]byte, error) { return []byte("picture"), nil }}
				v, failed, err := judge.Judge(t.Context(), made)
				require.NoError(t, err)
				if c.want != "" {
					require.NoError(t, failed)
					require.Equal(t, c.want, v.Verdict)
					continue
				}
				require.Error(t, failed)
				require.NotContains(t, failed.Error(), service.URL)
				require.Equal(t, without, v.Verdict)

				made.Size = 1 << 40
				v, failed, err = judge.Judge(t.Context(), made)
				require.NoError(t, err)
				require.ErrorContains(t, failed, "larger")
				require.Equal(t, without, v.Verdict)
			}
		})
	}
	large := func(context.Context) ([]byte, error) { return make([]byte, 21<<20), nil }
	v, failed, err := limits.NewJudge(limits.Results{Hook: "http://127.0.0.1:1"}, http.DefaultTransport).Judge(t.Context(), limits.Made{Read: large})
	require.NoError(t, err)
	require.ErrorContains(t, failed, "larger", "a file of unknown size")
	require.Equal(t, limits.Refuse, v.Verdict)
	gone := errors.New("gone")
	_, _, err = limits.NewJudge(limits.Results{Hook: "http://127.0.0.1:1"}, http.DefaultTransport).Judge(t.Context(), limits.Made{
		Read: func(context.Context) ([]byte, error) { return nil, gone },
	})
	require.ErrorIs(t, err, gone, "a file that cannot be read is no verdict")
}
