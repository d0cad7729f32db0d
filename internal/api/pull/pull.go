// Package pull is the room of workers that fetch their jobs over HTTP: next-job,
// renew-job, upload-output, complete-job. It translates between HTTP and the core and decides
// nothing itself. A worker is one of a machine that has a token; users have nothing to do
// with it.
package pull

import (
	"errors"
	"io/fs"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/tunnel"
	"github.com/comfyhub/comfyhub/internal/worker"
)

// prefix is where the routes are; aliases are at the root.
const prefix = "/hub/v1"

// room answers the routes of workers.
type room struct {
	*api.Requests
	hub func() Core
}

// handler answers a request of a machine.
type handler func(w http.ResponseWriter, r *http.Request, c call)

// call is who asks, and for what.
type call struct {
	api.Requester

	// machine is the one that the token names.
	machine string
	// id is what the path names: a job or a worker.
	id string
}

// Routes are the routes below /hub/v1 and, unless the settings say otherwise, their aliases
// at the root.
func Routes(core func() Core, requests *api.Requests) []api.Optional {
	o := &room{Requests: requests, hub: core}
	below, root := &api.Router{}, &api.Router{}
	both := func(method, path string, handle handler) {
		below.HandleOpen(method+" "+prefix+path, o.admit(handle))
		root.HandleOpen(method+" "+path, o.admit(handle))
	}
	both("GET", "/next-job", o.getNext)
	both("POST", "/renew-job/*", o.postRenew)
	both("POST", "/upload-output/*", o.postOutput)
	both("POST", "/complete-job/*", o.postComplete)
	below.HandleOpen("GET "+prefix+inputPath+"*", o.admit(o.getInput))
	below.HandleOpen("POST "+prefix+"/workers/*", o.admit(o.postWorker))
	return []api.Optional{
		{Router: below, On: func() bool { return core().Settings.PlainAPI != config.PlainAPIOff }},
		{Router: root, On: func() bool { return core().Settings.PlainAPI == config.PlainAPIRoot }, Yields: true},
	}
}

// inputPath is below prefix where the input files of jobs are.
const inputPath = "/job-input/"

// admit lets machines in that have a token.
func (o *room) admit(handle handler) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
		machine, err := o.hub().Tunnels.Machine(r.Context(), tunnel.Token(r))
		switch {
		case errors.Is(err, tunnel.ErrToken):
			fail(w, o.NoteWrongToken(w, a), "The token is not valid. The operator of the hub can issue one: comfyhub token add NAME")
			return
		case err != nil:
			o.Fail(w, r, err)
			return
		}
		c := call{Requester: a, machine: machine}
		if len(path) > 0 {
			c.id = path[0]
		}
		handle(w, r, c)
	}
}

// answer answers with a status word and what else there is.
func answer(w http.ResponseWriter, status int, word string, more ...pyjson.Member) {
	api.WriteJSON(w, status, pyjson.Strict(pyjson.Marshal(statusObject(word, more...))))
}

func statusObject(word string, more ...pyjson.Member) *pyjson.Object {
	return pyjson.NewObject(append([]pyjson.Member{{Key: "status", Value: pyjson.String(word)}}, more...)...)
}

// fail answers with an error. Workers of the plainest kind look at the status word only.
func fail(w http.ResponseWriter, status int, message string) {
	answer(w, status, "error", pyjson.Member{Key: "message", Value: pyjson.String(message)})
}

// refuse answers with an error of the core.
func (o *room) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, worker.ErrCancelled):
		answer(w, http.StatusConflict, "cancelled", pyjson.Member{Key: "message", Value: pyjson.String("The job was cancelled: stop it, and ask for the next one")})
	case errors.Is(err, worker.ErrNotHeld):
		fail(w, http.StatusConflict, "This machine does not hold the job: its lease has ended, or the job has. Ask for the next one")
	case errors.Is(err, worker.ErrHolds):
		fail(w, http.StatusConflict, "This worker holds a job: complete it, or wait until its lease ends. Two programs cannot be one worker")
	case errors.Is(err, worker.ErrGone):
		fail(w, http.StatusNotFound, "The hub does not know this worker: say what it can run, by POST "+prefix+"/workers/ID or with ?classes= here")
	case errors.Is(err, worker.ErrBusy):
		fail(w, http.StatusTooManyRequests, "This worker makes too many requests at once")
	case errors.Is(err, worker.ErrTooMany):
		fail(w, http.StatusTooManyRequests, "This machine has too many workers, or they can run too much")
	case errors.Is(err, fleet.ErrName):
		fail(w, http.StatusBadRequest, "worker_id: "+err.Error())
	case errors.Is(err, worker.ErrOutput):
		fail(w, http.StatusBadRequest, worker.Reason(err))
	case errors.Is(err, fs.ErrNotExist):
		fail(w, http.StatusNotFound, "The job has no such input")
	default:
		o.Fail(w, r, err)
	}
}
