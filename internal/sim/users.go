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

// userRoutes keeps the settings and files of users.
type userRoutes struct {
	bodyLimit
	feat  features
	files *folders
	multi bool // as many users as register
}

// userRoot returns the folder of a request's user. ok is false for an unknown user
// of a multi-user server.
func (u *userRoutes) userRoot(r *http.Request) (root string, ok bool) {
	base := filepath.Join(u.files.base, "user")
	if !u.multi {
		return filepath.Join(base, "default"), true
	}
	id := r.Header.Get("comfy-user")
	if !u.users().Has(id) {
		return "", false
	}
	return filepath.Join(base, id), true
}

func (u *userRoutes) usersFile() string { return filepath.Join(u.files.base, "user", "users.json") }

func (u *userRoutes) users() *pyjson.Object { return readObject(u.usersFile()) }

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

func (u *userRoutes) getUsers(w http.ResponseWriter, r *http.Request) {
	if u.multi {
		answerJSON(w, http.StatusOK, dict("storage", "server", "users", u.users()))
		return
	}
	_, err := os.Stat(filepath.Join(u.files.base, "user", "default"))
	answerJSON(w, http.StatusOK, dict("storage", "server", "migrated", err == nil))
}

func (u *userRoutes) postUsers(w http.ResponseWriter, r *http.Request) {
	body, ok := u.readJSON(w, r)
	if !ok {
		return
	}
	req, _ := body.(*pyjson.Object)
	name := strings.TrimSpace(req.String("username"))
	if name == "" {
		answerInternalError(w, r)
		return
	}
	users := u.users()
	for _, known := range users.All() {
		if python.Str(known) == name {
			answerJSON(w, http.StatusBadRequest, dict("error", "Duplicate username."))
			return
		}
	}
	id := safeName(name) + "_" + uuid.NewString()
	users.Set(id, pyjson.String(name))
	if os.WriteFile(u.usersFile(), pyjson.Marshal(users), 0o644) != nil {
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
func (u *userRoutes) settings(w http.ResponseWriter, r *http.Request) (full string, ok bool) {
	root, ok := u.userRoot(r)
	if !ok {
		dropPageHeaders(w)
		answerText(w, http.StatusUnauthorized, "401: Unauthorized")
		return "", false
	}
	return filepath.Join(root, "comfy.settings.json"), true
}

func (u *userRoutes) getSettings(w http.ResponseWriter, r *http.Request) {
	if full, ok := u.settings(w, r); ok {
		answerJSON(w, http.StatusOK, readObject(full))
	}
}

func (u *userRoutes) getSetting(w http.ResponseWriter, r *http.Request) {
	if full, ok := u.settings(w, r); ok {
		v, _ := readObject(full).Get(r.PathValue("id"))
		answerJSON(w, http.StatusOK, v)
	}
}

func (u *userRoutes) postSettings(w http.ResponseWriter, r *http.Request) {
	full, ok := u.settings(w, r)
	if !ok {
		return
	}
	body, ok := u.readJSON(w, r)
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
	u.storeSettings(w, r, full, stored)
}

func (u *userRoutes) postSetting(w http.ResponseWriter, r *http.Request) {
	full, ok := u.settings(w, r)
	if !ok {
		return
	}
	body, ok := u.readJSON(w, r)
	if !ok {
		return
	}
	stored := readObject(full)
	stored.Set(r.PathValue("id"), body)
	u.storeSettings(w, r, full, stored)
}

func (u *userRoutes) storeSettings(w http.ResponseWriter, r *http.Request, full string, stored *pyjson.Object) {
	if os.MkdirAll(filepath.Dir(full), 0o755) != nil || os.WriteFile(full, pyjson.Marshal(stored), 0o644) != nil {
		answerInternalError(w, r)
		return
	}
	answerEmpty(w, http.StatusOK)
}
