package overflow

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/egress"
)

// stalling serves a file of which the second half never comes.
type stalling struct{}

func (stalling) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(&half{r.Context(), false}), Header: http.Header{}}, nil
}

type half struct {
	ctx  context.Context
	read bool
}

func (h *half) Read(p []byte) (int, error) {
	if !h.read {
		h.read = true
		return copy(p, "half"), nil
	}
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

func TestLinkThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts, err := egress.ParseHosts([]string{"files.example.com"})
		require.NoError(t, err)
		e := New(Options{Name: "pod", FilesFrom: hosts, Egress: egress.Options{Transport: stalling{}}, Log: slog.New(slog.DiscardHandler)})
		content, done, err := (&keeper{e: e}).open(t.Context(), OutputFile{URL: "https://files.example.com/a.png"})
		require.NoError(t, err)
		defer done()
		time.Sleep(10 * silentFor) // the disk may be slow, the link is not to blame
		text := make([]byte, 4)
		_, err = io.ReadFull(content, text)
		require.NoError(t, err)
		began := time.Now()
		_, err = content.Read(text)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, silentFor, time.Since(began))
	})
}
