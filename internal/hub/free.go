package hub

import (
	"net/http"
	"sync"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// postFree answers POST /free. One client must not unload the models that
// others work with: see FreePolicy.
func (h *Hub) postFree(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, done, ok := h.requests.ReadJSON(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	o, ok := v.(*pyjson.Object)
	if !ok {
		api.WriteInternalError(w, r)
		return
	}
	a.SetClient(o.String("client_id"))
	models, _ := o.Get("unload_models")
	memory, _ := o.Get("free_memory")
	if python.Bool(models) || python.Bool(memory) {
		h.free(r, a, python.Bool(models), python.Bool(memory))
	}
	api.WriteEmpty(w, http.StatusOK)
}

// free asks the instances that the policy allows. An instance that does not
// answer has nothing to free, so errors are only logged.
func (h *Hub) free(r *http.Request, a api.Requester, models, memory bool) {
	var clients []*comfyui.Client
	switch h.Settings().Free {
	case FreeAll:
		clients = h.dispatch.Clients()
	case FreeOwn:
		for _, id := range h.recent.Clients(a) {
			clients = append(clients, h.dispatch.WarmFor(a.Tenant, id)...)
		}
	case FreeOff:
	}
	var wait sync.WaitGroup
	for _, c := range clients {
		wait.Go(func() {
			if err := c.Free(r.Context(), models, memory); err != nil {
				h.log().Debug("an instance does not free its memory", "error", err)
			}
		})
	}
	wait.Wait()
}
