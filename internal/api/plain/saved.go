package plain

import (
	"context"
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/convert"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// errNotNow is the error for a conversion that there is no room for now, or of classes that are not known yet.
type errNotNow struct{ error }

// Unwrap is why.
func (e errNotNow) Unwrap() error { return e.error }

// converted is the body of POST /submit with its workflow in the API format, if it is as the
// web UI saves it. release gives back the memory that the result takes.
func (o *room) converted(ctx context.Context, a api.Requester, body pyjson.Value) (pyjson.Value, func(), error) {
	asked, _ := body.(*pyjson.Object)
	saved := asked.Object("workflow")
	if !convert.IsSaved(saved) || asked.String("service") == serviceA1111 {
		return body, func() {}, nil
	}
	if err := o.hub().Classes.Await(ctx, a.Share()); err != nil {
		return nil, nil, errNotNow{err}
	}
	limit := 2*len(asked.Raw("workflow")) + 64<<10
	release, err := o.Intake.Reserve(ctx, a.Share(), 3*int64(limit))
	if err != nil {
		return nil, nil, errNotNow{err}
	}
	workflow, err := convert.ToAPI(saved, limit, o.hub().Classes.Known)
	if err != nil {
		release()
		return nil, nil, err
	}
	asked.Set("workflow", workflow)
	v, err := pyjson.Parse(pyjson.Marshal(asked)) // the graph is bytes from here on
	if err != nil {
		release()
		return nil, nil, err
	}
	return v, release, nil
}

// refuseSaved answers a workflow that cannot be converted.
func (o *room) refuseSaved(w http.ResponseWriter, r *http.Request, err error) {
	var later errNotNow
	var unfit *convert.Error
	switch {
	case errors.As(err, &later):
		o.Fail(w, r, later.error)
		return
	case !errors.As(err, &unfit):
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	nodes := pyjson.NewObject()
	for _, p := range unfit.Problems {
		nodes.Set(p.Node, pyjson.NewObject(
			pyjson.Member{Key: "errors", Value: pyjson.Array{pyjson.NewObject(
				pyjson.Member{Key: "type", Value: pyjson.String("not_convertible")},
				pyjson.Member{Key: "message", Value: pyjson.String("The node cannot be converted to the API format")},
				pyjson.Member{Key: "details", Value: pyjson.String(p.Reason)},
			)}},
			pyjson.Member{Key: "dependent_outputs", Value: pyjson.Array{}},
			pyjson.Member{Key: "class_type", Value: pyjson.String(p.Class)},
		))
	}
	writeProblemValue(w, http.StatusUnprocessableEntity, pyjson.NewObject(
		pyjson.Member{Key: "detail", Value: pyjson.String("The workflow has nodes that cannot be converted to the API format")},
		pyjson.Member{Key: "type", Value: pyjson.String("not_convertible")},
		pyjson.Member{Key: "node_errors", Value: nodes},
	))
}
