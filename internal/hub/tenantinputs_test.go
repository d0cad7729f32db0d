package hub

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// uploadAs uploads a file as a tenant. fields are further fields of the form.
func (b *bench) uploadAs(tenant, name, content string, fields ...string) (int, string) {
	b.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("image", name)
	require.NoError(b.t, err)
	_, err = part.Write([]byte(content))
	require.NoError(b.t, err)
	for n := 0; n < len(fields); n += 2 {
		require.NoError(b.t, form.WriteField(fields[n], fields[n+1]))
	}
	require.NoError(b.t, form.Close())
	req, err := http.NewRequest(http.MethodPost, b.web.URL+"/upload/image", &body)
	require.NoError(b.t, err)
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Test-Login", tenant)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	status, answer := read(b.t, resp)
	return status, string(answer)
}

func (b *bench) stored(prefix string) (blobs int) {
	b.t.Helper()
	require.NoError(b.t, b.hub.storage.List(b.t.Context(), prefix, func(files.Blob) error { blobs++; return nil }))
	return blobs
}

func TestTenantInputs(t *testing.T) {
	t.Parallel()
	sized := func(letter string) string { return string(bytes.Repeat([]byte(letter), 400)) }
	t.Run("inputs", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			b := shared(t, TenantLimits{Inputs: 1000}, func(b *bench) { b.settings.InputAge = time.Hour })
			for _, u := range [][]string{{"1.png", "a"}, {"again.png", "a"}, {"1.png", "a"}, {"2.png", "b", "type", "output"}} {
				status, answer := b.uploadAs("ann", u[0], sized(u[1]), u[2:]...)
				require.Equal(t, http.StatusOK, status, answer)
			}
			blobs := b.stored("content/")
			status, answer := b.uploadAs("ann", "3.png", sized("c"))
			require.Equal(t, http.StatusInsufficientStorage, status)
			b.refused("inputs", status, answer)
			require.Equal(t, blobs, b.stored("content/"), "what is refused is not written")
			status, answer = b.uploadAs("ann", "4.png", sized("b"))
			require.Equal(t, http.StatusOK, status, "equal files count once: "+answer)
			status, answer = b.uploadAs("bob", "3.png", sized("c"))
			require.Equal(t, http.StatusOK, status, answer)
			// Overwriting frees room only when no other name has the same bytes.
			status, answer = b.uploadAs("ann", "1.png", sized("d"), "overwrite", "true")
			b.refused("inputs", status, answer)
			status, answer = b.uploadAs("ann", "again.png", sized("b"), "overwrite", "true")
			require.Equal(t, http.StatusOK, status, answer)
			status, answer = b.uploadAs("ann", "1.png", sized("d"), "overwrite", "true")
			require.Equal(t, http.StatusOK, status, answer)

			require.NoError(t, b.hub.janitor.retainAt(t.Context(), time.Now().Add(2*time.Hour)))
			status, answer = b.uploadAs("ann", "5.png", sized("e"))
			require.Equal(t, http.StatusOK, status, "unused uploads have gone: "+answer)
		})
	})
	t.Run("input_files", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			b := shared(t, TenantLimits{InputFiles: 2})
			for _, name := range []string{"1.png", "2.png"} {
				status, answer := b.uploadAs("ann", name, "x")
				require.Equal(t, http.StatusOK, status, answer)
			}
			status, answer := b.uploadAs("ann", "3.png", "x")
			require.Equal(t, http.StatusInsufficientStorage, status)
			b.refused("input_files", status, answer)
			status, answer = b.uploadAs("ann", "2.png", "y", "overwrite", "true")
			require.Equal(t, http.StatusOK, status, answer)
			status, answer = b.uploadAs("bob", "3.png", "x")
			require.Equal(t, http.StatusOK, status, answer)
		})
	})
}

// A tenant's count of uploads is gone with the last of them.
func TestUploadCountsDoNotLeak(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, TenantLimits{InputFiles: 10})
		for _, u := range [][2]string{{"1.png", "x"}, {"2.png", "x"}, {"3.png", "y"}, {"1.png", "z"}} {
			status, answer := b.uploadAs("ann", u[0], u[1], "overwrite", "true")
			require.Equal(t, http.StatusOK, status, answer)
		}
		key := b.hub.db.Key("files", "uploads", "ann")
		counts, err := b.hub.db.Client().HGetAll(t.Context(), key).Result()
		require.NoError(t, err)
		require.Equal(t, "3", counts["=files"])
		require.Equal(t, "3", counts["=bytes"])
		for _, name := range []string{"1.png", "2.png", "3.png"} {
			require.NoError(t, b.hub.store.Remove(t.Context(), "ann", []job.FileRef{{Type: "input", Filename: name}}))
		}
		left, err := b.hub.db.Client().Exists(t.Context(), key).Result()
		require.NoError(t, err)
		require.Zero(t, left)
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
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := shared(t, TenantLimits{}, func(b *bench) { b.instances = append(b.instances, newInstance(t, sim.Config{})) })
				run := func(tenant string, n int) {
					id := fmt.Sprintf("%s-%d", tenant, n)
					status, answer := b.as(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, picture(0x100000+n), id))
					require.Equal(t, http.StatusOK, status, answer)
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
				shares, err := b.hub.db.Client().ZRangeWithScores(t.Context(), b.hub.db.Key("files", "shares"), 0, -1).Result()
				require.NoError(t, err)
				require.Len(t, shares, 2)
				require.Equal(t, "ann", shares[0].Member)
				bound(b, int64(shares[1].Score)/5+2)
				require.NoError(t, b.hub.Start(t.Context(), b.settings))
				require.NoError(t, b.hub.janitor.retainAt(t.Context(), time.Now().Add(time.Hour)))
				require.Equal(t, 1, entries("ann"))
				require.Equal(t, 3, entries("bob"))
			})
		})
	}
}
