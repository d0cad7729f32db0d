package files

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

func byContent(data, name string) job.FileRef {
	return job.FileRef{Type: job.TypeInput, Subfolder: "comfyhub/" + sum([]byte(data))[:32], Filename: name}
}

func TestPush(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		for _, plain := range []bool{false, true} {
			s, i := newStore(t, db), newInstance()
			i.plain = plain
			c := newCollector(t, s, i)
			p := NewPusher(s, c, false)
			to := Target{Name: "gpu1", Boot: "b1", Instance: i}
			who := tenant
			if plain {
				who, to.Name = "other", "gpu2"
			}
			upload := func(ref job.FileRef, data string) {
				must(s.Upload(t.Context(), who, ref, true, strings.NewReader(data)))
			}
			push := func(refs ...job.FileRef) []Rewrite {
				t.Helper()
				pins := must(s.Pin(t.Context(), who, refs))
				data := must(pins.Encode())
				pins = must(DecodePins(data))
				return must(p.Push(t.Context(), who, pins, to))
			}
			holds := func(ref job.FileRef, want string) {
				t.Helper()
				f, ok := i.get(ref)
				require.True(t, ok, "%v", ref)
				require.Equal(t, want, string(f.data))
			}

			// The name is free, so it is kept, and the file is sent once.
			upload(input("a.png"), "one")
			require.Empty(t, push(input("a.png"), input("a.png"), input("unknown.png")))
			require.Empty(t, push(input("a.png")))
			holds(input("a.png"), "one")
			require.Equal(t, 1, i.uploads)
			require.Zero(t, i.views, "what the hub sent need not be compared")
			for name, want := range map[string]bool{"a.png": true, "b.png": false} {
				require.Equal(t, want, must(NewPlaced(s.db).Remembers(t.Context(), to.Name, input(name))), name)
			}

			// The hub's file has changed. The file on the instance stays.
			upload(input("a.png"), "two")
			want := []Rewrite{{From: input("a.png"), To: byContent("two", "a.png")}}
			require.Equal(t, want, push(input("a.png")))
			require.Equal(t, want, push(input("a.png")))
			holds(input("a.png"), "one")
			holds(byContent("two", "a.png"), "two")
			require.Equal(t, 2, i.uploads)

			// The instance has a file of its own with the same bytes, which takes one look to find
			// out.
			i.put(input("b.png"), "same")
			upload(input("b.png"), "same")
			require.Empty(t, push(input("b.png")))
			require.Empty(t, push(input("b.png")))
			require.Equal(t, 1, i.views)
			// Now it has other bytes of the same length.
			i.put(input("b.png"), "SAME")
			if plain {
				to.Boot = "b2" // nothing else tells that it changed
			}
			require.Equal(t, []Rewrite{{input("b.png"), byContent("same", "b.png")}}, push(input("b.png")))
			holds(input("b.png"), "SAME")
			require.Equal(t, 2, i.views)
			require.Equal(t, 3, i.uploads)

			// A push that broke off is repaired.
			i.put(byContent("two", "a.png"), "t")
			require.Equal(t, want, push(input("a.png")))
			holds(byContent("two", "a.png"), "two")
			require.Equal(t, 4, i.uploads)

			// Outputs are always stored by content, even those that are not copied yet.
			i.put(output("o_00001_.png"), "picture")
			out := must(s.AllotOutput(t.Context(), who, i.source(to.Name, output("o_00001_.png"))))
			rewrites := push(out)
			require.Equal(t, []Rewrite{{out, byContent("picture", "o_00001_.png")}}, rewrites)
			require.Equal(t, rewrites[0].To.Value(true), rewrites[0].Literal("o_00001_.png [output]"))
			require.Equal(t, rewrites[0].To.Value(false), rewrites[0].Literal("o_00001_.png"))

			// Folders stay. The graph decides the spelling.
			upload(job.FileRef{Type: job.TypeInput, Subfolder: "sub", Filename: "a.png"}, "in a folder")
			require.Empty(t, push(job.FileRef{Type: job.TypeInput, Subfolder: "./sub//", Filename: "a.png"}))
			holds(job.FileRef{Type: job.TypeInput, Subfolder: "sub", Filename: "a.png"}, "in a folder")
		}
	})
}

// A job gets its inputs as they were when it was accepted.
func TestPinOutlivesTheName(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		i := newInstance()
		p := NewPusher(s, newCollector(t, s, i), false)
		to := Target{Name: "gpu1", Boot: "b1", Instance: i}
		s.mustUpload(t, input("a"), "then")
		pins := must(s.Pin(t.Context(), tenant, []job.FileRef{input("a")}))
		must(s.Upload(t.Context(), tenant, input("a"), true, strings.NewReader("now")))
		require.NoError(t, s.Remove(t.Context(), tenant, []job.FileRef{input("a")}))
		must(p.Push(t.Context(), tenant, pins, to))
		f, _ := i.get(input("a"))
		require.Equal(t, "then", string(f.data))

		// An output that vanished before it was copied is gone.
		ref := allotted(t, s, i, "o.png", "picture")
		pins = must(s.Pin(t.Context(), tenant, []job.FileRef{ref}))
		require.Empty(t, pins.Keys())
		i.drop(ref)
		_, err := p.Push(t.Context(), tenant, pins, to)
		require.ErrorIs(t, err, ErrGone)
		require.NoError(t, s.Remove(t.Context(), tenant, []job.FileRef{ref}))
		_, err = p.Push(t.Context(), tenant, pins, to)
		require.ErrorIs(t, err, ErrGone)
	})
}

// rival puts a file of its own under the name between the look and the upload.
type rival struct{ *instance }

func (r rival) Upload(ctx context.Context, ref job.FileRef, overwrite bool, body io.Reader, size int64) (job.FileRef, error) {
	if ref.Subfolder == "" {
		r.put(ref, "rival")
	}
	return r.instance.Upload(ctx, ref, overwrite, body, size)
}

func TestPushAgainstARival(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	p := NewPusher(s, newCollector(t, s, i), false)
	s.mustUpload(t, input("a"), "ours")
	pins := must(s.Pin(t.Context(), tenant, []job.FileRef{input("a")}))
	rewrites := must(p.Push(t.Context(), tenant, pins, Target{Name: "gpu1", Instance: rival{i}}))
	require.Equal(t, []Rewrite{{input("a"), byContent("ours", "a")}}, rewrites)
	f, _ := i.get(input("a"))
	require.Equal(t, "rival", string(f.data))
}

func TestPinsCodec(t *testing.T) {
	t.Parallel()
	require.Nil(t, must(Pins(nil).Encode()))
	pins := must(DecodePins(nil))
	require.Nil(t, pins)
	_, err := DecodePins([]byte("{"))
	require.Error(t, err)
	pins = must(DecodePins([]byte(`{"v":2,"new":1,"pins":[{"ref":{"Type":"input","Subfolder":"","Filename":"a"},"key":"k","more":[]}]}`)))
	require.Equal(t, []string{"k"}, pins.Keys())
}

// With Apart, inputs are stored where only tenants that have them can name them,
// even when their own name is free.
func TestPushApart(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		i := newInstance()
		i.put(input("b.png"), "b")
		p := NewPusher(s, newCollector(t, s, i), true)
		to := Target{Name: "gpu1", Boot: "b1", Instance: i}
		for _, name := range []string{"a.png", "b.png"} {
			s.mustUpload(t, input(name), name[:1])
			pins := must(s.Pin(t.Context(), tenant, []job.FileRef{input(name)}))
			require.Equal(t, []Rewrite{{From: input(name), To: byContent(name[:1], name)}}, must(p.Push(t.Context(), tenant, pins, to)))
		}
		_, kept := i.get(input("a.png"))
		require.False(t, kept)
	})
}

// An input stored under its own name is sent once for that name. An input stored
// by content is sent once, whatever its name.
func TestNothingIsSentTwice(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		i := newInstance()
		to := Target{Name: "gpu1", Boot: "b1", Instance: i}
		collector := newCollector(t, s, i)
		push := func(who, name string) job.FileRef {
			must(s.Upload(t.Context(), who, input(name), true, strings.NewReader("same")))
			pins := must(s.Pin(t.Context(), who, []job.FileRef{input(name)}))
			rewrites := must(NewPusher(s, collector, who != tenant).Push(t.Context(), who, pins, to))
			if len(rewrites) == 0 {
				return input(name)
			}
			return rewrites[0].To
		}
		for range 2 {
			require.Equal(t, input("a.png"), push(tenant, "a.png"))
			require.Equal(t, input("b.png"), push(tenant, "b.png"))
		}
		require.Equal(t, 2, i.uploads)
		first := push("ada", "a.png")
		require.Equal(t, byContent("same", "a.png"), first)
		for range 2 {
			require.Equal(t, first, push("ada", "a.png"))
			require.Equal(t, first, push("ada", "b.PNG"))
		}
		require.Equal(t, 3, i.uploads)
		require.Equal(t, byContent("same", "c.jpg"), push("ada", "c.jpg"), "a loader may go by the ending")
		require.Equal(t, byContent("same", "d.png"), push("bob", "d.png"), "nothing is named after another tenant's file")
		// A file that somebody has changed does not count as the input.
		sent := i.uploads
		i.put(first, "changed")
		require.Equal(t, byContent("same", "e.png"), push("ada", "e.png"))
		require.Equal(t, sent+1, i.uploads)
	})
}

// An input that cannot be read to its end is a failure of the storage, even when
// an instance's client reports it.
func TestPushFromAStorageThatFails(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(web.Close)
	client := must(comfyui.NewClient(web.URL, comfyui.Options{}))
	storage := newStore(t, redistest.Embedded(t)).storage
	broken := io.MultiReader(strings.NewReader("begin"), iotest.ErrReader(errors.New("stale handle")))
	_, err := client.Upload(t.Context(), input("a.png"), false, storedReader{broken, t.Context(), storage, "key"}, 100)
	require.ErrorIs(t, err, ErrStorage)
	_, err = client.Upload(t.Context(), input("a.png"), false, storedReader{strings.NewReader("all"), t.Context(), storage, "key"}, 3)
	require.NotErrorIs(t, err, ErrStorage)
}
