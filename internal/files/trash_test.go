package files

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

const week = 7 * 24 * time.Hour

// keeping returns another hub on the same Redis and storage, as hubs of this version are.
func (s *Store) keeping() *Store {
	next := *s
	next.grace = func() time.Duration { return week }
	return &next
}

func (s *Store) trashed(t testing.TB) []Trashed {
	t.Helper()
	all, n, err := NewTrash(s).List(t.Context(), "", 1000)
	require.NoError(t, err)
	require.Len(t, all, n)
	return all
}

func (s *Store) empty(t testing.TB, b TrashBounds, pinned ...string) Swept {
	t.Helper()
	keys := map[string]bool{}
	for _, key := range pinned {
		keys[key] = true
	}
	return must(NewTrash(s).Empty(t.Context(), b, keep(keys)))
}

func (s *Store) overwrite(t testing.TB, data string) {
	t.Helper()
	must(s.Upload(t.Context(), tenant, job.FileRef{Type: job.TypeInput, Filename: "fox.png"}, true, strings.NewReader(data)))
}

// setForward sets the time that Redis's scripts see forward.
func setForward(t testing.TB, s *Store, d time.Duration) {
	t.Helper()
	require.NoError(t, s.db.Client().HSet(t.Context(), s.db.Key("clock"), "ahead", d.Milliseconds()).Err())
}

// What an upload overwrote at one hub can be taken back at another, and after that whatever had the
// name meanwhile. Sweeps of all hubs, even older ones, leave the bytes alone.
func TestTakeBackWhatWasOverwritten(t *testing.T) {
	eachStore(t, func(t *testing.T, older *Store) {
		one, two := older.keeping(), older.keeping()
		fox := job.FileRef{Type: job.TypeInput, Filename: "fox.png"}
		one.overwrite(t, "red")
		require.Empty(t, two.trashed(t))
		one.overwrite(t, "red")
		require.Empty(t, two.trashed(t), "the bytes are the same")
		one.overwrite(t, "green!")
		for _, have := range []string{"red", "green!", "red"} {
			one.letGo(t, one.blobKeys(t)...)
			require.Zero(t, older.later(2*time.Hour).sweepAll(t, nil))
			require.Zero(t, one.empty(t, TrashBounds{}))
			all := two.trashed(t)
			require.Len(t, all, 1)
			got := all[0]
			require.Equal(t, fox, got.Ref)
			require.Equal(t, tenant, got.Tenant)
			require.Equal(t, "overwritten", got.Why)
			require.EqualValues(t, len(have), got.Size)
			require.WithinDuration(t, time.Now(), got.Since, time.Minute)
			require.WithinDuration(t, time.Now().Add(week), got.Until, time.Minute)
			require.Equal(t, got.packed, must(NewTrash(two).TakeBack(t.Context(), tenant, got.ID)).packed)
			require.Equal(t, have, one.mustRead(t, fox))
			_, err := NewTrash(one).TakeBack(t.Context(), tenant, got.ID)
			require.ErrorIs(t, err, ErrNotInTrash)
		}
		tenants := must(one.db.Client().HGetAll(t.Context(), one.db.Key("files", "uploads", tenant)).Result())
		require.Equal(t, "3", tenants["=bytes"], "the trash does not count towards the tenant")
		require.Equal(t, "1", tenants["=files"])
	})
}

// An output that has expired can be taken back, unless another one has its name. After a week its
// bytes are gone.
func TestTakeBackWhatHasExpired(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		s = s.keeping()
		i := newInstance()
		c := newCollector(t, s, i)
		out := func(n int) job.FileRef {
			return job.FileRef{Type: job.TypeOutput, Filename: fmt.Sprintf("x_%05d_.png", n)}
		}
		for n := range 3 {
			s.output(t, i, c, out(n).Filename, 10)
		}
		s.ends(t, minute(0), out(0), out(1), out(2))
		require.Equal(t, Swept{Files: 3}, must(NewRetention(s).Expire(t.Context(), job.TypeOutput, minute(1), keep(nil))))
		require.Empty(t, s.names(t, job.TypeOutput))
		all := s.trashed(t)
		require.Len(t, all, 3)
		require.Equal(t, "unused", all[0].Why)
		for _, trashed := range all {
			if trashed.Ref == out(0) {
				must(NewTrash(s).TakeBack(t.Context(), tenant, trashed.ID))
			}
		}
		require.Equal(t, []string{out(0).Filename}, s.names(t, job.TypeOutput))
		require.Len(t, s.mustRead(t, out(0)), 10)
		require.EqualValues(t, 10, must(s.Taken(t.Context(), tenant)))

		s.output(t, i, c, out(1).Filename, 20)
		for _, trashed := range s.trashed(t) {
			if trashed.Ref == out(1) {
				_, err := NewTrash(s).TakeBack(t.Context(), tenant, trashed.ID)
				require.ErrorIs(t, err, ErrTaken)
			}
		}

		for _, key := range s.blobKeys(t) {
			s.letGo(t, key)
		}
		setForward(t, s, 4*week)
		require.Zero(t, s.empty(t, TrashBounds{Old: time.Now().Add(-time.Hour)}), "Redis's clock was set forward")
		require.Equal(t, Swept{Files: 2, Bytes: 20}, s.empty(t, TrashBounds{Old: time.Now().Add(time.Hour)}))
		require.Empty(t, s.trashed(t))
		require.Len(t, s.blobKeys(t), 2)
	})
}

// The trash makes room for outputs, and takes up nothing if the storage is full. What a job needs
// stays.
func TestTrashIsBounded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		s = s.keeping()
		for n := range 5 {
			setForward(t, s, time.Duration(n)*time.Minute)
			s.overwrite(t, strings.Repeat(fmt.Sprint(n), 10))
		}
		s.letGo(t, s.blobKeys(t)...)
		require.Len(t, s.trashed(t), 4)
		require.Zero(t, s.empty(t, TrashBounds{Size: 40, Own: 40}))
		require.Equal(t, Swept{Files: 1, Bytes: 10}, s.empty(t, TrashBounds{Size: 39}))
		require.Equal(t, Swept{Files: 1, Bytes: 10}, s.empty(t, TrashBounds{Own: 29}))
		left := s.trashed(t)
		require.Len(t, left, 2)
		must(NewTrash(s).TakeBack(t.Context(), tenant, left[1].ID))
		require.Equal(t, strings.Repeat("2", 10), s.mustRead(t, left[1].Ref), "the oldest go")

		needed := contentKey(sum([]byte(strings.Repeat("3", 10))))
		require.Equal(t, Swept{Files: 1, Bytes: 10}, s.empty(t, TrashBounds{Full: true}, needed))
		require.Empty(t, s.trashed(t))
		require.Len(t, s.blobKeys(t), 2)
	})
}

// However often a tenant overwrites its files, the trash has at most a few thousand of its names.
// The bytes of those that made room are deleted at the next opportunity.
func TestTrashHasABoundedNumber(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		s = s.keeping()
		s.overwrite(t, "blue")
		s.overwrite(t, "red")
		var many []goredis.Z
		for n := range 4999 {
			packed := redis.Pack(job.TypeInput, "", fmt.Sprint(n), "unused", `{"v":1,"key":"","size":0}`)
			many = append(many, goredis.Z{Score: float64(time.Now().Add(2 * week).UnixMilli()), Member: packed})
		}
		require.NoError(t, s.db.Client().ZAdd(t.Context(), s.keys.trash(tenant), many...).Err())
		s.letGo(t, s.blobKeys(t)...)
		s.overwrite(t, "green")
		require.EqualValues(t, 5000, must(s.db.Client().ZCard(t.Context(), s.keys.trash(tenant)).Result()))
		require.Len(t, s.blobKeys(t), 3)
		require.Equal(t, Swept{Files: 1, Bytes: 4}, s.empty(t, TrashBounds{}))
		require.Len(t, s.blobKeys(t), 2)
		require.Empty(t, must(s.db.Client().ZRange(t.Context(), s.db.Key("files", "dropped"), 0, -1).Result()))
	})
}

// A tenant whose uploads are limited cannot have more than that in the trash as well, however often
// it overwrites one file.
func TestTrashKeepsToTheLimitOfUploads(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		s = s.keeping()
		s.limits = func(string) Limits { return Limits{Bytes: 25} }
		for n := range 10 {
			s.overwrite(t, strings.Repeat(fmt.Sprint(n), 10))
			setForward(t, s, time.Duration(n)*time.Minute) // so that the oldest can be told
		}
		all := s.trashed(t)
		require.Len(t, all, 2)
		must(NewTrash(s).TakeBack(t.Context(), tenant, all[0].ID))
		require.Equal(t, strings.Repeat("8", 10), s.mustRead(t, all[0].Ref))
		require.Zero(t, s.empty(t, TrashBounds{}), "they were just written, which holds them")
		s.letGo(t, s.blobKeys(t)...)
		setForward(t, s, 2*holdFor)
		require.Equal(t, Swept{Files: 7, Bytes: 70}, s.empty(t, TrashBounds{}))
		require.Len(t, s.blobKeys(t), 3)
	})
}

// What has left the trash is deleted later if the storage cannot do it now, if the hub dies before
// it does, or while a job needs it; unless it has a name again by then.
func TestWhatLeftTheTrashIsDeletedInTheEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		s = s.keeping()
		for _, data := range []string{"red", "green", "blue", "white"} {
			s.overwrite(t, data)
		}
		s.letGo(t, s.blobKeys(t)...)
		require.NoError(t, NewTrash(s).empty(t.Context(), TrashBounds{Full: true})) // and died
		require.Empty(t, s.trashed(t))
		require.Len(t, s.blobKeys(t), 4)
		needed := contentKey(sum([]byte("blue")))
		s.mustUpload(t, input("again.png"), "red")
		require.Equal(t, Swept{Files: 1, Bytes: 5}, s.empty(t, TrashBounds{}, needed))
		require.Len(t, s.blobKeys(t), 3)
		setForward(t, s, 2*holdFor)
		require.Equal(t, Swept{Files: 1, Bytes: 4}, s.empty(t, TrashBounds{}))
		require.Equal(t, "red", s.mustRead(t, input("again.png")))
	})
}

// A blob that the storage refuses to delete holds up no other, however many have left the trash
// after it.
func TestDroppedBlobThatCannotBeDeleted(t *testing.T) {
	t.Parallel()
	f, location := newFaultyStore(t)
	broken := contentKey(sum([]byte("red")))
	fault := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, broken) {
			refuses(w, r)
			return
		}
		f.next.ServeHTTP(w, r)
	})
	f.fault.Store(&fault)
	s := newStoreAt(t, redistest.Embedded(t), location).keeping()
	drop := func(data string) {
		s.overwrite(t, data)
		s.letGo(t, s.blobKeys(t)...)
		require.NoError(t, NewTrash(s).empty(t.Context(), TrashBounds{Full: true}))
	}
	drop("red")
	drop("green")
	drop("blue")
	swept, err := NewTrash(s).Empty(t.Context(), TrashBounds{}, keep(nil))
	require.ErrorIs(t, err, ErrStorage)
	require.Equal(t, Swept{Files: 1, Bytes: 5}, swept)
	drop("white")
	require.Equal(t, Swept{Files: 1, Bytes: 4}, s.empty(t, TrashBounds{}), "the broken one is left alone for an hour")
	f.fault.Store(nil)
	setForward(t, s, 2*holdFor)
	require.Equal(t, Swept{Files: 1, Bytes: 3}, s.empty(t, TrashBounds{}))
	require.Len(t, s.blobKeys(t), 1)
}
