package hub

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
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

// A tenant cannot reach another tenant's files by any name: the name of the
// upload, of the place on the instance, or of a file already on the instance.
func TestTenantsDoNotReadEachOthersFiles(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		ctx := t.Context()
		client := b.hub.dispatch.Instances.First()
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
		body := must(b.hub.store.Resolve(ctx, "ada", job.FileRef{Type: "input", Filename: "mine.png"}))(t)
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
	require.NoError(b.t, b.hub.storage.List(b.t.Context(), prefix, func(files.Blob) error { blobs++; return nil }))
	return blobs
}

func TestTenantInputs(t *testing.T) {
	t.Parallel()
	sized := func(letter string) string { return string(bytes.Repeat([]byte(letter), 400)) }
	runInBubble(t, "inputs", func(t *testing.T) {
		b := shared(t, config.TenantLimits{Inputs: 1000}, func(b *bench) { b.settings.InputAge = time.Hour })
		for _, u := range [][]string{{"1.png", "a"}, {"again.png", "a"}, {"1.png", "a"}, {"2.png", "b", "type", "output"}} {
			status, answer := b.uploadAs("ann", u[0], sized(u[1]), u[2:]...)
			require.Equal(t, http.StatusOK, status, answer)
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
		for _, name := range []string{"1.png", "2.png"} {
			status, answer := b.uploadAs("ann", name, "x")
			require.Equal(t, http.StatusOK, status, answer)
		}
		status, answer := b.uploadAs("ann", "3.png", "x")
		require.Equal(t, http.StatusInsufficientStorage, status)
		b.refused("input_files", status, answer)
		answered(b.uploadAs("ann", "2.png", "y", "overwrite", "true"))(t, http.StatusOK)
		answered(b.uploadAs("bob", "3.png", "x"))(t, http.StatusOK)
	})
}

// A tenant's count of uploads is gone with the last of them.
func TestUploadCountsDoNotLeak(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{InputFiles: 10})
		for _, u := range [][2]string{{"1.png", "x"}, {"2.png", "x"}, {"3.png", "y"}, {"1.png", "z"}} {
			answered(b.uploadAs("ann", u[0], u[1], "overwrite", "true"))(t, http.StatusOK)
		}
		key := b.hub.db.Key("files", "uploads", "ann")
		counts := must(b.hub.db.Client().HGetAll(t.Context(), key).Result())(t)
		require.Equal(t, "3", counts["=files"])
		require.Equal(t, "3", counts["=bytes"])
		for _, name := range []string{"1.png", "2.png", "3.png"} {
			require.NoError(t, b.hub.store.Remove(t.Context(), "ann", []job.FileRef{{Type: "input", Filename: name}}))
		}
		require.Zero(t, must(b.hub.db.Client().Exists(t.Context(), key).Result())(t))
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
			shares := must(b.hub.db.Client().ZRangeWithScores(t.Context(), b.hub.db.Key("files", "shares"), 0, -1).Result())(t)
			require.Len(t, shares, 2)
			require.Equal(t, "ann", shares[0].Member)
			bound(b, int64(shares[1].Score)/5+2)
			require.NoError(t, b.hub.Start(t.Context(), b.settings))
			require.NoError(t, b.retainAt(time.Now().Add(time.Hour)))
			require.Equal(t, 1, entries("ann"))
			require.Equal(t, 3, entries("bob"))
		})
	}
}

// The web interface shows the first picture that it offers, which may exist only on an instance.
func TestInputsOfInstancesAreShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "input"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "input", "its own.png"), []byte("its own"), 0o644))
			b.instances = append(b.instances, newInstance(t, sim.Config{Dir: dir}))
		})
		require.Contains(t, b.text("/object_info/LoadImage"), "its own.png")
		require.Equal(t, "its own", b.text("/view?type=input&subfolder=&filename=its%20own.png"))
		require.Equal(t, "its own", b.text("/api/view?filename=its%20own.png%20%5Binput%5D"))
		for _, query := range []string{"type=input&filename=other.png", "type=output&filename=its%20own.png"} {
			require.Equal(t, http.StatusNotFound, statusOf(b.get("/view?"+query)), query)
		}
		own := job.FileRef{Type: job.TypeInput, Filename: "its own.png"}
		_, found := b.hub.folders.OfInstance(t.Context(), job.DefaultTenant, own)
		require.True(t, found)
		_, found = b.hub.folders.OfInstance(t.Context(), "somebody", own)
		require.False(t, found, "it may be the upload of another tenant")
	})
}
