package files

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func output(name string) job.FileRef { return job.FileRef{Type: job.TypeOutput, Filename: name} }

// made is a file that an instance made, identified by its ETag.
func made(instance, name, etag string) Source {
	return Source{Instance: instance, Boot: "b1", Type: job.TypeOutput, Filename: name, ETag: `"` + etag + `"`}
}

func TestAllot(t *testing.T) {
	// Each step allots a group of files of one instance.
	type step struct {
		sources []Source
		want    []string
	}
	one := func(src Source, want string) step { return step{[]Source{src}, []string{want}} }
	beside.Cases(t, map[string][]step{
		"a lone instance looks like itself": {
			one(made("a", "ComfyUI_00001_.png", "1"), "ComfyUI_00001_.png"),
			one(made("a", "ComfyUI_00002_.png", "2"), "ComfyUI_00002_.png"),
			one(made("a", "img_00001_.png", "3"), "img_00001_.png"),
		},
		"the second instance gets the next number": {
			one(made("a", "ComfyUI_00001_.png", "1"), "ComfyUI_00001_.png"),
			one(made("b", "ComfyUI_00001_.png", "2"), "ComfyUI_00002_.png"),
			one(made("a", "ComfyUI_00002_.png", "3"), "ComfyUI_00003_.png"),
			one(made("b", "ComfyUI_00009_.png", "4"), "ComfyUI_00009_.png"),
			one(made("a", "ComfyUI_00003_.png", "5"), "ComfyUI_00010_.png"),
		},
		"a file met again keeps its name": {
			one(made("a", "x_00001_.png", "1"), "x_00001_.png"),
			one(made("b", "x_00001_.png", "1"), "x_00002_.png"),
			one(made("b", "x_00001_.png", "1"), "x_00002_.png"),
			one(made("a", "x_00001_.png", "1"), "x_00001_.png"),
			one(made("a", "x_00001_.png", "changed"), "x_00003_.png"),
		},
		"a batch stays together": {
			{[]Source{made("a", "x_00001_.png", "1"), made("a", "x_00002_.png", "2")}, []string{"x_00001_.png", "x_00002_.png"}},
			{
				[]Source{made("b", "x_00002_.png", "3"), made("b", "x_00003_.png", "4"), made("b", "x_00004_.png", "5")},
				[]string{"x_00003_.png", "x_00004_.png", "x_00005_.png"},
			},
			{
				[]Source{made("b", "x_00003_.png", "4"), made("b", "x_00005_.png", "6"), made("b", "y_00005_.png", "6")},
				[]string{"x_00004_.png", "x_00006_.png", "y_00005_.png"},
			},
		},
		"a batch may come in any order": {
			one(made("a", "x_00002_.png", "1"), "x_00002_.png"),
			{
				[]Source{made("b", "x_00003_.png", "3"), made("b", "x_00001_.png", "1"), made("b", "x_00002_.png", "2")},
				[]string{"x_00005_.png", "x_00003_.png", "x_00004_.png"},
			},
		},
		"files of one number go on sharing it": {
			{[]Source{made("a", "v_00001.png", "1"), made("a", "v_00001.mp4", "2")}, []string{"v_00001.png", "v_00001.mp4"}},
			{
				[]Source{made("b", "v_00001.png", "3"), made("b", "v_00001.mp4", "4"), made("b", "v_00001-audio.mp4", "5")},
				[]string{"v_00002.png", "v_00002.mp4", "v_00002-audio.mp4"},
			},
		},
		"the width of a counter stays": {
			one(made("a", "x_0000099.png", "1"), "x_0000099.png"),
			one(made("b", "x_0000099.png", "2"), "x_0000100.png"),
			one(made("a", "y_99999_.png", "3"), "y_99999_.png"),
			one(made("b", "y_99999_.png", "4"), "y_100000_.png"),
		},
		"names without a counter": {
			one(made("a", "out.glb", "1"), "out.glb"),
			one(made("b", "out.glb", "2"), "out (1).glb"),
			one(made("c", "out.glb", "3"), "out (2).glb"),
			one(made("b", "out.glb", "2"), "out (1).glb"),
			one(made("c", "README", "3"), "README"),
			one(made("d", "README", "3"), "README (1)"),
		},
		"one file named twice": {
			{[]Source{made("a", "x_00001_.png", "1"), made("a", "x_00001_.png", "1")}, []string{"x_00001_.png", "x_00001_.png"}},
			{[]Source{made("b", "x_00001_.png", "1"), made("b", "x_00001_.png", "1")}, []string{"x_00002_.png", "x_00002_.png"}},
			{[]Source{made("c", "x_00001_.png", "1"), made("c", "x_00001_.png", "2")}, []string{"x_00003_.png", "x_00004_.png"}},
		},
		"what is no file for /view stays": {
			{
				[]Source{made("a", "/mnt/x_00001_.png", "1"), {Instance: "a", Boot: "b1", Type: "custom", Filename: "x"}, made("a", "x_00001_.png", "1")},
				[]string{"/mnt/x_00001_.png", "x", "x_00001_.png"},
			},
		},
	}, func(t *testing.T, steps []step) {
		redistest.Each(t, func(t *testing.T, db *redis.DB) {
			s := newStore(t, db)
			for _, step := range steps {
				refs, _, err := s.AllotOutputs(t.Context(), tenant, step.sources)
				require.NoError(t, err)
				var got []string
				for i, ref := range refs {
					got = append(got, ref.Filename)
					e, err := s.Resolve(t.Context(), tenant, ref)
					if !step.sources[i].Viewable() {
						require.ErrorIs(t, err, ErrNotFound)
						continue
					}
					require.NoError(t, err)
					require.Equal(t, step.sources[i], *e.Source, "a name means its file")
					require.False(t, e.Stored())
				}
				require.Equal(t, step.want, got)
			}
		})
	})
}

// Many files of one message get their names in several scripts, as if it were one.
func TestAllotMany(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		must(s.AllotOutput(t.Context(), tenant, made("a", "x_00007_.png", "other")))
		var sources []Source
		var want []job.FileRef
		for n := range 2*allotBatch + 1 {
			sources = append(sources, made("b", fmt.Sprintf("x_%05d_.png", 1+n), fmt.Sprint(n)))
			want = append(want, output(fmt.Sprintf("x_%05d_.png", 8+n)))
		}
		for range 2 {
			refs, known, err := s.AllotOutputs(t.Context(), tenant, sources)
			require.NoError(t, err)
			require.Equal(t, want, refs)
			require.Equal(t, want[len(want)-1], known[len(known)-1].Ref)
		}
	})
}

func TestAllotKeepsFoldersAndTenantsApart(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		src := made("a", "x_00001_.png", "1")
		for _, where := range []struct{ tenant, typ, dir string }{
			{"t1", job.TypeOutput, ""},
			{"t1", job.TypeOutput, "sub"},
			{"t1", job.TypeTemp, ""},
			{"t2", job.TypeOutput, ""},
			{"t1:6:output", job.TypeOutput, ""}, // a tenant that looks like part of a key
		} {
			src.Type, src.Subfolder = where.typ, where.dir
			require.Equal(t, src.Ref(), must(s.AllotOutput(t.Context(), where.tenant, src)), "%v", where)
		}
		_, err := s.Resolve(t.Context(), "t2", job.FileRef{Type: job.TypeOutput, Subfolder: "sub", Filename: "x_00001_.png"})
		require.ErrorIs(t, err, ErrNotFound)
		require.Equal(t, []string{"", "sub"}, s.folders(t, "t1"))
	})
}

// Uploads and outputs share the names of a folder.
func TestAllotBesideUploads(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		s.mustUpload(t, output("x_00007_.png"), "seven")
		ref := must(s.AllotOutput(t.Context(), tenant, made("a", "x_00007_.png", "1")))
		require.Equal(t, "x_00008_.png", ref.Filename)
		require.Equal(t, "x_00008_ (1).png", s.mustUpload(t, output("x_00008_.png"), "eight").Filename)

		// A name that was given to an upload no longer belongs to the output.
		must(s.Upload(t.Context(), tenant, ref, true, emptyReader{}))
		require.Equal(t, "x_00009_.png", must(s.AllotOutput(t.Context(), tenant, made("a", "x_00007_.png", "1"))).Filename)
	})
}

func TestAllotForgetsRemoved(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := newStore(t, db)
		first := must(s.AllotOutput(t.Context(), tenant, made("a", "x_00001_.png", "1")))
		require.NoError(t, s.Remove(t.Context(), tenant, []job.FileRef{first, output("never")}))
		_, err := s.Resolve(t.Context(), tenant, first)
		require.ErrorIs(t, err, ErrNotFound)
		require.Empty(t, s.folders(t, tenant))
		require.Zero(t, must(db.Client().HLen(t.Context(), s.keys.known(tenant, made("a", "", ""))).Result()), "what is removed takes no memory")
		require.Equal(t, first, must(s.AllotOutput(t.Context(), tenant, made("a", "x_00001_.png", "1"))), "its own name is free again")
	})
}

func TestAllotConcurrently(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		const instances, batches = 8, 10
		var (
			mu    sync.Mutex
			names = map[string]Source{}
			wg    sync.WaitGroup
		)
		for i := range instances {
			wg.Go(func() {
				for n := range batches {
					sources := []Source{
						made(fmt.Sprint(i), fmt.Sprintf("ComfyUI_%05d_.png", 2*n+1), fmt.Sprint(n)),
						made(fmt.Sprint(i), fmt.Sprintf("ComfyUI_%05d_.png", 2*n+2), fmt.Sprint(n)),
					}
					refs, _, err := s.AllotOutputs(t.Context(), tenant, sources)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for k, ref := range refs {
						if other, taken := names[ref.Filename]; taken {
							t.Errorf("%s is %v and %v", ref.Filename, other, sources[k])
						}
						names[ref.Filename] = sources[k]
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Len(t, names, instances*batches*2)
	})
}

// Files of several instances that belong together get names one after the other, wherever their instances
// have counted to.
func TestNamesFollow(t *testing.T) {
	s := parallelStore(t)
	var all []job.FileRef
	for _, c := range []struct {
		sources []Source
		want    []string
	}{
		{[]Source{made("a", "x_00020_.png", "1"), made("a", "x_00021_.png", "2")}, []string{"x_00020_.png", "x_00021_.png"}},
		{[]Source{made("b", "x_00070_.png", "3"), made("b", "y_00003_.png", "4"), made("b", "x_00071_.png", "5"), made("b", "z.png", "6")}, []string{"x_00022_.png", "y_00003_.png", "x_00023_.png", "z.png"}},
		{[]Source{made("a", "x_00019_.png", "7"), made("a", "/mnt/x_00001_.png", "8")}, []string{"x_00024_.png", "/mnt/x_00001_.png"}},
		{[]Source{made("b", "x_00070_.png", "3")}, []string{"x_00022_.png"}},
	} {
		follow(c.sources, all)
		refs, _, err := s.AllotOutputs(t.Context(), tenant, c.sources)
		require.NoError(t, err)
		for n, ref := range refs {
			require.Equal(t, c.want[n], ref.Filename)
		}
		all = append(all, refs...)
	}
	e, err := s.Resolve(t.Context(), tenant, output("x_00022_.png"))
	require.NoError(t, err)
	require.Equal(t, made("b", "x_00070_.png", "3"), *e.Source, "it is fetched by the name that it has there")
}

func TestAllotRefusesMixedInstances(t *testing.T) {
	s := parallelStore(t)
	_, _, err := s.AllotOutputs(t.Context(), tenant, []Source{made("a", "x", "1"), made("b", "y", "1")})
	require.Error(t, err)
}

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
	s := parallelStore(t)
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
