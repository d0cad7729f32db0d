package hub

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// What lies below the API's paths and is no route of it never reaches an instance, which would
// show everybody's jobs.
func TestComfyV2PathsStayHere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		i := newInstance(t, sim.Config{})
		front := simtest.Front(t, i.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			if strings.Contains(r.URL.Path, "/v2/") {
				_, _ = io.WriteString(w, "everybody's")
				return
			}
			rest.ServeHTTP(w, r)
		})
		b := newBench(t, 0, func(b *bench) {
			b.settings.Passthrough = PassthroughOn
			b.settings.Instances = append(b.settings.Instances, front.URL)
		})
		for path, status := range map[string]int{
			"/v2/other": http.StatusOK, "/v2/jobs": http.StatusNotFound, "/v2/jobs/x": http.StatusNotFound, "/v2/assets/x/content": http.StatusNotFound,
			"/api/v2/jobs/x/y": http.StatusNotFound, "/api/v2/assets": http.StatusMethodNotAllowed, "/api/v2/health/x": http.StatusNotFound,
		} {
			got, answer := b.as("", "GET", path, "")
			require.Equal(t, status, got, path)
			require.Equal(t, status == http.StatusOK, strings.Contains(answer, "everybody's"), path)
		}
	})
}

// Names of files are longer than references to them: what they make of a workflow has the bound
// of a body, too.
func TestComfyV2ReferencesAreBounded(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.MaxBody = 6 << 10 }), func(t *testing.T, b *bench) {
		c := b.v2("")
		status, a, _ := c.uploads(strings.Repeat("n", 180)+".png", "x")
		require.Equal(t, http.StatusCreated, status)
		post := func(references int) (int, string) {
			list := strings.Repeat(`, {"__type": "core/ASSET", "info": {"id": "`+a.ID+`"}}`, references)
			body := `{"workflow": {"1": {"class_type": "SaveImage", "inputs": {"more": [` + list[2:] + `]}}}}`
			require.Less(t, len(body), 6<<10)
			status, _, code := c.do("POST", "/api/v2/jobs", "application/json", []byte(body))
			return status, code
		}
		status, code := post(50)
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
		require.Equal(t, "payload_too_large", code)
		_, code = post(5)
		require.Equal(t, "invalid_workflow", code)
	})
}
