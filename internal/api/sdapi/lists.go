package sdapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// surveys answers the routes whose answers lie with the servers.
type surveys struct{ *room }

// merger joins the answers of servers, the first one's before others'.
type merger func(answers []pyjson.Value) pyjson.Value

// listings are the routes that list what servers have, each with how their lists are joined.
func listings() map[string]merger {
	byName := named("name")
	return map[string]merger{
		"sd-models": named("title"), "sd-vae": named("model_name"), "sd-modules": named("model_name"),
		"samplers": byName, "schedulers": byName, "upscalers": byName, "latent-upscale-modes": byName, "loras": byName,
		"hypernetworks": byName, "face-restorers": byName, "realesrgan-models": byName, "prompt-styles": byName, "extensions": byName,
		"script-info": named("name", "is_alwayson", "is_img2img"), "scripts": joined(union), "embeddings": joined(overlaid),
	}
}

// named joins lists of objects: those that are equal in some members are one.
func named(members ...string) merger {
	return func(answers []pyjson.Value) pyjson.Value {
		list := pyjson.Array{}
		known := map[string]bool{}
		for _, answer := range answers {
			items, _ := answer.(pyjson.Array)
			for _, item := range items {
				o, ok := item.(*pyjson.Object)
				if !ok {
					continue
				}
				name := pyjson.Array{}
				for _, member := range members {
					v, _ := o.Get(member)
					if v == nil {
						v = pyjson.Null{}
					}
					name = append(name, v)
				}
				if key := string(pyjson.Marshal(name)); !known[key] {
					known[key] = true
					list = append(list, o)
				}
			}
		}
		return list
	}
}

// joined joins objects member by member.
func joined(join func(a, b pyjson.Value) pyjson.Value) merger {
	return func(answers []pyjson.Value) pyjson.Value {
		all := pyjson.NewObject()
		for _, answer := range answers {
			o, _ := answer.(*pyjson.Object)
			for key, v := range o.All() {
				if before, ok := all.Get(key); ok {
					v = join(before, v)
				}
				all.Set(key, v)
			}
		}
		return all
	}
}

// union joins two lists of texts.
func union(a, b pyjson.Value) pyjson.Value {
	list := pyjson.Array{}
	known := map[pyjson.String]bool{}
	for _, v := range []pyjson.Value{a, b} {
		items, _ := v.(pyjson.Array)
		for _, item := range items {
			if text, ok := item.(pyjson.String); ok && !known[text] {
				known[text] = true
				list = append(list, text)
			}
		}
	}
	return list
}

// overlaid joins two objects.
func overlaid(a, b pyjson.Value) pyjson.Value {
	return joined(func(before, _ pyjson.Value) pyjson.Value { return before })([]pyjson.Value{a, b})
}

// getList answers a route with what all servers have.
func (o surveys) getList(merge merger) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
		answers, reached := api.AskAll(r.Context(), o.hub().Servers.A1111(a.Tenant), api.PathOf(r).Escaped(), nil)
		switch {
		case len(answers) > 0:
			api.WriteDetail(w, merge(answers))
		case reached:
			writeDetail(w, http.StatusNotFound, http.StatusText(http.StatusNotFound))
		default:
			writeNoServer(w)
		}
	}
}

// getFlags answers GET /cmd-flags with a server's numbers and switches. Its texts and lists are
// empty: paths and passwords are among them.
func (o surveys) getFlags(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	flags := o.ofOne(w, r, a, "cmd-flags")
	if flags == nil {
		return
	}
	shown := pyjson.NewObject()
	for key, v := range flags.All() {
		switch v.(type) {
		case pyjson.String:
			v = pyjson.String("")
		case pyjson.Array:
			v = pyjson.Array{}
		case *pyjson.Object:
			v = pyjson.NewObject()
		}
		shown.Set(key, v)
	}
	api.WriteDetail(w, shown)
}

// getMemory answers GET /memory with that of the server that runs the requester's job, else
// of the first one.
func (o surveys) getMemory(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	if memory := o.ofOne(w, r, a, "memory"); memory != nil {
		api.WriteDetail(w, memory)
	}
}

// ofOne asks one server for an object. Any error is answered, and nil returned.
func (o surveys) ofOne(w http.ResponseWriter, r *http.Request, a api.Requester, path string) *pyjson.Object {
	if server := o.serverOf(r, a); server != nil {
		v, _ := api.Ask(r.Context(), server, pathOf(path), nil)
		if found, ok := v.(*pyjson.Object); ok {
			return found
		}
	}
	writeNoServer(w)
	return nil
}

// refreshTimeout is how long a client waits for a refresh, which goes on without it: a server
// begins with it when it has ended what it does.
const refreshTimeout = 5 * time.Second

// postRefresh has all servers look for new files.
func (o surveys) postRefresh(path string) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
		o.tellAll(r.Context(), a, path)
		api.WriteValue(w, pyjson.Null{})
	}
}

// postMemory answers POST /unload-checkpoint and /reload-checkpoint. One client must not
// unload the models that others work with, see config.FreePolicy.
func (o surveys) postMemory(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	if o.hub().Settings.Free == config.FreeAll {
		o.tellAll(r.Context(), a, api.PathOf(r).Escaped()[len(prefix):])
	}
	api.WriteJSON(w, http.StatusOK, []byte("{}"))
}

// tellAll makes the same call of all servers.
func (o surveys) tellAll(ctx context.Context, a api.Requester, path string) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	var wait sync.WaitGroup
	for _, client := range o.hub().Servers.A1111(a.Tenant) {
		wait.Go(func() {
			if _, err := client.Post(ctx, pathOf(path), nil); err != nil {
				o.Log().Debug("an instance did not answer", "error", err)
			}
			o.hub().Servers.Doubt(client)
		})
	}
	wait.Wait()
}
