package ops

import (
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/tunnel"
)

// getTunnel answers GET /hub/tunnel: the agent of a machine that only dials out joins. Its
// token says which machine it is; users have nothing to do with it.
func (o *room) getTunnel(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	token := tunnel.Token(r)
	machine, err := o.hub().Tunnels.Machine(r.Context(), token)
	switch {
	case errors.Is(err, tunnel.ErrToken):
		api.WriteErrorText(w, o.NoteWrongToken(w, a), "The token is not valid. The operator of the hub can issue one: caddy comfyhub-token add NAME")
		return
	case err != nil:
		o.Fail(w, r, err)
		return
	}
	session, err := tunnel.Accept(w, r)
	if err != nil {
		o.Log().Debug("cannot open a tunnel", "machine", machine, "error", err)
		return
	}
	o.hub().Tunnels.Serve(machine, token, session)
}
