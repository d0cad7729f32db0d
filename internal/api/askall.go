package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// AskAllTimeout bounds a question to the whole fleet: one instance that hangs
// must not hang every client.
const AskAllTimeout = 5 * time.Second

// AskAll asks instances at once and returns the good answers, in the order of the
// instances. reached says that an instance answered at all, if only that it has
// nothing there.
func AskAll(ctx context.Context, clients []*comfyui.Client, path string, query url.Values) (good []pyjson.Value, reached bool) {
	ctx, cancel := context.WithTimeout(ctx, AskAllTimeout)
	defer cancel()
	answers := make([]pyjson.Value, len(clients))
	spoke := make([]bool, len(clients))
	var wait sync.WaitGroup
	for n, client := range clients {
		wait.Go(func() { answers[n], spoke[n] = Ask(ctx, client, path, query) })
	}
	wait.Wait()
	for _, a := range answers {
		if a != nil {
			good = append(good, a)
		}
	}
	return good, slices.Contains(spoke, true)
}

// Ask asks one instance; spoke says that it answered, if only with 404.
func Ask(ctx context.Context, client *comfyui.Client, path string, query url.Values) (v pyjson.Value, spoke bool) {
	body, err := client.Get(ctx, path, query)
	if status := (*comfyui.StatusError)(nil); errors.As(err, &status) {
		return nil, status.Status < http.StatusInternalServerError
	}
	if err != nil {
		return nil, false
	}
	if v, err = pyjson.Parse(body); err != nil {
		return nil, true
	}
	return v, true
}
