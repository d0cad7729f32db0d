package a1111

import (
	"context"
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// settingsPath is the route of a server's settings.
const settingsPath = "options"

// errAtWork means that the settings have not been seen between two requests yet.
var errAtWork = errors.New("a1111: the server is at work")

// getSettings answers GET /sdapi/v1/options.
func (l ownRoutes) getSettings(w http.ResponseWriter, r *http.Request) {
	settings, err := l.settingsBetween(r.Context())
	if err != nil {
		http.Error(w, "the server does not tell its settings now", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(pyjson.Marshal(settings))
}

// settingsBetween are the server's settings as they are between two requests. While A1111 works
// on one it shows those that hold for that alone, and they are somebody's own.
func (l *life) settingsBetween(ctx context.Context) (*pyjson.Object, error) {
	l.mu.Lock()
	begun, works, kept := l.begun, l.task != nil, l.settings
	l.mu.Unlock()
	if works && kept != nil {
		return kept, nil
	}
	// What nobody waits for any more may go on there: nothing may have run before or after,
	// and nothing have begun in between.
	before, err := l.client.progress(ctx, false)
	if err != nil {
		return nil, err
	}
	v, err := l.client.get(ctx, settingsPath, maxListing)
	if err != nil {
		return nil, err
	}
	after, err := l.client.progress(ctx, false)
	if err != nil {
		return nil, err
	}
	seen, ok := v.(*pyjson.Object)
	idle := !works && !before.busy && !after.busy && before.began == after.began
	l.mu.Lock()
	defer l.mu.Unlock()
	if ok && idle && l.begun == begun {
		l.settings = seen
	}
	if l.settings == nil {
		return nil, errAtWork
	}
	return l.settings, nil
}
