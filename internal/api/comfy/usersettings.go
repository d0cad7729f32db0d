package comfy

import (
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/userdata"
)

// userSettings answers the routes of users and of their settings.
type userSettings struct{ userFolders }

// getUsers answers GET /users, with which the web interface learns whether it
// has to ask who is there.
func (u userSettings) getUsers(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	answer := pyjson.NewObject(pyjson.Member{Key: "storage", Value: pyjson.String("server")})
	if u.hub().Settings.MultiUser {
		users, err := u.hub().Users.Users(r.Context(), a.Tenant)
		if err != nil {
			u.Fail(w, r, err)
			return
		}
		answer.Set("users", users)
	} else {
		// Always: a browser that is told otherwise overwrites the settings
		// with its own old ones.
		answer.Set("migrated", pyjson.Bool(true))
	}
	api.WriteValue(w, answer)
}

// postUsers answers POST /users with the new user's id.
func (u userSettings) postUsers(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, done, ok := u.ReadJSON(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	o, _ := v.(*pyjson.Object)
	name, _ := o.Get("username")
	text, ok := name.(pyjson.String)
	if !ok {
		api.WriteInternalError(w, r)
		return
	}
	id, err := u.hub().Users.AddUser(r.Context(), a.Tenant, string(text))
	switch {
	case errors.Is(err, userdata.ErrDuplicate):
		api.WriteErrorText(w, http.StatusBadRequest, "Duplicate username.")
	case errors.Is(err, userdata.ErrFull):
		u.refuseUserdata(w, err)
	case errors.Is(err, userdata.ErrUsers):
		u.Limited("users")
		api.WriteErrorText(w, http.StatusInsufficientStorage, "Too many users.")
	case errors.Is(err, userdata.ErrName):
		api.WriteInternalError(w, r)
	case err != nil:
		u.Fail(w, r, err)
	default:
		api.WriteValue(w, pyjson.String(id))
	}
}

// settingsOf finds whose settings a request is about. It answers by itself if
// that is nobody: by the 401 the web interface learns to ask for the user.
func (u userSettings) settingsOf(w http.ResponseWriter, r *http.Request, a api.Requester) (userdata.Folder, bool) {
	folder, ok, err := u.userFolder(r, a)
	if err != nil {
		u.Fail(w, r, err)
		return folder, false
	}
	if !ok {
		api.WriteText(w, http.StatusUnauthorized, "401: Unauthorized")
	}
	return folder, ok
}

func (u userSettings) getSettings(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	if o, ok := u.readSettings(w, r, a); ok {
		api.WriteValue(w, o)
	}
}

// getSetting answers GET /settings/{id}: null for one that is not set.
func (u userSettings) getSetting(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	o, ok := u.readSettings(w, r, a)
	if !ok {
		return
	}
	v, ok := o.Get(path[0])
	if !ok {
		v = pyjson.Null{}
	}
	api.WriteValue(w, v)
}

func (u userSettings) readSettings(w http.ResponseWriter, r *http.Request, a api.Requester) (*pyjson.Object, bool) {
	folder, ok := u.settingsOf(w, r, a)
	if !ok {
		return nil, false
	}
	o, err := folder.Settings(r.Context())
	if err != nil {
		u.Fail(w, r, err)
	}
	return o, err == nil
}

// postSettings answers POST /settings: an object is merged over the stored one.
func (u userSettings) postSettings(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	u.changeSettings(w, r, a, func(stored *pyjson.Object, v pyjson.Value) bool {
		update, ok := v.(*pyjson.Object)
		for key, v := range update.All() {
			stored.Set(key, v)
		}
		return ok
	})
}

func (u userSettings) postSetting(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	u.changeSettings(w, r, a, func(stored *pyjson.Object, v pyjson.Value) bool {
		stored.Set(path[0], v)
		return true
	})
}

// changeSettings applies the body of a request; change reports whether the
// body is of the right kind.
func (u userSettings) changeSettings(w http.ResponseWriter, r *http.Request, a api.Requester, change func(stored *pyjson.Object, v pyjson.Value) bool) {
	folder, ok := u.settingsOf(w, r, a)
	if !ok {
		return
	}
	v, done, ok := u.ReadJSON(w, r, a, api.SettingsBody)
	if !ok {
		return
	}
	defer done()
	fits := true
	err := folder.ChangeSettings(r.Context(), func(stored *pyjson.Object) { fits = change(stored, v) })
	switch {
	case !fits:
		api.WriteInternalError(w, r)
	case errors.Is(err, userdata.ErrFull):
		u.refuseUserdata(w, err)
	case errors.Is(err, userdata.ErrTooLarge):
		api.WriteText(w, http.StatusRequestEntityTooLarge, "413: Request Entity Too Large")
	case err != nil:
		u.Fail(w, r, err)
	default:
		api.WriteEmpty(w, http.StatusOK)
	}
}
