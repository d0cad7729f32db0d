package ops

import (
	"errors"
	"io"
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
		api.WriteErrorText(w, o.NoteWrongToken(w, a), "The token is not valid. The operator of the hub can issue one: comfyhub token add NAME")
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

// postTunnel answers POST /hub/tunnel: a machine that was started by need shows its token for joining,
// and gets a token of its own, whose hash it sends.
func postTunnel(o *room) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
		hash, err := io.ReadAll(http.MaxBytesReader(w, r.Body, tunnel.HashSize))
		if err != nil {
			api.WriteErrorText(w, http.StatusBadRequest, "The body is the SHA-256 of a token in hexadecimal.")
			return
		}
		switch err := o.hub().Machines.Join(r.Context(), tunnel.Token(r), string(hash)); {
		case errors.Is(err, tunnel.ErrToken):
			api.WriteErrorText(w, o.NoteWrongToken(w, a), "The token is not valid: it was used, it is too old, or it never was.")
		case err != nil:
			o.Fail(w, r, err)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}
}
