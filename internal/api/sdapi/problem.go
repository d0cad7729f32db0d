package sdapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// problemOf is an error as A1111 tells its exceptions, whatever shape it has.
func problemOf(status int, answer []byte) *pyjson.Object {
	v, _ := pyjson.Parse(answer)
	o, _ := v.(*pyjson.Object)
	if o.Has("detail") {
		return o
	}
	text, kind := api.ErrorText(status, o, answer)
	if kind == "" {
		kind = "HTTPException"
	}
	return exception(kind, text)
}

// maxText bounds what is repeated of an error's text, in bytes: nodes raise errors of any length. The
// history entry has the whole.
const maxText = 2000

// exception is an exception as A1111 answers it.
func exception(kind, text string) *pyjson.Object {
	kind = short(kind)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "error", Value: pyjson.String(kind)},
		pyjson.Member{Key: "detail", Value: pyjson.String(text)},
		pyjson.Member{Key: "body", Value: pyjson.String("")},
		pyjson.Member{Key: "errors", Value: pyjson.String(text)},
	)
}

func writeProblem(w http.ResponseWriter, status int, problem *pyjson.Object) {
	api.WriteJSON(w, status, pyjson.Strict(pyjson.Marshal(problem)))
}

// writeDetail answers with an error of FastAPI itself.
func writeDetail(w http.ResponseWriter, status int, text string) {
	writeProblem(w, status, pyjson.NewObject(pyjson.Member{Key: "detail", Value: pyjson.String(text)}))
}

// writeNoServer answers while no A1111 server is connected that could answer.
func writeNoServer(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	writeProblem(w, http.StatusServiceUnavailable, exception("HTTPException", "No A1111 server is connected to the hub"))
}

// invalid is what FastAPI refuses in a body.
type invalid struct {
	// place is where in the body: names and numbers.
	place []any
	// message says what is wrong, kind is pydantic's name for it.
	message, kind string
}

// Error says what is wrong.
func (e *invalid) Error() string { return "body: " + e.message }

func (e *invalid) write(w http.ResponseWriter) {
	place := pyjson.Array{pyjson.String("body")}
	for _, step := range e.place {
		switch step := step.(type) {
		case string:
			place = append(place, pyjson.String(step))
		case int:
			place = append(place, pyjson.Number(strconv.Itoa(step)))
		}
	}
	writeProblem(w, http.StatusUnprocessableEntity, pyjson.NewObject(pyjson.Member{Key: "detail", Value: pyjson.Array{pyjson.NewObject(
		pyjson.Member{Key: "loc", Value: place},
		pyjson.Member{Key: "msg", Value: pyjson.String(e.message)},
		pyjson.Member{Key: "type", Value: pyjson.String(e.kind)},
	)}}))
}
