package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// apiKey is an entry of GET /comfyhub/keys. Times are in Unix seconds.
type apiKey struct {
	Name   string          `json:"name"`
	Tenant string          `json:"tenant"`
	Scopes []apikeys.Scope `json:"scopes"`
	apikeys.Limits
	Created int64 `json:"created"`
	Expires int64 `json:"expires,omitempty"`
	Used    int64 `json:"used,omitempty"`
	// Secret is in the answer to POST only.
	Secret string `json:"secret,omitempty"`
}

func shownKey(k apikeys.Key) apiKey {
	return apiKey{
		Name: k.Name, Tenant: k.Tenant, Scopes: k.Scopes, Limits: k.Limits,
		Created: k.Created / 1000, Expires: k.Expires / 1000, Used: k.Used / 1000,
	}
}

func serveKeys(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	list, err := h.Keys.List(r.Context())
	if err != nil {
		return unavailable(err)
	}
	all := make([]apiKey, len(list))
	for n, k := range list {
		all[n] = shownKey(k)
	}
	return answer(w, all)
}

func serveAddKey(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	wanted, err := wantedKey(r.URL.Query())
	if err != nil {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
	}
	key, secret, err := h.Keys.Add(r.Context(), wanted)
	var wrong *apikeys.WantedError
	switch {
	case errors.As(err, &wrong):
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
	case errors.Is(err, apikeys.ErrExists):
		return caddy.APIError{HTTPStatus: http.StatusConflict, Err: err}
	case errors.Is(err, apikeys.ErrFull):
		return caddy.APIError{HTTPStatus: http.StatusInsufficientStorage, Err: err}
	case err != nil:
		return unavailable(err)
	}
	w.Header().Set("Cache-Control", "no-store")
	shown := shownKey(key)
	shown.Secret = secret
	return answer(w, shown)
}

func serveRevokeKey(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("name")
	had, err := h.Keys.Revoke(r.Context(), name)
	switch {
	case err != nil:
		return unavailable(err)
	case !had:
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("no key is called %q", name)}
	}
	return answer(w, map[string]any{"name": name})
}

// wantedKey reads the parameters of POST /comfyhub/keys.
func wantedKey(query url.Values) (apikeys.Wanted, error) {
	var w apikeys.Wanted
	for word, values := range query {
		if len(values) > 1 {
			return w, fmt.Errorf("%s is given twice", word)
		}
		var err error
		switch value := values[0]; word {
		case "name":
			w.Name = value
		case "tenant":
			w.Tenant = value
		case "scope":
			w.Scopes = []apikeys.Scope{}
			for name := range strings.SplitSeq(value, ",") {
				w.Scopes = append(w.Scopes, apikeys.Scope(strings.TrimSpace(name)))
			}
		case "weight":
			w.Limits.Weight, err = strconv.ParseFloat(value, 64)
			if err != nil || w.Limits.Weight == 0 {
				err = errors.New("not a number from 0.001 to 1000")
			}
		case "running":
			w.Limits.Running, err = parseCount(value)
		case "waiting":
			w.Limits.Waiting, err = parseCount(value)
		case "gpu_seconds":
			w.Limits.GPUSeconds, err = parsePer(value, "day")
		case "rate":
			w.Limits.Rate, err = parsePer(value, "min", "minute")
		case "expires":
			w.Life, err = keyLife(value)
		default:
			return w, fmt.Errorf("the parameter %q is unknown", word)
		}
		if err != nil {
			return w, fmt.Errorf("%s: %w", word, err)
		}
	}
	return w, nil
}

// parsePer reads a count for a span of time that may be named: "36000" or "36000/day".
func parsePer(value string, spans ...string) (int, error) {
	count, span, named := strings.Cut(value, "/")
	if named && !slices.Contains(spans, span) {
		return 0, fmt.Errorf("%q is not of the form N/%s", value, spans[0])
	}
	return parseCount(count)
}

// keyLife reads how long a key is to be valid; "never" is for ever.
func keyLife(value string) (time.Duration, error) {
	if value == "never" {
		return 0, nil
	}
	d, err := parseDuration(value)
	if err == nil && time.Duration(d) < time.Second {
		err = errors.New("shorter than a second")
	}
	return time.Duration(d), err
}
