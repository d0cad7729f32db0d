package sdapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/userdata"
)

// A tenant's options are what it has set by POST /options. They go with its jobs, as settings
// for those alone: no server's own options ever change.

// options are the tenant's own, empty if it has set none.
func (o *room) options(ctx context.Context, a api.Requester) (*pyjson.Object, error) {
	return o.hub().Users.Folder(a.Tenant, userdata.DefaultUser).Options(ctx)
}

// failOptions answers a request for which the options cannot be read or stored.
func (o *room) failOptions(w http.ResponseWriter, r *http.Request, err error) {
	full := api.Error{Status: http.StatusInsufficientStorage, Kind: "tenant_userdata_full", Message: "Your settings and workflows take all the space that they may"}
	switch {
	case errors.Is(err, userdata.ErrTooLarge):
		writeProblem(w, http.StatusInsufficientStorage, exception("RuntimeError", "Your options are too large. Set some of them to null."))
	case errors.Is(err, userdata.ErrFullFiles):
		o.RefuseFull(w, "userdata_files", full)
	case errors.Is(err, userdata.ErrFull):
		o.RefuseFull(w, "userdata", full)
	default:
		o.Fail(w, r, err)
	}
}

// settings answers the routes of the options.
type settings struct{ *room }

// ofServers are the options of all servers, the first one's before others', without what is
// secret; false if no server answers.
func (o settings) ofServers(ctx context.Context, a api.Requester) (*pyjson.Object, bool) {
	answers, _ := api.AskAll(ctx, o.hub().Servers.A1111(a.Tenant), pathOf("options"), nil)
	all := pyjson.NewObject()
	for _, answer := range answers {
		one, _ := answer.(*pyjson.Object)
		for key, v := range one.All() {
			if !all.Has(key) {
				all.Set(key, withoutSecret(key, v))
			}
		}
	}
	return all, len(answers) > 0
}

// secretWords are the words in the names of options that are the operator's secrets, such as
// the keys of extensions for services of others.
var secretWords = []string{"key", "apikey", "token", "secret", "password", "passwd", "auth", "credential", "credentials", "cookie"}

// withoutSecret is an option as everybody may see it.
func withoutSecret(key string, v pyjson.Value) pyjson.Value {
	text, ok := v.(pyjson.String)
	if !ok || text == "" {
		return v
	}
	words := strings.FieldsFunc(strings.ToLower(key), func(c rune) bool { return c == '_' || c == '-' || c == '.' || c == ' ' })
	if slices.ContainsFunc(words, func(word string) bool { return slices.Contains(secretWords, word) }) {
		return pyjson.String("")
	}
	return v
}

// getOptions answers GET /options.
func (o settings) getOptions(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	all, ok := o.ofServers(r.Context(), a)
	if !ok {
		writeNoServer(w)
		return
	}
	own, err := o.options(r.Context(), a)
	if err != nil {
		o.failOptions(w, r, err)
		return
	}
	for key, v := range own.All() {
		all.Set(key, v)
	}
	api.WriteDetail(w, all)
}

// postOptions answers POST /options. What a client sends back as it was is not kept: many
// send all options to change one.
func (o settings) postOptions(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, body, ok := o.readJSON(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer body.Close()
	asked, err := object(v)
	if err != nil {
		refuseRequest(w, err)
		return
	}
	all, ok := o.ofServers(r.Context(), a)
	if !ok {
		writeNoServer(w)
		return
	}
	if problem := o.checkOptions(asked, all); problem != nil {
		writeProblem(w, http.StatusInternalServerError, problem)
		return
	}
	err = o.hub().Users.Folder(a.Tenant, userdata.DefaultUser).ChangeOptions(r.Context(), func(own *pyjson.Object) { change(own, asked, all) })
	if err != nil {
		o.failOptions(w, r, err)
		return
	}
	api.WriteValue(w, pyjson.Null{})
}

// change sets a tenant's options; those that are null, or as on the servers, are not kept.
func change(own, asked, all *pyjson.Object) {
	for key, v := range asked.All() {
		theirs, _ := all.Get(key)
		if _, null := v.(pyjson.Null); null || theirs != nil && string(pyjson.Marshal(theirs)) == string(pyjson.Marshal(v)) {
			own.Delete(key)
			continue
		}
		own.Set(key, v)
	}
}

// checkOptions is the exception with which A1111 refuses options, nil for none.
func (o settings) checkOptions(asked, all *pyjson.Object) *pyjson.Object {
	for key := range asked.All() {
		if !all.Has(key) {
			return exception("KeyError", "'"+short(key)+"'")
		}
	}
	v, _ := asked.Get(a1111.OptionCheckpoint)
	switch v := v.(type) {
	case nil, pyjson.Null:
		return nil
	case pyjson.String:
		if current := all.String(a1111.OptionCheckpoint); v == "" || string(v) == current || o.hasCheckpoint(string(v)) {
			return nil
		}
		return exception("RuntimeError", "model '"+short(string(v))+"' not found")
	}
	return exception("TypeError", a1111.OptionCheckpoint+" must be a text")
}

// short is a name as errors repeat it.
func short(name string) string { return strings.ToValidUTF8(name[:min(len(name), 200)], "") }

// hasCheckpoint reports whether a server has a checkpoint under a name.
func (o settings) hasCheckpoint(name string) bool {
	inputs := o.hub().Classes.Known(a1111.ClassCheckpoint).Object("input").Object("required")
	about := inputs.Array(a1111.InputCheckpoint)
	if len(about) == 0 {
		return false
	}
	names, _ := about[0].(pyjson.Array)
	return slices.Contains(names, pyjson.Value(pyjson.String(name)))
}
