package keyring_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// memory is a store that counts how often it is listed and can be away. That
// folders and buckets do the same is what the hub's tests show.
type memory struct {
	mu      sync.Mutex
	objects map[string]string
	lists   int
	writes  int
	away    bool
}

func newMemory() *memory { return &memory{objects: map[string]string{}} }

var errDown = errors.New("down")

func (m *memory) List(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists++
	if m.away {
		return nil, errDown
	}
	return append(slices.Collect(maps.Keys(m.objects)), "1700000000-0123456789abcdef.tmp"), nil
}

func (m *memory) Read(_ context.Context, name string) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return nil, false, errDown
	}
	body, ok := m.objects[name]
	return []byte(body), ok, nil
}

func (m *memory) Write(_ context.Context, name string, body []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return errDown
	}
	m.writes++
	m.objects[name] = string(body)
	return nil
}

func (m *memory) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}

func (m *memory) change(f func(m *memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

// listed is how often it was listed.
func (m *memory) listed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists
}

// snapshot is what lies in the store.
func (m *memory) snapshot() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.objects)
}

func open(t testing.TB, m *memory, secrets ...string) *keyring.Ring {
	t.Helper()
	return must.Get(keyring.Open(t.Context(), options(m, secrets...)))(t)
}

// options are those of a ring that derives quickly.
func options(m *memory, secrets ...string) keyring.Options {
	return keyring.Quick(keyring.Options{Store: m, Secrets: secrets})
}

func seal(t testing.TB, r *keyring.Ring, p keyring.Purpose, value string) []byte {
	t.Helper()
	return must.Get(r.Sealer(p).Seal([]byte(value), []byte("label")))(t)
}

func opens(t testing.TB, r *keyring.Ring, p keyring.Purpose, sealed []byte, want string) {
	t.Helper()
	require.Equal(t, want, string(must.Get(r.Sealer(p).Open(t.Context(), sealed, []byte("label")))(t)))
}

func TestPurposesAreApart(t *testing.T) {
	t.Parallel()
	r := open(t, newMemory())
	all := []keyring.Purpose{keyring.Links, keyring.APIKeys, keyring.Cookies, keyring.Tokens}
	for _, p := range all {
		sealed := seal(t, r, p, "value")
		require.NotContains(t, string(sealed), "value")
		opens(t, r, p, sealed, "value")
		_, err := r.Sealer(p).Open(t.Context(), sealed, []byte("another label"))
		require.ErrorIs(t, err, keyring.ErrForged)
		for _, other := range all {
			if other != p {
				_, err := r.Sealer(other).Open(t.Context(), sealed, []byte("label"))
				require.ErrorIs(t, err, keyring.ErrForged, "%s opens what is for %s", other, p)
			}
		}
		for n := range sealed {
			forged := slices.Clone(sealed)
			forged[n] ^= 1
			_, err := r.Sealer(p).Open(t.Context(), forged, []byte("label"))
			require.ErrorIs(t, err, keyring.ErrForged, "byte %d", n)
			_, err = r.Sealer(p).Open(t.Context(), sealed[:n], []byte("label"))
			require.ErrorIs(t, err, keyring.ErrForged, "%d bytes", n)
		}
	}
}

// Another store is another ring, and the same store the same.
func TestRingIsThatOfItsStore(t *testing.T) {
	t.Parallel()
	one := newMemory()
	sealed := seal(t, open(t, one), keyring.Links, "value")
	opens(t, open(t, one), keyring.Links, sealed, "value")
	_, err := open(t, newMemory()).Sealer(keyring.Links).Open(t.Context(), sealed, []byte("label"))
	require.ErrorIs(t, err, keyring.ErrForged)
}

// Hubs that start at the same moment for the first time must understand each
// other at once, however their requests to the store interleave.
func TestFirstStartOfManyHubs(t *testing.T) {
	t.Parallel()
	for range 20 {
		m := newMemory()
		rings := make([]*keyring.Ring, 8)
		var wait sync.WaitGroup
		for n := range rings {
			wait.Go(func() { rings[n] = open(t, m) })
		}
		wait.Wait()
		for _, from := range rings {
			sealed := seal(t, from, keyring.APIKeys, "value")
			for _, to := range rings {
				opens(t, to, keyring.APIKeys, sealed, "value")
			}
		}
	}
}

func TestRotation(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		m := newMemory()
		one, two := open(t, m), open(t, m)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go two.Follow(ctx)
		time.Sleep(time.Hour)
		before := seal(t, one, keyring.Links, "before")
		rotation := must.Get(one.Rotate(ctx))(t)
		require.Equal(t, 2, rotation.Keys)
		require.WithinDuration(t, time.Now().Add(keyring.Spread), rotation.From, 0)

		// Nobody seals with the new key while it is handed out.
		keyOf := func(sealed []byte) string { return string(sealed[1:9]) }
		time.Sleep(keyring.Spread - time.Second)
		require.Equal(t, keyOf(before), keyOf(seal(t, one, keyring.Links, "x")))
		asked := m.listed()
		time.Sleep(time.Second)
		after := seal(t, one, keyring.Links, "after")
		require.NotEqual(t, keyOf(before), keyOf(after))
		require.Equal(t, keyOf(after), keyOf(seal(t, two, keyring.Links, "x")), "the other hub does the same")
		asked = m.listed() - asked
		opens(t, two, keyring.Links, after, "after")
		require.LessOrEqual(t, asked, 1, "the other hub knew it before")

		// The old one opens for a month, and is then deleted.
		stop()
		synctest.Wait()
		for range 2 {
			require.NoError(t, two.Expire(t.Context(), time.Now()))
			opens(t, one, keyring.Links, before, "before")
			opens(t, two, keyring.Links, before, "before")
			time.Sleep(keyring.Keep - time.Minute)
		}
		require.NoError(t, two.Expire(t.Context(), time.Now()))
		_, err := two.Sealer(keyring.Links).Open(t.Context(), before, []byte("label"))
		require.ErrorIs(t, err, keyring.ErrForged)
		require.NoError(t, one.Refresh(t.Context()))
		_, err = one.Sealer(keyring.Links).Open(t.Context(), before, []byte("label"))
		require.ErrorIs(t, err, keyring.ErrForged, "the other hub forgets it, too")
		opens(t, two, keyring.Links, after, "after")
		require.Len(t, m.snapshot(), 1)
		time.Sleep(10 * keyring.Keep)
		require.NoError(t, two.Expire(t.Context(), time.Now()))
		opens(t, two, keyring.Links, after, "after")
	})
}

// A hub that has not heard of a key yet reads the ring when it meets it, but
// forged values do not make it read all the time, and never keep it from API
// keys.
func TestUnknownKey(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		m := newMemory()
		one, two := open(t, m), open(t, m)
		time.Sleep(time.Hour)
		must.Get(one.Rotate(t.Context()))(t)
		time.Sleep(keyring.Spread)
		links, keys := seal(t, one, keyring.Links, "a link"), seal(t, one, keyring.APIKeys, "an API key")
		forged := slices.Clone(links)
		forged[3] ^= 1
		m.change(func(m *memory) { m.lists = 0 })
		for range 1000 {
			_, err := two.Sealer(keyring.Links).Open(t.Context(), forged, []byte("label"))
			require.ErrorIs(t, err, keyring.ErrForged)
		}
		require.Equal(t, 1, m.listed())
		opens(t, two, keyring.Links, links, "a link")

		must.Get(one.Rotate(t.Context()))(t)
		time.Sleep(keyring.Spread)
		keys = append(keys[:0], seal(t, one, keyring.APIKeys, "an API key")...)
		for range 10 {
			_, err := two.Sealer(keyring.Links).Open(t.Context(), forged, []byte("label"))
			require.ErrorIs(t, err, keyring.ErrForged)
		}
		opens(t, two, keyring.APIKeys, keys, "an API key")
	})
}

// hanging is a store that does not answer until it is let go, whatever becomes of the one
// who asks: a folder of a file server that is away.
type hanging struct {
	*memory

	release chan struct{}
}

func (h hanging) List(ctx context.Context) ([]string, error) {
	<-h.release
	return h.memory.List(ctx)
}

// While one reads the ring from a store that hangs, others wait no longer than they want to.
func TestStoreHangs(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		store := hanging{newMemory(), make(chan struct{})}
		ring := must.Get(keyring.New(keyring.Options{Store: store}))(t)
		first := make(chan error, 1)
		go func() { first <- ring.Refresh(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, ring.Refresh(ctx), keyring.ErrUnavailable)
		require.ErrorIs(t, ring.Expire(ctx, time.Now()), context.DeadlineExceeded)
		close(store.release)
		require.NoError(t, <-first)
		require.NoError(t, ring.Refresh(t.Context()))
	})
}
