package sim

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// userRoot returns the folder of a request's user. ok is false for an unknown user
// of a multi-user server.
func (p *process) userRoot(r *http.Request) (root string, ok bool) {
	base := filepath.Join(p.files.base, "user")
	if !p.cfg.MultiUser {
		return filepath.Join(base, "default"), true
	}
	id := r.Header.Get("comfy-user")
	if !p.users().Has(id) {
		return "", false
	}
	return filepath.Join(base, id), true
}

func (p *process) usersFile() string { return filepath.Join(p.files.base, "user", "users.json") }

func (p *process) users() *pyjson.Object { return readObject(p.usersFile()) }

// readObject reads a JSON object. A missing or broken file counts as an empty one.
func readObject(full string) *pyjson.Object {
	data, err := os.ReadFile(full)
	if err == nil {
		if v, err := pyjson.Parse(data); err == nil {
			if o, ok := v.(*pyjson.Object); ok {
				return o
			}
		}
	}
	return &pyjson.Object{}
}

func (p *process) getUsers(w http.ResponseWriter, r *http.Request) {
	if p.cfg.MultiUser {
		answerJSON(w, http.StatusOK, dict("storage", "server", "users", p.users()))
		return
	}
	_, err := os.Stat(filepath.Join(p.files.base, "user", "default"))
	answerJSON(w, http.StatusOK, dict("storage", "server", "migrated", err == nil))
}

func (p *process) postUsers(w http.ResponseWriter, r *http.Request) {
	body, ok := p.readJSON(w, r)
	if !ok {
		return
	}
	req, _ := body.(*pyjson.Object)
	name := strings.TrimSpace(req.String("username"))
	if name == "" {
		answerInternalError(w, r)
		return
	}
	users := p.users()
	for _, known := range users.All() {
		if python.Str(known) == name {
			answerJSON(w, http.StatusBadRequest, dict("error", "Duplicate username."))
			return
		}
	}
	id := safeName(name) + "_" + uuid.NewString()
	users.Set(id, pyjson.String(name))
	if os.WriteFile(p.usersFile(), pyjson.Marshal(users), 0o644) != nil {
		answerInternalError(w, r)
		return
	}
	answerJSON(w, http.StatusOK, value(id))
}

// safeName keeps the characters that are valid in a folder name.
func safeName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, s)
}

// settings returns the settings file. It sends 401 itself, which tells the web
// interface to ask for a user.
func (p *process) settings(w http.ResponseWriter, r *http.Request) (full string, ok bool) {
	root, ok := p.userRoot(r)
	if !ok {
		dropPageHeaders(w)
		answerText(w, http.StatusUnauthorized, "401: Unauthorized")
		return "", false
	}
	return filepath.Join(root, "comfy.settings.json"), true
}

func (p *process) getSettings(w http.ResponseWriter, r *http.Request) {
	if full, ok := p.settings(w, r); ok {
		answerJSON(w, http.StatusOK, readObject(full))
	}
}

func (p *process) getSetting(w http.ResponseWriter, r *http.Request) {
	if full, ok := p.settings(w, r); ok {
		v, _ := readObject(full).Get(r.PathValue("id"))
		answerJSON(w, http.StatusOK, v)
	}
}

func (p *process) postSettings(w http.ResponseWriter, r *http.Request) {
	full, ok := p.settings(w, r)
	if !ok {
		return
	}
	body, ok := p.readJSON(w, r)
	if !ok {
		return
	}
	update, isObject := body.(*pyjson.Object)
	if !isObject {
		answerInternalError(w, r)
		return
	}
	stored := readObject(full)
	for key, v := range update.All() {
		stored.Set(key, v)
	}
	p.storeSettings(w, r, full, stored)
}

func (p *process) postSetting(w http.ResponseWriter, r *http.Request) {
	full, ok := p.settings(w, r)
	if !ok {
		return
	}
	body, ok := p.readJSON(w, r)
	if !ok {
		return
	}
	stored := readObject(full)
	stored.Set(r.PathValue("id"), body)
	p.storeSettings(w, r, full, stored)
}

func (p *process) storeSettings(w http.ResponseWriter, r *http.Request, full string, stored *pyjson.Object) {
	if os.MkdirAll(filepath.Dir(full), 0o755) != nil || os.WriteFile(full, pyjson.Marshal(stored), 0o644) != nil {
		answerInternalError(w, r)
		return
	}
	answerEmpty(w, http.StatusOK)
}
