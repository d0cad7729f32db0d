package comfy_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/mount"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// replacing marks a request in whose middle a file is replaced.
type replacing struct{}

// A file that is replaced while it is read is sent as one or the other, never as a part.
func TestFileIsReplacedWhileItIsRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		put, get string
		folder   string
		created  int
	}{
		"a user's file":  {http.MethodPost, "/userdata/a.json", "user/default/default/f", http.StatusOK},
		"a held picture": {http.MethodPut, files.HeldPath + "id", "held", http.StatusCreated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, long := t.TempDir(), strings.Repeat("longer", 100)
			reads := 0
			gate := func(ctx context.Context, step files.Step, _ int) error {
				if ctx.Value(replacing{}) == nil || step != files.StepRead {
					return nil
				}
				if reads++; reads == 2 { // the look at its size was the first
					return filepath.WalkDir(filepath.Join(data, "files", c.folder), func(path string, d os.DirEntry, err error) error {
						if err != nil || d.IsDir() {
							return err
						}
						return os.WriteFile(path, []byte(long), 0o600)
					})
				}
				return nil
			}
			h := hub.New(config.Identity{Redis: "embedded", Data: data, GossipBind: "127.0.0.1:0", Network: &config.Network{Storage: gate}})
			server := mount.New(h).Server
			t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
			require.NoError(t, h.Start(t.Context(), config.Settings{Logger: slog.New(slog.DiscardHandler)}))
			ask := func(ctx context.Context, method, body string) *httptest.ResponseRecorder {
				answer := httptest.NewRecorder()
				server.Serve(answer, httptest.NewRequestWithContext(ctx, method, c.get, strings.NewReader(body)), api.Visitor{IP: "127.0.0.1"})
				return answer
			}
			require.Equal(t, c.created, ask(t.Context(), c.put, "short").Code)
			answer := ask(context.WithValue(t.Context(), replacing{}, true), http.MethodGet, "")
			require.Equal(t, http.StatusOK, answer.Code)
			require.Equal(t, long, answer.Body.String())
			require.GreaterOrEqual(t, reads, 4)
		})
	}
}
