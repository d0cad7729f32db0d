package hub

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
)

// What could change a machine takes more than a key: calls of ComfyUI-Manager need the scope
// admin beside the operator's word, and sockets of custom nodes the scope submit.
func TestDangerousRoutesOfKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log := &logtest.Log{}
		b := newBench(t, 1, withKeys(api.KeysRequired), func(b *bench) {
			b.settings.Manager, b.settings.Passthrough = true, PassthroughOn
			b.settings.Audit = slog.New(slog.NewTextHandler(log, nil))
		})
		socket := func(secret string) http.Header {
			h := bearer(secret)
			h.Set("Connection", "Upgrade")
			h.Set("Upgrade", "websocket")
			return h
		}
		secrets := map[string]string{}
		for name, c := range map[string]struct {
			scopes                   []apikeys.Scope
			manager, socket, reading bool
		}{
			"both":  {[]apikeys.Scope{apikeys.Read, apikeys.Submit}, false, true, true},
			"read":  {[]apikeys.Scope{apikeys.Read}, false, false, true},
			"admin": {[]apikeys.Scope{apikeys.Admin}, true, true, true},
		} {
			secrets[name] = b.key(apikeys.Wanted{Name: name, Scopes: c.scopes})
			for path, header := range map[string]http.Header{"/manager/reboot": bearer(secrets[name]), "/pack/ws": socket(secrets[name]), "/pack/list": bearer(secrets[name])} {
				want := map[string]bool{"/manager/reboot": c.manager, "/pack/ws": c.socket, "/pack/list": c.reading}[path]
				status, _, text := b.ask("GET", path, "", header)
				require.Equal(t, want, status != http.StatusForbidden, "%s %s: %d %s", name, path, status, text)
			}
		}
		for _, path := range []string{"/experiment/models/download_missing/cancel", "/api/tasks/x", "/sdapi/v1/server-kill"} {
			for name, refused := range map[string]bool{"both": true, "read": true, "admin": false} {
				status, _, text := b.ask("POST", path, "", bearer(secrets[name]))
				require.Equal(t, refused, status == http.StatusForbidden, "%s %s: %d %s", name, path, status, text)
			}
		}
		require.Equal(t, 3, strings.Count(log.String(), "ComfyUI-Manager"))
		require.Contains(t, log.String(), "key=admin")
	})
}
