package links

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// newSignerOf returns a signer for a storage.
func newSignerOf(t testing.TB, location string) *signer {
	t.Helper()
	storage := must.Get(files.OpenStorage(t.Context(), location))(t)
	t.Cleanup(func() { _ = storage.Close() })
	ring := must.Get(keyring.Open(t.Context(), keyring.Options{Store: storage.KeyStore()}))(t)
	return newSigner(ring.Sealer(keyring.Links))
}

// parsed is a link as a URL.
func parsed(t *testing.T, link string) *url.URL {
	t.Helper()
	u := must.Get(url.Parse("/" + link))(t)
	return u
}

func TestSignerKeepsToItsKey(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		now := time.Unix(1_800_000_000, 0)
		location := t.TempDir()
		one, same, two := newSignerOf(t, location), newSignerOf(t, location), newSignerOf(t, t.TempDir())
		for _, name := range []string{"a.png", "with space.mp4", "100%.png", "семь.webp", "a?b#c&d=e.png", "x:1.png"} {
			ref := job.FileRef{Type: "output", Subfolder: "sub/folder", Filename: name}
			link, err := one.link("ann", ref, now.Add(-time.Hour), now)
			require.NoError(t, err)
			u := parsed(t, link)
			got := u.Path[1:]
			require.Equal(t, name, got)

			for _, s := range []*signer{one, same} {
				tenant, file, err := s.open(t.Context(), got, u.Query().Get("exp"), u.Query().Get("sig"), now.Add(-time.Second))
				require.NoError(t, err)
				require.Equal(t, "ann", tenant)
				require.Equal(t, ref, file)
			}
			_, _, err = one.open(t.Context(), got, u.Query().Get("exp"), u.Query().Get("sig"), now)
			require.ErrorIs(t, err, ErrLinkExpired)
			_, _, err = two.open(t.Context(), got, u.Query().Get("exp"), u.Query().Get("sig"), now.Add(-time.Second))
			require.ErrorIs(t, err, ErrLinkForged)
		}
	})
}

// Even with a key of the hub, nobody can make a link that works longer than the
// hub itself would allow.
func TestLinkLifeIsBoundedWhenOpened(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		now := time.Unix(1_800_000_000, 0)
		s := newSignerOf(t, t.TempDir())
		ref := job.FileRef{Type: "output", Filename: "a.png"}
		for _, tc := range []struct {
			name            string
			issued, expires time.Duration // from now
			want            error
		}{
			{"the longest", 0, MaxLinkLife, nil},
			{"made by a hub whose clock is ahead", clockSkew, MaxLinkLife + clockSkew, nil},
			{"nearly over", -MaxLinkLife + time.Second, time.Second, nil},
			{"over", -MaxLinkLife, 0, ErrLinkExpired},
			{"too long", 0, MaxLinkLife + time.Second, ErrLinkTooLong},
			{"for ever", 0, 100 * 365 * 24 * time.Hour, ErrLinkTooLong},
			{"for ever, made in the future", 99 * 365 * 24 * time.Hour, 99*365*24*time.Hour + time.Hour, ErrLinkTooLong},
			{"renewed", -MaxLinkLife, time.Hour, ErrLinkTooLong},
			{"made later than now", time.Hour, 2 * time.Hour, ErrLinkTooLong},
		} {
			link, err := s.link("ann", ref, now.Add(tc.issued), now.Add(tc.expires))
			require.NoError(t, err)
			u := parsed(t, link)
			_, _, err = s.open(t.Context(), "a.png", u.Query().Get("exp"), u.Query().Get("sig"), now)
			require.ErrorIs(t, err, tc.want, tc.name)
		}
	})
}

func FuzzSignerOpen(f *testing.F) {
	s := newSignerOf(f, f.TempDir())
	f.Add("a.png", "1800000000", "AAAA")
	f.Fuzz(func(t *testing.T, name, exp, sig string) {
		_, _, err := s.open(t.Context(), name, exp, sig, time.Unix(1, 0))
		require.ErrorIs(t, err, ErrLinkForged)
	})
}
