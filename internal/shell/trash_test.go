package shell

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Names are found by id or by name, and taken back one after the other.
func TestTrash(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	of := func(id, tenant, name, why string) trashed {
		return trashed{ID: id, Tenant: tenant, Type: "input", Subfolder: "a", Filename: name, Size: 7, Why: why, Since: now - 7200, Until: now + 86400*6 + 60}
	}
	trash := []trashed{of("1", "ann", "fox.png", "overwritten"), of("2", "ann", "fox.png", "overwritten"), of("3", "bob", "\x1b[2Jowl.png", "unused"), of("4", "bob", "fox.png", "unused")}
	var back []string
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if r.URL.Path != "/comfyhub/trash" {
			http.NotFound(w, r)
			return
		}
		if r.Method == http.MethodPost {
			back = append(back, query.Get("tenant")+" "+query.Get("id"))
		}
		shown := []trashed{}
		for _, one := range trash {
			if tenant := query.Get("tenant"); tenant == "" || tenant == one.Tenant {
				shown = append(shown, one)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"all": len(shown) + 1, "trash": shown})
	}))
	t.Cleanup(admin.Close)
	ask := func(args ...string) result {
		t.Helper()
		return call(t, "", append(args, "--address", admin.Listener.Addr().String())...)
	}
	r := ask("trash", "list")
	require.Zero(t, r.code, r.errors)
	require.Contains(t, r.out, "input/a/fox.png")
	require.Contains(t, r.out, "2h ago")
	require.Contains(t, r.out, "and 1 older ones")
	require.NotContains(t, r.out, "\x1b")

	require.Zero(t, ask("trash", "restore", "3", "input/a/fox.png", "--tenant", "bob").code)
	require.Zero(t, ask("trash", "restore", "--tenant", "ann", "input/a/fox.png").code)
	require.Equal(t, []string{"bob 3", "bob 4", "ann 1"}, back)
	for text, args := range map[string][]string{
		"several tenants": {"input/a/fox.png"}, "not in the trash": {"input/fox.png"},
	} {
		r = ask(append([]string{"trash", "restore"}, args...)...)
		require.Equal(t, ExitFailed, r.code)
		require.Contains(t, r.errors, text)
	}
	require.Equal(t, ExitUsage, ask("trash", "restore").code)
	require.Equal(t, ExitUsage, ask("trash", "list", "--limit", "0").code)
	require.Len(t, back, 3)
}
