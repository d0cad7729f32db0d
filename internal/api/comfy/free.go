package comfy

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// postFree answers POST /free. One client must not unload the models that
// others work with: see config.FreePolicy.
func (c *Room) postFree(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, done, ok := c.ReadJSON(w, r, a, api.SmallBody)
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
		c.hub().Instances.Free(r.Context(), a.Tenant, c.Recent.Clients(a), python.Bool(models), python.Bool(memory))
	}
	api.WriteEmpty(w, http.StatusOK)
}
