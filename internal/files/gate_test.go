package files

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a gate lets fail fails as if the disk had: a blob is there whole or not at all.
func TestGate(t *testing.T) {
	t.Parallel()
	storage := must(OpenStorage(t.Context(), t.TempDir()))
	errFull := errors.New("full")
	refused := map[Step]bool{}
	storage.Behind(func(_ context.Context, step Step, bytes int) error {
		if refused[step] && (step != StepWrite || bytes > 0) {
			return errFull
		}
		return nil
	})
	write := func() error {
		_, err := storage.Write(t.Context(), "a/b", strings.NewReader("text"))
		return err
	}
	for _, step := range []Step{StepWrite, StepName} {
		refused[step] = true
		require.ErrorIs(t, write(), errFull, step)
		require.ErrorIs(t, write(), ErrStorage, step)
		delete(refused, step)
		_, err := storage.Stat(t.Context(), "a/b")
		require.ErrorIs(t, err, ErrGone, step)
	}
	// A name that may not last is none that the caller may tell of.
	refused[StepKeep] = true
	require.ErrorIs(t, write(), errFull)
	delete(refused, StepKeep)
	require.NoError(t, write())
	body := must(storage.Open(t.Context(), "a/b", 0, -1))
	defer body.Close()
	refused[StepRead] = true
	_, err := io.ReadAll(body)
	require.ErrorIs(t, err, errFull)
	_, err = storage.Stat(t.Context(), "a/b")
	require.ErrorIs(t, err, ErrStorage)
	refused[StepDelete], refused[StepList] = true, true
	require.ErrorIs(t, storage.Delete(t.Context(), "a/b"), ErrStorage)
	require.ErrorIs(t, storage.List(t.Context(), "", func(Blob) error { return nil }), ErrStorage)
}
