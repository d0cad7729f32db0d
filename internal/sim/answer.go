package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	typeJSON = "application/json; charset=utf-8"
	typeText = "text/plain; charset=utf-8"
)

// dict returns an object made of alternating keys and values, see value.
func dict(pairs ...any) *pyjson.Object {
	o := &pyjson.Object{}
	for i := 0; i+1 < len(pairs); i += 2 {
		o.Set(pairs[i].(string), value(pairs[i+1]))
	}
	return o
}

// list returns an array, see value.
func list(items ...any) pyjson.Array {
	a := make(pyjson.Array, len(items))
	for i, item := range items {
		a[i] = value(item)
	}
	return a
}

// value converts a plain Go value to JSON. Values of pyjson pass unchanged.
func value(v any) pyjson.Value {
	switch v := v.(type) {
	case pyjson.Value:
		return v
	case nil:
		return pyjson.Null{}
	case string:
		return pyjson.String(v)
	case bool:
		return pyjson.Bool(v)
	case int:
		return pyjson.Int(int64(v))
	case int64:
		return pyjson.Int(v)
	case float64:
		return pyjson.Float(v)
	case []string:
		return pyjson.Strings(v)
	case json.Number:
		return pyjson.Number(v)
	}
	panic(fmt.Sprintf("sim: no JSON form of %T", v))
}

func answerJSON(w http.ResponseWriter, status int, v pyjson.Value) {
	answerBytes(w, status, typeJSON, pyjson.Marshal(v))
}

func answerBytes(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone, which does not matter
}

func answerText(w http.ResponseWriter, status int, text string) {
	answerBytes(w, status, typeText, []byte(text))
}

// answerEmpty sends a status without body and without Content-Type.
func answerEmpty(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}

// answerInternalError answers every exception that a handler of the real server
// lets through.
func answerInternalError(w http.ResponseWriter, r *http.Request) {
	dropPageHeaders(w)
	w.Header().Set("Connection", "close")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		answerBytes(w, http.StatusInternalServerError, "text/html; charset=utf-8", []byte(
			"<html><head><title>500 Internal Server Error</title></head><body>\n<h1>500 Internal Server Error</h1>\nServer got itself in trouble\n</body></html>\n"))
		return
	}
	answerText(w, http.StatusInternalServerError, "500 Internal Server Error\n\nServer got itself in trouble")
}

// dropPageHeaders removes the headers that middlewares only add to normal answers.
func dropPageHeaders(w http.ResponseWriter) {
	for _, name := range []string{
		"Content-Security-Policy", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods",
		"Access-Control-Allow-Headers", "Access-Control-Allow-Credentials", "Cache-Control",
	} {
		w.Header().Del(name)
	}
}
