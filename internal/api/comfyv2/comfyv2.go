// Package comfyv2 is the room of the Comfy API v2, the API of Comfy Cloud and of Comfy's own
// SDKs: jobs, assets and events below /api/v2. It translates between HTTP and the core and
// decides nothing itself. Its jobs are those of the other rooms, and its assets are uploads.
package comfyv2

import (
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// The paths of the room. ComfyUI has routes of its own below /api/v2.
const (
	jobsPath   = "/api/v2/jobs"
	assetsPath = "/api/v2/assets"
	healthPath = "/api/v2/health"
)

// linkLife is for how long answers say that their links work, and jobs stay where the history has
// no age. The links are not signed, so that is a promise that is easy to keep.
const linkLife = 24 * time.Hour

// room is what all routes share.
type room struct {
	*api.Requests
	hub func() Core
}

// jobs answers the routes of jobs that are there, submits the one that makes them, assets those of
// assets and outputs.
type (
	jobs    struct{ *room }
	submits struct{ jobs }
	assets  struct{ *room }
)

// Routes are the routes of the room.
func Routes(core func() Core, requests *api.Requests) api.Optional {
	o := &room{Requests: requests, hub: core}
	live, kept := jobs{o}, assets{o}
	in := submits{live}
	t := &api.Router{}
	t.Handle("GET "+healthPath, getHealth)
	t.Handle("POST "+jobsPath, in.postJob)
	t.Handle("GET "+jobsPath, live.getJobs)
	t.Handle("GET "+jobsPath+"/*", live.getJob)
	t.Handle("GET "+jobsPath+"/*/workflow", live.getWorkflow)
	t.Handle("POST "+jobsPath+"/*/cancel", live.postCancel)
	t.Handle("GET "+jobsPath+"/*/events", live.getEvents)
	t.Handle("POST "+assetsPath, kept.postAsset)
	t.Handle("POST "+assetsPath+"/from-hash", kept.postFromHash)
	t.Handle("POST "+assetsPath+"/from-path", kept.postFromPath)
	t.Handle("GET "+assetsPath+"/by-hash/*", kept.getByHash)
	t.Handle("GET "+assetsPath+"/*", kept.getAsset)
	t.Handle("DELETE "+assetsPath+"/*", kept.deleteAsset)
	t.Handle("GET "+assetsPath+"/*/content", kept.getContent)
	return api.Optional{
		Router: t, On: func() bool { return true },
		Below: []string{jobsPath, assetsPath, healthPath}, Translate: problemOf,
	}
}

// getHealth answers GET /api/v2/health: somebody answers.
func getHealth(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
	api.WriteValue(w, object("status", pyjson.String("healthy")))
}

// object is an object of keys and values in turn.
func object(pairs ...any) *pyjson.Object {
	o := &pyjson.Object{}
	for n := 0; n+1 < len(pairs); n += 2 {
		key, _ := pairs[n].(string)
		value, _ := pairs[n+1].(pyjson.Value)
		o.Set(key, value)
	}
	return o
}

// instant is a moment in milliseconds, or null for none.
func instant(ms int64) pyjson.Value {
	if ms == 0 {
		return pyjson.Null{}
	}
	return moment(time.UnixMilli(ms))
}

func moment(t time.Time) pyjson.Value {
	return pyjson.String(t.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

// text is a text, or null for an empty one.
func text(s string) pyjson.Value {
	if s == "" {
		return pyjson.Null{}
	}
	return pyjson.String(s)
}
