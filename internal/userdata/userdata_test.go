package userdata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// memory is a Storage in memory.
type memory struct {
	mu    sync.Mutex
	blobs map[string][]byte
	tick  int64
	times map[string]time.Time
	fails bool
}

var errBroken = errors.New("broken")

func newMemory() *memory { return &memory{blobs: map[string][]byte{}, times: map[string]time.Time{}} }

func (m *memory) Write(_ context.Context, key string, r io.Reader) (int64, error) {
	body, err := io.ReadAll(r)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails {
		return 0, errBroken
	}
	m.tick++
	m.blobs[key], m.times[key] = body, time.Unix(1_700_000_000+m.tick, 0)
	return int64(len(body)), nil
}

func (m *memory) OpenSized(_ context.Context, key string, size, offset, length int64) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, ok := m.blobs[key]
	if !ok || size >= 0 && size != int64(len(body)) {
		return nil, fs.ErrNotExist
	}
	body = body[offset:]
	if length >= 0 {
		body = body[:length]
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

func (m *memory) Stat(_ context.Context, key string) (Blob, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, ok := m.blobs[key]
	if !ok {
		return Blob{}, fs.ErrNotExist
	}
	return Blob{Key: key, Size: int64(len(body)), Modified: m.times[key]}, nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.blobs, key)
	return nil
}

func (m *memory) List(_ context.Context, prefix string, each func(Blob) error) error {
	m.mu.Lock()
	var found []Blob
	for key, body := range m.blobs {
		if strings.HasPrefix(key, prefix) {
			found = append(found, Blob{Key: key, Size: int64(len(body)), Modified: m.times[key]})
		}
	}
	m.mu.Unlock()
	slices.SortFunc(found, func(a, b Blob) int { return strings.Compare(a.Key, b.Key) })
	for _, b := range found {
		if err := each(b); err != nil {
			return err
		}
	}
	return nil
}

func (f Folder) put(t *testing.T, p Path, body string) {
	t.Helper()
	_, err := f.Write(t.Context(), p, strings.NewReader(body), true)
	require.NoError(t, err)
}

func (f Folder) text(t *testing.T, p Path) string {
	t.Helper()
	body := must.Get(f.open(t.Context(), p))(t)
	defer body.Close()
	raw := must.Get(io.ReadAll(body))(t)
	return string(raw)
}

func TestParsePath(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]Path{
		"":                     "",
		".":                    "",
		"a.json":               "a.json",
		"workflows/a.json":     "workflows/a.json",
		"workflows%2Fa.json":   "workflows/a.json",
		"a/./b//c/":            "a/b/c",
		"a/../b":               "b",
		"100%":                 "100%",
		"%zz%4":                "%zz%4",
		"%ff":                  "\uFFFD",
		"..a/b..":              "..a/b..",
		"日本.json":              "日本.json",
		"workflows/.index":     "workflows/.index",
		"comfy.templates.json": "comfy.templates.json",
	} {
		p, err := ParsePath(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, p, raw)
	}
	for _, raw := range []string{"..", "../x", "a/../../x", "/etc/passwd", "%2e%2e/x", "..%2f..%2fx", "%2Fetc", "a/%2e%2e/..", "./.."} {
		_, err := ParsePath(raw)
		require.ErrorIs(t, err, ErrOutside, raw)
	}
	for _, raw := range []string{"a\x00b", "a%00b", "a\nb", `a\b`, strings.Repeat("x", maxSegment+1), strings.Repeat("x/", maxPath), "a__0x2f__b", "a.18e9f23cffcaf723.tmp", "\xff", "a/b.attrs"} {
		_, err := ParsePath(raw)
		require.ErrorIs(t, err, ErrName, raw)
	}
}

func FuzzParsePath(f *testing.F) {
	for _, seed := range []string{"a/b", "..%2f..", "%252e%252e/", "a/../../b", "/", "%2f", "a\\..\\b", "..", "a/%2e%2e/%2e%2e/b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := ParsePath(raw)
		if err != nil {
			return
		}
		require.True(t, p == "" || fs.ValidPath(string(p)), "%q leaves the folder", p)
		folder := New(nil, nil).Folder("t", "u")
		require.Equal(t, p, Path(strings.TrimPrefix(folder.fileKey(p), folder.prefix+"f/")))
		if p != "" {
			require.Equal(t, p, folder.pathOfMark(folder.folderKey(p)))
		}
	})
}

// No two tenants and users share a key, and none gets out of its place.
func FuzzFolderPrefix(f *testing.F) {
	f.Add("default", "default", "Default", "default")
	f.Add("..", "a/b", "=x", ".")
	f.Fuzz(func(t *testing.T, tenant1, user1, tenant2, user2 string) {
		s := New(nil, nil)
		a, b := s.Folder(tenant1, user1).prefix, s.Folder(tenant2, user2).prefix
		require.Equal(t, tenant1 == tenant2 && user1 == user2, strings.EqualFold(a, b))
		require.True(t, fs.ValidPath(strings.TrimSuffix(a, "/")))
		require.Equal(t, 3, strings.Count(a, "/"))
	})
}

func TestFiles(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := New(newMemory(), nil).Folder("default", DefaultUser)

	_, err := f.Stat(ctx, "workflows/a.json")
	require.ErrorIs(t, err, fs.ErrNotExist)
	file := must.Get(f.Write(ctx, "workflows/a.json", strings.NewReader("one"), false))(t)
	require.Equal(t, File{Path: "workflows/a.json", Size: 3, Modified: file.Modified}, file)
	_, err = f.Write(ctx, "workflows/a.json", strings.NewReader("two"), false)
	require.ErrorIs(t, err, ErrExists)
	require.Equal(t, "one", f.text(t, "workflows/a.json"))
	f.put(t, "workflows/a.json", "two")
	require.Equal(t, "two", f.text(t, "workflows/a.json"))

	for _, p := range []Path{"", "workflows", "workflows/a.json/b"} {
		_, err = f.Write(ctx, p, strings.NewReader(""), true)
		require.ErrorIs(t, err, ErrName, p)
	}

	f.put(t, "workflows/b.json", "b")
	_, err = f.Move(ctx, "workflows/a.json", "workflows/b.json", false)
	require.ErrorIs(t, err, ErrExists)
	_, err = f.Move(ctx, "nope", "x", true)
	require.ErrorIs(t, err, fs.ErrNotExist)
	moved := must.Get(f.Move(ctx, "workflows/a.json", "old/deep/b.json", true))(t)
	require.Equal(t, Path("old/deep/b.json"), moved.Path)
	require.Equal(t, "two", f.text(t, "old/deep/b.json"))
	_, err = f.Stat(ctx, "workflows/a.json")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = f.Move(ctx, "workflows/b.json", "workflows/b.json", true)
	require.NoError(t, err)
	require.Equal(t, "b", f.text(t, "workflows/b.json"), "moved to itself")

	require.NoError(t, f.Delete(ctx, "workflows/b.json"))
	require.ErrorIs(t, f.Delete(ctx, "workflows/b.json"), fs.ErrNotExist)
	empty, err := f.List(ctx, "workflows", false)
	require.NoError(t, err, "a folder outlives its files")
	require.Empty(t, empty)
}

func TestListings(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(newMemory(), nil)
	f := s.Folder("default", DefaultUser)
	other := s.Folder("default", "other")
	other.put(t, "workflows/foreign.json", "")
	for _, p := range []Path{"workflows/b.json", "workflows/A/x.json", "workflows/A/.hidden/y.json", "workflows/.index.json", "workflowsx/z.json", "user.css"} {
		f.put(t, p, "x")
	}
	list := func(dir Path, recurse bool) string {
		files := must.Get(f.List(ctx, dir, recurse))(t)
		var paths []string
		for _, file := range files {
			paths = append(paths, string(file.Path))
		}
		return strings.Join(paths, " ")
	}
	require.Equal(t, "user.css", list("", false))
	require.Equal(t, "user.css workflows/A/x.json workflows/b.json workflowsx/z.json", list("", true))
	require.Equal(t, "b.json", list("workflows", false))
	require.Equal(t, "A/x.json b.json", list("workflows", true))
	require.Equal(t, "y.json", list("workflows/A/.hidden", false))
	for _, dir := range []Path{"nope", "user.css", "workflow"} {
		_, err := f.List(ctx, dir, true)
		require.ErrorIs(t, err, fs.ErrNotExist, dir)
	}

	entries, err := f.Walk(ctx, "workflows")
	require.NoError(t, err)
	var lines []string
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%s %t", e.Path, e.Directory))
	}
	require.Equal(t, []string{
		"workflows/A/.hidden true", "workflows/A true",
		"workflows/.index.json false", "workflows/b.json false", "workflows/A/x.json false", "workflows/A/.hidden/y.json false",
	}, lines)
	_, err = f.Walk(ctx, "user.css")
	require.ErrorIs(t, err, ErrName)
	_, err = f.Walk(ctx, "nope")
	require.ErrorIs(t, err, fs.ErrNotExist)
	entries = must.Get(s.Folder("nobody", DefaultUser).Walk(ctx, ""))(t)
	require.Empty(t, entries)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := New(newMemory(), nil).Folder("default", DefaultUser)
	var wait sync.WaitGroup
	for n := range 20 {
		wait.Go(func() {
			err := f.ChangeSettings(ctx, func(o *pyjson.Object) { o.Set(fmt.Sprint("key", n), pyjson.Int(int64(n))) })
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	o := must.Get(f.Settings(ctx))(t)
	require.Equal(t, 20, o.Len(), "each change is kept")
	err := f.ChangeSettings(ctx, func(o *pyjson.Object) { o.Set("big", pyjson.String(strings.Repeat("x", maxSettings))) })
	require.ErrorIs(t, err, ErrTooLarge)
	for _, broken := range []string{"", "{", "[]"} {
		f.put(t, settingsFile, broken)
		o := must.Get(f.Settings(ctx))(t)
		require.Zero(t, o.Len())
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(newMemory(), nil)
	id, err := s.AddUser(ctx, "default", " Ada L. ")
	require.NoError(t, err)
	require.Regexp(t, `^Ada-L-_[0-9a-f-]{36}$`, id)
	_, err = s.AddUser(ctx, "default", "Ada L.")
	require.ErrorIs(t, err, ErrDuplicate)
	for _, name := range []string{"", " ", "__system", strings.Repeat("x", maxSegment)} {
		_, err = s.AddUser(ctx, "default", name)
		require.ErrorIs(t, err, ErrName, name)
	}
	for user, want := range map[string]bool{id: true, "": false, "default": false, "__x": false, "Ada L.": false} {
		known := must.Get(s.HasUser(ctx, "default", user))(t)
		require.Equal(t, want, known, user)
	}
	known := must.Get(s.HasUser(ctx, "another", id))(t)
	require.False(t, known)
}

func TestBrokenStorage(t *testing.T) {
	t.Parallel()
	m := newMemory()
	f := New(m, nil).Folder("default", DefaultUser)
	f.put(t, "a", "a")
	m.fails = true
	_, err := f.Write(t.Context(), "b/c", strings.NewReader(""), true)
	require.ErrorIs(t, err, errBroken)
	_, err = f.Move(t.Context(), "a", "d", true)
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, "a", f.text(t, "a"), "a move that fails loses nothing")
	require.ErrorIs(t, f.ChangeSettings(t.Context(), func(*pyjson.Object) {}), errBroken)
}
