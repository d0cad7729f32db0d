package files

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// folder is ComfyUI's input folder: names and contents.
type folder map[string]string

// upload is what ComfyUI's image_upload does, which tries one name after the other.
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

// sameNames gives a tenant's folder so many files of one name.
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
	require.NoError(t, s.db.Client().HSet(t.Context(), s.folderKey(tenant, p), entries...).Err())
}

var reads = regexp.MustCompile(`cmdstat_h(?:get|exists):calls=(\d+)`)

// The thousandth file of one name costs Redis no more than the second: names that were
// tried before are not tried again.
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

func BenchmarkSameNames(b *testing.B) {
	for _, count := range []int{10, 9900} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			s := newStore(b, redistest.Open(b, redistest.Start(b).URL()))
			s.sameNames(b, count)
			u := must(s.newUpload(b.Context(), tenant, input("image.png"), false))
			for b.Loop() {
				_, _, err := u.expect(b.Context(), strings.Repeat("f", 64))
				require.NoError(b, err)
			}
		})
	}
}
