package files

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

func TestAssetID(t *testing.T) {
	t.Parallel()
	hash := "blake3:" + strings.Repeat("0123456789abcdef", 4)
	id, ok := AssetID(hash)
	require.True(t, ok)
	require.Equal(t, "01234567-89ab-8def-8123-456789abcdef", id)
	require.Equal(t, uuid.RFC4122, must(uuid.Parse(id)).Variant())
	upper, ok := AssetID(strings.ToUpper(hash))
	require.True(t, ok)
	require.Equal(t, id, upper)
	for _, odd := range []string{"", "blake3:", hash[:70], hash + "0", "sha256" + hash[6:], hash[:70] + "x"} {
		_, ok := AssetID(odd)
		require.False(t, ok, odd)
	}
}

func TestShortName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a.png":                               "a.png",
		strings.Repeat("a", 200) + ".png":     strings.Repeat("a", 186) + ".png",
		strings.Repeat("é", 100) + ".png":     strings.Repeat("é", 93) + ".png",
		"." + strings.Repeat("x", 300):        "." + strings.Repeat("x", 189),
		"a." + strings.Repeat("x", 300) + "é": "a." + strings.Repeat("x", 188),
	} {
		require.Equal(t, want, shortName(name))
		require.True(t, storable(strings.Repeat("0", hashDigits)+"_"+shortName(name)))
	}
}

// bytesOf are the bytes of a file.
func bytesOf(t *testing.T, s *Store, ref job.FileRef) string {
	t.Helper()
	body := must(s.Open(t.Context(), must(s.Resolve(t.Context(), tenant, ref)), 0, -1))
	defer body.Close()
	return string(must(io.ReadAll(body)))
}

// An asset keeps its bytes and its first name, and what somebody puts into its folder otherwise
// is not it.
func TestAssets(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Embedded(t))
	u := NewUploads(s, nil, UploadOptions{})
	ctx := t.Context()
	keep := func(name, content string) (a Asset, created bool) {
		t.Helper()
		post(t, func(w http.ResponseWriter, r *http.Request, tenant string) error {
			n := must(u.ReceiveAsset(w, r))
			defer n.Close()
			require.Equal(t, []string{"p", "h"}, []string{n.Path, n.Expected})
			var err error
			a, created, err = u.KeepAsset(ctx, tenant, name, n)
			return err
		}, text("file_path", "p"), part{disposition: `name="file"; filename="x"`, body: content}, text("expected_hash", "h"), text("tags", "t"))
		return a, created
	}
	a, created := keep("cat.png", "cat")
	require.True(t, created)
	require.Equal(t, "cat.png", a.Name)
	require.EqualValues(t, 3, a.Size)
	require.Equal(t, "cat", bytesOf(t, s, a.Ref))
	same, created := keep("dog.png", "cat")
	require.False(t, created)
	require.Equal(t, a, same)

	// By /upload/image, other bytes under its name.
	must(s.Upload(ctx, tenant, a.Ref, true, strings.NewReader("dog")))
	_, created = keep("cat.png", "cat")
	require.False(t, created)
	require.Equal(t, "cat", bytesOf(t, s, a.Ref))
	must(s.Upload(ctx, tenant, job.FileRef{Type: job.TypeInput, Subfolder: a.Ref.Subfolder, Filename: "x.png"}, true, strings.NewReader("x")))
	require.Equal(t, a.Ref, must(u.FindAsset(ctx, tenant, a.ID)).Ref)
	for _, id := range []string{"", "x", strings.ToUpper(a.ID), "../" + a.ID, uuid.NewString()} {
		_, err := u.FindAsset(ctx, tenant, id)
		require.ErrorIs(t, err, ErrNotFound, id)
	}
	require.NoError(t, u.DeleteAsset(ctx, tenant, a.ID))
	require.ErrorIs(t, u.DeleteAsset(ctx, tenant, a.ID), ErrNotFound)
	require.Empty(t, must(s.List(ctx, tenant, job.TypeInput, a.Ref.Subfolder)))

	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("{}"))
	require.Nil(t, must(u.ReceiveAsset(httptest.NewRecorder(), r)))
}
