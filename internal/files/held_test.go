package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newHeld(t *testing.T) *Held {
	t.Helper()
	storage := must(OpenStorage(t.Context(), t.TempDir()))
	t.Cleanup(func() { require.NoError(t, storage.Close()) })
	return NewHeld(storage)
}

// putAt puts a picture; a higher n makes it younger. Many Linux kernels give files the same
// time that are written within a few milliseconds.
func (h *Held) putAt(t *testing.T, n int, tenant, id string, size int) {
	t.Helper()
	require.NoError(t, h.Put(t.Context(), tenant, id, strings.NewReader(strings.Repeat("x", size))))
	at := time.Now().Add(time.Duration(n-100) * time.Second)
	require.NoError(t, os.Chtimes(filepath.Join(h.storage.Dir(), filepath.FromSlash(h.key(tenant, id))), at, at))
}

// left counts a tenant's pictures.
func (h *Held) left(t *testing.T, tenant string) int {
	t.Helper()
	all := must(h.list(context.Background(), h.folder(tenant)))
	return len(all)
}

func TestHeldPicturesExpire(t *testing.T) {
	t.Parallel()
	h, ctx := newHeld(t), t.Context()
	require.NoError(t, h.Put(ctx, "default", "a/b", strings.NewReader("1234")))
	require.NoError(t, h.Expire(ctx))
	require.True(t, h.Has(ctx, "default", "a/b"))
	require.NoError(t, h.expire(ctx, time.Now().Add(time.Hour), maxAllHeldBytes))
	require.False(t, h.Has(ctx, "default", "a/b"))
	_, _, _, err := h.Open(ctx, "default", "a/b")
	require.ErrorIs(t, err, ErrGone)
}

func TestHeldPicturesOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	h, ctx := newHeld(t), t.Context()
	for n, id := range []string{"a", "b", "c"} {
		h.putAt(t, n, "default", id, 4)
	}
	require.NoError(t, h.shrink(ctx, h.folder("default"), 8, 9))
	require.False(t, h.Has(ctx, "default", "a"), "the oldest gives way")
	require.True(t, h.Has(ctx, "default", "c"))
}

// A tenant's pictures push out only its own, by number and by size. Over the bound
// for all tenants, the tenant with the most loses pictures.
func TestHeldPicturesOfOthersStay(t *testing.T) {
	t.Parallel()
	h, ctx := newHeld(t), t.Context()
	h.putAt(t, 0, "small", "1", 50)
	for n := range 5 {
		h.putAt(t, n, "many", fmt.Sprint(n), 10)
		h.putAt(t, n, "large", fmt.Sprint(n), 100)
	}
	require.NoError(t, h.shrink(ctx, h.folder("many"), 1000, 3))
	require.Equal(t, 3, h.left(t, "many"))
	require.NoError(t, h.expire(ctx, time.Now().Add(-heldFor), 300))
	require.Equal(t, 1, h.left(t, "small"))
	require.Equal(t, 3, h.left(t, "many"))
	require.Equal(t, 2, h.left(t, "large"))
	require.True(t, h.Has(ctx, "large", "4"), "the oldest go")
}
