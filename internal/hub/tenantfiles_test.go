package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
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
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		ctx := t.Context()
		client := b.hub.dispatch.First()
		left := job.FileRef{Type: "input", Filename: "left.png"}
		data := pixel(t, color.Gray{1})
		_, err := client.Upload(ctx, left, false, strings.NewReader(data), int64(len(data)))
		require.NoError(t, err)

		b.tenant = "ada"
		status, _ := b.upload("mine.png", "", pixel(t, color.Gray{2}))
		require.Equal(t, http.StatusOK, status)
		e := b.finished(b.submit(loading("mine.png"), "ada"))
		require.Equal(t, "success", e.Status.Text)
		require.Contains(t, string(e.Prompt[2]), `"mine.png"`, "the graph is shown as it was sent")
		_, found, err := client.Stat(ctx, job.FileRef{Type: "input", Filename: "mine.png"})
		require.NoError(t, err)
		require.False(t, found, "on the instance it lies apart")
		body, err := b.hub.store.Resolve(ctx, "ada", job.FileRef{Type: "input", Filename: "mine.png"})
		require.NoError(t, err)
		apart := "comfyhub/" + body.SHA256[:32] + "/mine.png"
		_, found, err = client.Stat(ctx, job.FileRef{Type: "input", Subfolder: "comfyhub/" + body.SHA256[:32], Filename: "mine.png"})
		require.NoError(t, err)
		require.True(t, found)

		b.tenant = "bob"
		for _, name := range []string{"mine.png", apart, apart + " [input]", "left.png", e.Outputs["2"].Images[0].Filename + " [output]"} {
			status, answer := b.post("/prompt", `{"prompt": `+loading(name)+`}`)
			require.Equal(t, http.StatusBadRequest, status, name)
			var refusal struct {
				Errors map[string]struct {
					Errors []struct{ Type, Details string }
				} `json:"node_errors"`
			}
			require.NoError(t, json.Unmarshal(answer, &refusal))
			require.Equal(t, "custom_validation_failed", refusal.Errors["1"].Errors[0].Type)
			require.Equal(t, "image - Invalid image file: "+name, refusal.Errors["1"].Errors[0].Details)
			name, typ, _ := strings.Cut(name, " [")
			status, _ = b.get("/view?filename=" + name[strings.LastIndexByte(name, '/')+1:] + "&type=" + strings.TrimSuffix(typ, "]"))
			require.Contains(t, []int{http.StatusNotFound, http.StatusBadRequest}, status)
		}
	})
}
