package lastknown

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// opened are answers over a storage of their own, which has been read.
func opened(t *testing.T) (*Answers, *files.Storage) {
	t.Helper()
	storage := must.Get(files.OpenStorage(t.Context(), t.TempDir()))(t)
	k := must.Get(New(storage, slog.New(slog.DiscardHandler)))(t)
	require.NoError(t, k.load(t.Context()))
	return k, storage
}

// What is known is bounded, and only what has the shape that the web UI reads
// is kept: an instance that talks nonsense once must not be believed for ever.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	k, storage := opened(t)
	for n := range maxAnswers + 10 {
		k.Keep(fmt.Sprintf("/models/%d", n), []byte(`["x"]`), "[]", "", nil)
		_, ok := k.Last(t.Context(), "/models/0", anybody)
		require.True(t, ok, "the one in use stays")
		require.True(t, k.Has(t.Context(), "/models/0", anybody))
	}
	require.Len(t, k.answers, maxAnswers)
	_, ok := k.Last(t.Context(), "/models/1", anybody)
	require.False(t, ok)

	for _, odd := range []string{`{"error": 1}`, `[`, ``, `<html>`, `null`} {
		k.Keep("/extensions", []byte(odd), "[]", "", nil)
		_, ok := k.Last(t.Context(), "/extensions", anybody)
		require.False(t, ok, odd)
		require.False(t, k.Has(t.Context(), "/extensions", anybody), odd)
	}
	require.NoError(t, k.save(t.Context()))

	again, err := New(storage, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	again.Keep("/models/0", []byte(`["newer"]`), "[]", "", nil)
	require.NoError(t, again.load(t.Context()))
	body, ok := again.Last(t.Context(), "/models/0", anybody)
	require.True(t, ok)
	require.JSONEq(t, `["newer"]`, string(body), "what this process knows counts")
	require.Equal(t, k.size, again.size-len(again.answers["/models/0"].Body)+len(k.answers["/models/0"].Body))

	// A blob of another make is as good as none.
	_, err = storage.Write(t.Context(), storageKey, strings.NewReader(`{"x": [`))
	require.NoError(t, err)
	odd := must.Get(New(storage, slog.New(slog.DiscardHandler)))(t)
	require.NoError(t, odd.load(t.Context()))
	_, ok = odd.Last(t.Context(), "/models/0", anybody)
	require.False(t, ok)
}

// Run writes what it has learned when it ends, so that the next process of the
// hub knows it from its start.
func TestAnswersOutliveTheProcess(t *testing.T) {
	t.Parallel()
	storage := must.Get(files.OpenStorage(t.Context(), t.TempDir()))(t)
	classes := catalog.Merge(nil, nil)
	run := func(classes *catalog.Catalog, then func(*Answers)) {
		k := must.Get(New(storage, slog.New(slog.DiscardHandler)))(t)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { k.Run(ctx, func() *catalog.Catalog { return classes }) })
		<-k.read
		then(k)
		stop()
		running.Wait()
	}
	run(nil, func(k *Answers) {
		_, ok := k.Last(t.Context(), classesPath, anybody)
		require.False(t, ok)
		k.Keep("/models", []byte(`["loras"]`), "[]", "", nil)
	})
	run(classes, func(k *Answers) {
		body, ok := k.Last(t.Context(), "/models", anybody)
		require.True(t, ok)
		require.JSONEq(t, `["loras"]`, string(body))
		_, ok = k.Settled("/models", nil)
		require.False(t, ok, "it was said to another process")
	})
	run(nil, func(k *Answers) {
		body, ok := k.Last(t.Context(), classesPath, anybody)
		require.True(t, ok)
		require.Equal(t, classes.ObjectInfo(nil).Body(), body)
	})
}

func anybody(string) bool { return true }

// Who was thrown out has no say any more, and no part in what was made of many answers.
func TestAnswersOfOwners(t *testing.T) {
	t.Parallel()
	k, _ := opened(t)
	k.Keep("/extensions", []byte(`["/extensions/evil.js"]`), "[]", "rogue", nil)
	k.Keep("/i18n", []byte(`{"a": 1}`), "{}", "gpu1", nil)
	k.Keep("/models", []byte(`["loras"]`), "[]", "", nil)
	only := func(owner string) func(string) bool { return func(o string) bool { return o == owner } }
	_, ok := k.Last(t.Context(), "/extensions", only("gpu1"))
	require.False(t, ok)
	_, ok = k.Last(t.Context(), "/extensions", only("rogue"))
	require.True(t, ok)
	k.Forget("rogue")
	for path, kept := range map[string]bool{"/extensions": false, "/i18n": true, "/models": false} {
		_, ok := k.Last(t.Context(), path, anybody)
		require.Equal(t, kept, ok, path)
	}
	k.Keep("/i18n", []byte(`{"a": 1}`), "{}", "rogue", nil)
	_, ok = k.Last(t.Context(), "/i18n", only("gpu1"))
	require.False(t, ok, "the same answer of another is the other's")
}
