package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, io.EOF }

func input(name string) job.FileRef { return job.FileRef{Type: job.TypeInput, Filename: name} }

func TestUploadRefusals(t *testing.T) {
	s := parallelStore(t)
	s.mustUpload(t, job.FileRef{Type: job.TypeInput, Subfolder: "there", Filename: "x"}, "x")
	long := strings.Repeat("n", 256)
	for _, c := range []struct {
		ref    job.FileRef
		status int
	}{
		{job.FileRef{Type: "", Filename: "a"}, 500},
		{job.FileRef{Type: "Input", Filename: "a"}, 500},
		{job.FileRef{Type: job.TypeInput, Filename: ""}, 400},
		{job.FileRef{Type: job.TypeInput, Subfolder: "..", Filename: "a"}, 400},
		{job.FileRef{Type: job.TypeInput, Subfolder: `..\..`, Filename: "a"}, 400},
		{job.FileRef{Type: job.TypeInput, Subfolder: "/etc", Filename: "a"}, 400},
		{job.FileRef{Type: job.TypeInput, Filename: ".."}, 400},
		{job.FileRef{Type: job.TypeInput, Subfolder: "a", Filename: "../../b"}, 400},
		{job.FileRef{Type: job.TypeInput, Filename: "."}, 500},
		{job.FileRef{Type: job.TypeInput, Subfolder: "sub", Filename: "."}, 500},
		{job.FileRef{Type: job.TypeInput, Filename: "a/"}, 500},
		{job.FileRef{Type: job.TypeInput, Filename: "not/there"}, 500},
		{job.FileRef{Type: job.TypeInput, Filename: `not\there`}, 500},
		{job.FileRef{Type: job.TypeInput, Filename: "nul\x00"}, 500},
		{job.FileRef{Type: job.TypeInput, Subfolder: "nul\x00", Filename: "a"}, 500},
		{job.FileRef{Type: job.TypeInput, Filename: long}, 500},
		{job.FileRef{Type: job.TypeInput, Subfolder: long, Filename: "a"}, 500},
	} {
		_, err := s.Upload(t.Context(), tenant, c.ref, false, strings.NewReader("x"))
		var refused *StatusError
		require.ErrorAs(t, err, &refused, "%q", c.ref)
		require.Equal(t, c.status, refused.Status, "%q", c.ref)
	}
	got := s.mustUpload(t, job.FileRef{Type: job.TypeInput, Filename: "there/y.png"}, "y")
	require.Equal(t, job.FileRef{Type: job.TypeInput, Filename: "there/y.png"}, got)
	require.Equal(t, "y", s.mustRead(t, job.FileRef{Type: job.TypeInput, Subfolder: "./there//", Filename: "y.png"}))
	require.Equal(t, "there/y (1).png", s.mustUpload(t, job.FileRef{Type: job.TypeInput, Filename: "there/y.png"}, "z").Filename)
}

func TestUploadOverwrites(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		s.mustUpload(t, input("a"), "old")
		before := must(s.Resolve(t.Context(), tenant, input("a")))
		got := must(s.Upload(t.Context(), tenant, input("a"), true, strings.NewReader("new")))
		require.Equal(t, input("a"), got)
		require.Equal(t, "new", s.mustRead(t, got))
		require.NotEqual(t, before.ETag, must(s.Resolve(t.Context(), tenant, input("a"))).ETag)
	})
}

// Every name that was returned for an upload has the bytes of that upload.
func TestUploadsConcurrently(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			names = map[string]string{}
		)
		for i := range 24 {
			wg.Go(func() {
				data := fmt.Sprint(i % 12) // each content twice
				got, err := s.Upload(t.Context(), tenant, input("a.png"), false, strings.NewReader(data))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if other, taken := names[got.Filename]; taken && other != data {
					t.Errorf("%s holds %s and %s", got.Filename, other, data)
				}
				names[got.Filename] = data
			})
		}
		wg.Wait()
		require.Len(t, names, 12)
		for name, data := range names {
			require.Equal(t, data, s.mustRead(t, input(name)))
		}
	})
}

// brokenReader fails after its data.
type brokenReader struct{ r io.Reader }

var errBroken = errors.New("broke off")

func (b brokenReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = errBroken
	}
	return n, err
}

func TestUploadThatBreaksOffLeavesNothing(t *testing.T) {
	s := parallelStore(t)
	_, err := s.Upload(t.Context(), tenant, input("a"), false, brokenReader{strings.NewReader("half")})
	require.ErrorIs(t, err, errBroken)
	_, err = s.Resolve(t.Context(), tenant, input("a"))
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, s.storage.List(t.Context(), "", func(b Blob) error {
		t.Errorf("blob %s is left", b.Key)
		return nil
	}))
}

func TestUploadWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newStore(t, redistest.Open(t, server.URL()))
	server.Kill()
	_, err := s.Upload(t.Context(), tenant, input("a"), false, strings.NewReader("x"))
	require.ErrorIs(t, err, redis.ErrUnavailable)
	srv := viewServer(t, s)
	resp := must(srv.Client().Get(srv.URL + "/view?filename=a&type=input"))
	defer resp.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
}

func TestListNewestFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for minute, names := range [][]string{{"b", "a"}, {"d"}, {"c"}} {
			for _, name := range names {
				s.at(minute).mustUpload(t, job.FileRef{Type: job.TypeInput, Subfolder: "sub", Filename: name}, name)
			}
		}
		s.mustUpload(t, input("elsewhere"), "x")
		entries := must(s.List(t.Context(), tenant, job.TypeInput, "./sub/"))
		var names []string
		for _, e := range entries {
			names = append(names, e.Ref.Filename)
		}
		require.Equal(t, []string{"c", "d", "a", "b"}, names)
		for _, none := range [][2]string{{job.TypeInput, "nothing"}, {job.TypeInput, ".."}, {"bad", ""}} {
			require.Empty(t, must(s.List(t.Context(), tenant, none[0], none[1])))
		}
	})
}

// folder is ComfyUI's input folder: names and contents.
type folder map[string]string

// upload does what ComfyUI's image_upload does, trying one name after the other.
func (f folder) upload(name, content string, overwrite bool) string {
	stem, ext := splitExt(name)
	for i := 1; !overwrite; i++ {
		there, taken := f[name]
		if !taken {
			break
		}
		if there == content {
			return name
		}
		name = fmt.Sprintf("%s (%d)%s", stem, i, ext)
	}
	f[name] = content
	return name
}

// Whatever is uploaded, replaced and removed, uploads get the names that ComfyUI would
// give them.
func TestUploadsAreNamedAsComfyUINamesThem(t *testing.T) {
	t.Parallel()
	names := []string{"a.png", "a (1).png", "a (3).png", "a (1) (1).png", "a", "a (2)", ".png", ".png (1)"}
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s := newStore(t, db)
		for seed := range uint64(4) {
			random, want := rand.New(rand.NewPCG(seed, 0)), folder{}
			owner := fmt.Sprint("tenant ", seed)
			for range 250 {
				name, content := names[random.IntN(len(names))], "content "+strconv.Itoa(random.IntN(12))
				if random.IntN(5) == 0 {
					delete(want, name)
					require.NoError(t, s.Remove(t.Context(), owner, []job.FileRef{input(name)}))
					continue
				}
				overwrite := random.IntN(8) == 0
				got := must(s.Upload(t.Context(), owner, input(name), overwrite, strings.NewReader(content)))
				require.Equal(t, want.upload(name, content, overwrite), got.Filename)
			}
			require.Len(t, must(s.List(t.Context(), owner, job.TypeInput, "")), len(want))
		}
	})
}

// sameNames gives a tenant's folder count files of one name.
func (s *Store) sameNames(t testing.TB, count int) {
	t.Helper()
	p := place{typ: job.TypeInput}
	entries := make([]any, 0, 2*count)
	for n := range count {
		name := "image.png"
		if n > 0 {
			name = fmt.Sprintf("image (%d).png", n)
		}
		sum := sha256.Sum256([]byte(name))
		e := must(Entry{Key: contentKey(hex.EncodeToString(sum[:])), Size: 1, SHA256: hex.EncodeToString(sum[:])}.encode())
		entries = append(entries, name, e)
	}
	require.NoError(t, s.db.Client().HSet(t.Context(), s.keys.folder(tenant, p), entries...).Err())
}

var reads = regexp.MustCompile(`cmdstat_h(?:get|exists):calls=(\d+)`)

// The thousandth file of one name costs Redis no more than the second: names that were tried before
// are not tried again.
func TestSameNamesAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	const count = 1000
	for name, another := range map[string]func(s *Store, n int) (job.FileRef, error){
		"uploads": func(s *Store, n int) (job.FileRef, error) {
			return s.Upload(t.Context(), tenant, input("image.png"), false, strings.NewReader(fmt.Sprint(n)))
		},
		"outputs": func(s *Store, n int) (job.FileRef, error) {
			src := made("a", "image.png", fmt.Sprint(n))
			src.Type = job.TypeInput
			return s.AllotOutput(t.Context(), tenant, src)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, redistest.Open(t, redistest.Start(t).URL()))
			s.sameNames(t, count)
			_, err := another(s, 0) // learns what is there
			require.NoError(t, err)
			require.NoError(t, s.db.Client().ConfigResetStat(t.Context()).Err())
			for n := range 5 {
				ref := must(another(s, n+1))
				if name == "uploads" {
					require.Equal(t, fmt.Sprintf("image (%d).png", count+1+n), ref.Filename)
				}
			}
			stats := must(s.db.Client().Info(t.Context(), "commandstats").Result())
			total := 0
			for _, m := range reads.FindAllStringSubmatch(stats, -1) {
				n := must(strconv.Atoi(m[1]))
				total += n
			}
			require.Less(t, total, count, "reads of Redis for five names")
		})
	}
}
