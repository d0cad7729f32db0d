package hub

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// writeListing answers with a listing that clients ask for at every status
// message: it has an ETag, so that an unchanged one costs no bytes.
func writeListing(w http.ResponseWriter, r *http.Request, body []byte) {
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	w.Header().Set("Etag", tag)
	w.Header().Set("Cache-Control", "no-cache")
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeJSON(w, http.StatusOK, body)
}

// appendTuple writes a queue item: [number, id, graph, extra_data, outputs].
// Strict clients unpack exactly these five.
func appendTuple(dst []byte, j job.Job, body job.Body) []byte {
	dst = append(dst, '[')
	dst = append(dst, listable(j.Number)...)
	dst = append(dst, ", "...)
	dst = pyjson.AppendString(dst, j.ID)
	dst = append(dst, ", "...)
	dst = append(dst, orEmpty(body.Prompt)...)
	dst = append(dst, ", "...)
	dst = append(dst, orEmpty(body.Extra)...)
	dst = append(dst, ", "...)
	dst = pyjson.Append(dst, pyjson.Strings(body.Outputs))
	return append(dst, ']')
}

// listable is a number that every JSON parser reads. A real server lists NaN
// and Infinity as they are, and the listing is then broken for everybody.
func listable(number string) string {
	switch number {
	case "NaN", "Infinity":
		return "1e+308"
	case "-Infinity":
		return "-1e+308"
	case "":
		return "0"
	}
	return number
}

func orEmpty(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte("{}")
	}
	return raw
}

// joinTuples writes a JSON list of queue items.
func joinTuples(jobs []job.Job, bodies map[string]job.Body) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for n, j := range jobs {
		if n > 0 {
			b.WriteString(", ")
		}
		b.Write(appendTuple(nil, j, bodies[j.Key]))
	}
	b.WriteByte(']')
	return b.Bytes()
}
