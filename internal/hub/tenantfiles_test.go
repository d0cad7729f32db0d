package hub_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/retention"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// pixel is a picture of one colour.
func pixel(t *testing.T, c color.Gray) string {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 8, 8))
	for n := range img.Pix {
		img.Pix[n] = c.Y
	}
	var out bytes.Buffer
	require.NoError(t, png.Encode(&out, img))
	return out.String()
}

func loading(name string) string {
	return fmt.Sprintf(`{"1": {"class_type": "LoadImage", "inputs": {"image": %q}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}`, name)
}

// loadingTwo loads and saves two.
func loadingTwo(first, second string) string {
	other := strings.NewReplacer(`"1"`, `"3"`, `"2"`, `"4"`).Replace(loading("#"))
	return strings.TrimSuffix(loading(first), "}") + ", " + strings.Replace(other[1:], `"#"`, strconv.Quote(second), 1)
}

// A tenant cannot reach another tenant's files by any name: the name of the
// upload, of the place on the instance, or of a file already on the instance.
func TestTenantsDoNotReadEachOthersFiles(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		ctx := t.Context()
		client := b.hub.Dispatch.Instances.First()
		left := job.FileRef{Type: "input", Filename: "left.png"}
		data := pixel(t, color.Gray{1})
		must(client.Upload(ctx, left, false, strings.NewReader(data), int64(len(data))))(t)

		b.tenant = "ada"
		require.Equal(t, http.StatusOK, statusOf(b.upload("mine.png", "", pixel(t, color.Gray{2}))))
		e := b.finished(b.submit(loading("mine.png"), "ada"))
		require.Equal(t, "success", e.Status.Text)
		require.Contains(t, string(e.Prompt[2]), `"mine.png"`, "the graph is shown as it was sent")
		_, found, err := client.Stat(ctx, job.FileRef{Type: "input", Filename: "mine.png"})
		require.NoError(t, err)
		require.False(t, found, "on the instance it lies apart")
		body := must(b.hub.Store.Resolve(ctx, "ada", job.FileRef{Type: "input", Filename: "mine.png"}))(t)
		apart := "comfyhub/" + body.SHA256[:32] + "/mine.png"
		_, found, err = client.Stat(ctx, job.FileRef{Type: "input", Subfolder: "comfyhub/" + body.SHA256[:32], Filename: "mine.png"})
		require.NoError(t, err)
		require.True(t, found)

		b.tenant = "bob"
		for _, name := range []string{"mine.png", apart, apart + " [input]", "left.png", e.Outputs["2"].Images[0].Filename + " [output]"} {
			answer := answered(b.post("/prompt", `{"prompt": `+loading(name)+`}`))(t, http.StatusBadRequest, name)
			refusal := nodeErrors(t, answer)
			require.Equal(t, "custom_validation_failed", refusal["1"].Errors[0].Type)
			require.Equal(t, "image - Invalid image file: "+name, refusal["1"].Errors[0].Details)
			name, typ, _ := strings.Cut(name, " [")
			require.Contains(t, []int{http.StatusNotFound, http.StatusBadRequest}, statusOf(b.get("/view?filename="+name[strings.LastIndexByte(name, '/')+1:]+"&type="+strings.TrimSuffix(typ, "]"))))
		}
	})
}

// uploadAs uploads a file as a tenant. fields are further fields of the form.
func (b *bench) uploadAs(tenant, name, content string, fields ...string) (status int, answer string) {
	b.t.Helper()
	kind, body := form(b.t, "image", name, content, fields...)
	status, _, answer = b.ask(http.MethodPost, "/upload/image", body, http.Header{"Content-Type": {kind}, "Test-Login": {tenant}})
	return status, answer
}

func (b *bench) stored(prefix string) (blobs int) {
	b.t.Helper()
	require.NoError(b.t, b.hub.Storage.List(b.t.Context(), prefix, func(files.Blob) error { blobs++; return nil }))
	return blobs
}

func TestTenantInputs(t *testing.T) {
	t.Parallel()
	sized := func(letter string) string { return string(bytes.Repeat([]byte(letter), 400)) }
	runInBubble(t, "inputs", func(t *testing.T) {
		b := shared(t, config.TenantLimits{Inputs: 1000}, func(b *bench) { b.settings.InputAge = time.Hour })
		for _, u := range [][]string{{"1.png", "a"}, {"again.png", "a"}, {"1.png", "a"}, {"2.png", "b", "type", "output"}} {
			answered(b.uploadAs("ann", u[0], sized(u[1]), u[2:]...))(t, http.StatusOK)
		}
		blobs := b.stored("content/")
		status, answer := b.uploadAs("ann", "3.png", sized("c"))
		require.Equal(t, http.StatusInsufficientStorage, status)
		b.refused("inputs", status, answer)
		require.Equal(t, blobs, b.stored("content/"), "what is refused is not written")
		answered(b.uploadAs("ann", "4.png", sized("b")))(t, http.StatusOK, "equal files count once")
		answered(b.uploadAs("bob", "3.png", sized("c")))(t, http.StatusOK)
		// Overwriting frees room only when no other name has the same bytes.
		status, answer = b.uploadAs("ann", "1.png", sized("d"), "overwrite", "true")
		b.refused("inputs", status, answer)
		answered(b.uploadAs("ann", "again.png", sized("b"), "overwrite", "true"))(t, http.StatusOK)
		answered(b.uploadAs("ann", "1.png", sized("d"), "overwrite", "true"))(t, http.StatusOK)

		require.NoError(t, b.retainAt(time.Now().Add(2*time.Hour)))
		answered(b.uploadAs("ann", "5.png", sized("e")))(t, http.StatusOK, "unused uploads have gone")
	})
	runInBubble(t, "input_files", func(t *testing.T) {
		b := shared(t, config.TenantLimits{InputFiles: 2})
		answered(b.uploadAs("ann", "1.png", "x"))(t, http.StatusOK)
		answered(b.uploadAs("ann", "2.png", "x"))(t, http.StatusOK)
		answer := answered(b.uploadAs("ann", "3.png", "x"))(t, http.StatusInsufficientStorage)
		b.refused("input_files", http.StatusInsufficientStorage, answer)
		answered(b.uploadAs("ann", "2.png", "y", "overwrite", "true"))(t, http.StatusOK)
		answered(b.uploadAs("bob", "3.png", "x"))(t, http.StatusOK)
		for _, name := range []string{"1.png", "2.png"} {
			require.EqualValues(t, 1, must(b.hub.DB.Client().Exists(t.Context(), b.hub.DB.Key("files", "uploads", "ann")).Result())(t))
			require.NoError(t, b.hub.Store.Remove(t.Context(), "ann", []job.FileRef{{Type: "input", Filename: name}}))
		}
		require.Zero(t, must(b.hub.DB.Client().Exists(t.Context(), b.hub.DB.Key("files", "uploads", "ann")).Result())(t), "a count goes with the last of them")
	})
}

// When the files of all tenants exceed a bound, the tenant that has the most pays,
// even if others' files are older.
func TestTenantHistorySize(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]func(*bench, int64){
		"of all":      func(b *bench, size int64) { b.settings.HistorySize = 4 * size },
		"of a tenant": func(b *bench, size int64) { b.settings.TenantLimits.HistorySize = 3 * size },
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := shared(t, config.TenantLimits{}, serving(sim.Config{}))
			run := func(tenant string, n int) {
				id := fmt.Sprintf("%s-%d", tenant, n)
				b.acts(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, picture(0x100000+n), id))
				eventually(t, func() bool {
					_, answer := b.as(tenant, "GET", "/history/"+id, "")
					return answer != "{}"
				}, time.Minute, 5*time.Millisecond)
			}
			entries := func(tenant string) int {
				_, answer := b.as(tenant, "GET", "/history", "")
				return strings.Count(answer, `"status_str"`)
			}
			run("ann", 1)
			for n := range 5 {
				run("bob", n+2)
			}
			shares := must(b.hub.DB.Client().ZRangeWithScores(t.Context(), b.hub.DB.Key("files", "shares"), 0, -1).Result())(t)
			require.Len(t, shares, 2)
			require.Equal(t, "ann", shares[0].Member)
			bound(b, int64(shares[1].Score)/5+2)
			require.NoError(t, b.hub.Start(t.Context(), b.settings))
			require.NoError(t, b.retainAt(time.Now()))
			require.Equal(t, 5, entries("bob"), "all are young")
			require.NoError(t, b.retainAt(time.Now().Add(time.Hour)))
			require.Equal(t, 1, entries("ann"))
			require.Equal(t, 3, entries("bob"))
		})
	}
}

// retainAt is retain at a given time of Redis's clock.
func (b *bench) retainAt(now time.Time) error {
	return b.hub.Janitor.RetainSince(b.t.Context(), func(age time.Duration) time.Time { return now.Add(-age) })
}

// Held pictures age by the storage's clock; the hub's is years behind here.
func TestHeldPicturesAgeByTheStoragesClock(t *testing.T) {
	inBench(t, benchOf(0), func(t *testing.T, b *bench) {
		now, err := b.hub.Storage.Now(t.Context())
		require.NoError(t, err)
		require.Greater(t, time.Until(now), 24*time.Hour)
		put := func(id string, age time.Duration) {
			t.Helper()
			before := folderOf(t, b)
			require.NoError(t, b.hub.Held.Put(t.Context(), "default", id, strings.NewReader("picture")))
			for path := range folderOf(t, b) {
				if !before[path] {
					require.NoError(t, os.Chtimes(path, now.Add(-age), now.Add(-age)))
				}
			}
		}
		put("young", 23*time.Hour)
		put("old", 25*time.Hour)
		b.hub.Janitor.Round(t.Context())
		require.True(t, b.hub.Held.Has(t.Context(), "default", "young"))
		require.False(t, b.hub.Held.Has(t.Context(), "default", "old"))
	})
}

// folderOf has the held pictures of a hub.
func folderOf(t *testing.T, b *bench) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(b.hub.Storage.Dir(), "held", "*", "*"))
	require.NoError(t, err)
	all := map[string]bool{}
	for _, path := range paths {
		all[path] = true
	}
	return all
}

// setForward sets the time that Redis's scripts see forward.
func (b *bench) setForward(d time.Duration) {
	b.t.Helper()
	ctx, db := b.t.Context(), b.hub.DB
	require.NoError(b.t, db.Client().HSet(ctx, db.Key("clock"), "ahead", d.Milliseconds()).Err())
	now, err := db.Now(ctx)
	require.NoError(b.t, err)
	require.WithinDuration(b.t, time.Now().Add(d), now, time.Minute)
}

// If Redis's clock was set forward by a day, what is young stays in the history until it is as old
// as it may get.
func TestHistoryStaysWhenTheClockIsSetForward(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.HistoryAge = 15 * time.Minute }), func(t *testing.T, b *bench) {
		id, name, _ := b.made(picture(0xff))
		b.setForward(24 * time.Hour)
		stays := func() bool {
			b.hub.Janitor.Round(t.Context())
			_, there := b.history(id)
			require.Equal(t, there, b.views(name))
			return there
		}
		<-time.After(10 * time.Minute)
		require.True(t, stays())
		<-time.After(6 * time.Minute)
		require.False(t, stays())
	})
}

// If Redis's clock was set forward by a month, what is in the trash stays there for its week.
func TestTrashStaysWhenTheClockIsSetForward(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		b.hub.Janitor.Full = func() bool { return false } // whatever the disk of this machine is
		for _, data := range []string{"red", "green"} {
			b.overwrites(t, data)
		}
		b.setForward(30 * 24 * time.Hour)
		trashed := func() int {
			all, n, err := b.hub.Janitor.Trash.List(t.Context(), "", 10)
			require.NoError(t, err)
			for _, trashed := range all {
				require.WithinDuration(t, time.Now(), trashed.Since, retention.SweepAge)
				require.True(t, trashed.Until.After(time.Now()))
			}
			return n
		}
		b.hub.Janitor.Round(t.Context())
		require.Equal(t, 1, trashed())
		<-time.After(10 * time.Minute)
		b.hub.Janitor.Round(t.Context())
		require.Equal(t, 1, trashed())
		require.NoError(t, b.retainAt(time.Now().Add(retention.SweepAge-time.Hour)))
		require.Equal(t, 1, trashed())
		require.NoError(t, b.retainAt(time.Now().Add(retention.SweepAge)))
		require.Zero(t, trashed())
	})
}

// If Redis's clock was set forward, a drain still gives the run as much time as it was told to.
func TestDrainWhileTheClockIsSetForward(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		id := b.submit(work(3600, 1, "none"), "ann") // more than a minute
		state := func(want string) func() bool { return func() bool { return b.explain(id).State == want } }
		eventually(t, state("running"), time.Minute, time.Second)
		require.NoError(t, b.hub.Operator.Drain(t.Context(), b.hub.Fleet.Instances()[0].Name, 40*time.Second))
		b.setForward(time.Hour)
		<-time.After(35 * time.Second)
		require.True(t, state("running")())
		eventually(t, state("queued"), 15*time.Second, time.Second)
	})
}
