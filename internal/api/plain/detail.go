package plain

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// writeProblem answers with the one shape that errors have here.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	writeProblemValue(w, status, pyjson.NewObject(pyjson.Member{Key: "detail", Value: pyjson.String(detail)}))
}

func writeProblemValue(w http.ResponseWriter, status int, problem *pyjson.Object) {
	api.WriteJSON(w, status, pyjson.Strict(pyjson.Marshal(problem)))
}

// problemOf is an error as this room tells it, whatever shape it has.
func problemOf(status int, answer []byte) *pyjson.Object {
	v, _ := pyjson.Parse(answer)
	o, _ := v.(*pyjson.Object)
	if o.Has("detail") {
		return o
	}
	text, kind := api.ErrorText(status, o, answer)
	problem := pyjson.NewObject(pyjson.Member{Key: "detail", Value: pyjson.String(text)})
	if o.Object("error") != nil {
		problem.Set("type", pyjson.String(kind))
	}
	if nodes := o.Object("node_errors"); nodes.Len() > 0 {
		problem.Set("node_errors", nodes)
	}
	return problem
}
