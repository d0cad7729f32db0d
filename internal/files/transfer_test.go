package files

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/rescue"
)

// A copy that waits for Redis must not outlive the hub.
func TestCloseEndsACopyThatWaits(t *testing.T) {
	t.Parallel()
	server, log := redistest.Start(t), &logtest.Log{}
	s := newStore(t, redistest.Open(t, server.URL()))
	c := NewCollector(s, From(comfyui.NewClients()), CollectorOptions{})
	transfer := NewTransfer(s, c, nil, slog.New(slog.NewTextHandler(log, nil)))
	server.Stop()
	copied := make(chan error, 1)
	go func() {
		copied <- transfer.copy(context.WithoutCancel(t.Context()), tenant, job.FileRef{Type: job.TypeOutput, Filename: "x.png"}, Entry{}, nil)
	}()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "copy an output") }, 60*time.Second, 10*time.Millisecond)
	c.Close()
	select {
	case err := <-copied:
		require.ErrorIs(t, err, redis.ErrUnavailable)
	case <-time.After(60 * time.Second):
		require.Fail(t, "the copy goes on")
	}
}

// The outputs of a run are named at once and copied in the background. An output
// that the instance does not have is lost.
func TestTransferCollects(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s, i := newStore(t, db), newInstance()
		c := NewCollector(s, i.fetch, CollectorOptions{Patience: Patience{Contact: time.Millisecond}})
		t.Cleanup(c.Close)
		transfer := NewTransfer(s, c, nil, slog.New(slog.DiscardHandler))
		from := Target{Name: "gpu", Boot: "b1", Instance: i}
		there := job.FileRef{Type: job.TypeOutput, Filename: "a_00001_.png"}
		i.put(there, "picture")
		names, wait, err := transfer.Collect(t.Context(), tenant, []job.FileRef{there, {Type: "custom", Filename: "x"}}, from, false)
		require.NoError(t, err)
		require.NoError(t, wait(t.Context()))
		require.Equal(t, "picture", s.mustRead(t, names[0]))
		again, wait, err := transfer.Collect(t.Context(), tenant, []job.FileRef{there}, from, false)
		require.NoError(t, err)
		require.NoError(t, wait(t.Context()))
		require.Equal(t, names[:1], again, "the same names each time")
		_, _, err = transfer.Collect(t.Context(), tenant, []job.FileRef{{Type: job.TypeOutput, Filename: "gone.png"}}, from, false)
		require.ErrorIs(t, err, ErrGone)
		i.hook = func(r *http.Response) { r.StatusCode = http.StatusInternalServerError }
		broken := job.FileRef{Type: job.TypeOutput, Filename: "b_00001_.png"}
		i.put(broken, "picture")
		_, wait, err = transfer.Collect(t.Context(), tenant, []job.FileRef{broken}, from, false)
		require.NoError(t, err)
		require.ErrorContains(t, wait(t.Context()), "instance answers 500", "a copy that failed")
	})
}

// A panic while an output is copied is an error for callers that wait for that
// copy, and nothing more.
func TestPanicOfACopy(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s, i, log := newStore(t, db), newInstance(), &logtest.Log{}
		logger := slog.New(slog.NewTextHandler(log, nil))
		broken := func(context.Context, Source, http.Header) (*http.Response, error) { panic("broken") }
		c := NewCollector(s, broken, CollectorOptions{Logger: logger})
		t.Cleanup(c.Close)
		ref := job.FileRef{Type: job.TypeOutput, Filename: "a_00001_.png"}
		i.put(ref, "picture")
		for _, copies := range []*Collector{c, nil} {
			_, wait, err := NewTransfer(s, copies, nil, logger).Collect(t.Context(), tenant, []job.FileRef{ref}, Target{Name: "gpu", Instance: i}, false)
			require.NoError(t, err)
			require.ErrorIs(t, wait(t.Context()), rescue.ErrPanic)
		}
		require.Contains(t, log.String(), "TestPanicOfACopy.func", "the log has the stack")
	})
}
