package files

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// endlessBody sends 64 KiB every hundred milliseconds, for ever.
type endlessBody struct{ ctx context.Context }

func (e endlessBody) Read(p []byte) (int, error) {
	select {
	case <-time.After(100 * time.Millisecond):
		return min(len(p), 64<<10), nil
	case <-e.ctx.Done():
		return 0, e.ctx.Err()
	}
}

func (endlessBody) Close() error { return nil }

// An instance that sends more than any output has loses the run, and leaves nothing in the storage.
func TestOutputWithoutEnd(t *testing.T) {
	type row struct {
		length int64 // as announced
		room   int64
		want   error
	}
	beside.Cases(t, map[string]row{
		"it never ends":                     {-1, 1 << 40, errOutsized},
		"it says so":                        {9 << 20, 1 << 40, errOutsized},
		"it says otherwise":                 {7 << 20, 1 << 40, errOutsized},
		"there is no room":                  {7 << 20, 6 << 20, ErrStorage},
		"it never ends, and fills the disk": {-1, 0, errOutsized},
	}, func(t *testing.T, c row) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore(t, redistest.Embedded(t))
			fetches := 0
			fetch := func(ctx context.Context, _ Source, _ http.Header) (*http.Response, error) {
				fetches++
				header := http.Header{"Etag": {`"1-1"`}}
				return &http.Response{StatusCode: http.StatusOK, Header: header, ContentLength: c.length, Body: endlessBody{ctx}}, nil
			}
			copies := NewCollector(s, fetch, CollectorOptions{Room: func() int64 { return c.room }})
			copies.largest, copies.small = 8<<20, 4<<20
			defer copies.Close()
			i := newInstance()
			ref := output("a.bin")
			i.put(ref, "x")
			transfer := NewTransfer(s, copies, nil, slog.New(slog.DiscardHandler))
			transfer.maxRefused = 0
			_, wait, err := transfer.Collect(t.Context(), tenant, []job.FileRef{ref}, nil, Target{Name: "gpu", Boot: "b1", Instance: i}, false)
			require.NoError(t, err)
			err = wait(t.Context())
			require.ErrorIs(t, err, c.want)
			require.Equal(t, errors.Is(c.want, errOutsized), final(err))
			require.Equal(t, 1, fetches)
			require.Empty(t, s.blobKeys(t))
		})
	})
}
