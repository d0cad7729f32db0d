package comfy

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

func TestStaticFilesOfTheWebInterface(t *testing.T) {
	t.Parallel()
	get, _ := http.NewRequest(http.MethodGet, "/", nil)
	for path, want := range map[string]bool{
		"/": true, "/api/": true, "/index.html": true, "/user.css": true, "/assets/index-1a.js": true, "/extensions/core/x.js": true,
		"/templates/index.json": true, "/docs/a/en.md": true, "/api/workflow_templates/pack/a.jpg": true,
		"/pack/x.json": false, "/pack/data.png": false, "/api/x.json": false, "/extensions": false, "/pack": false,
	} {
		require.Equal(t, want, isStatic(get, aiohttp.MustPath(path)), path)
	}
}
