package hub

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// writeListing answers with a listing that clients ask for at every status
// message: it has an ETag, so that an unchanged one costs no bytes.
func writeListing(w http.ResponseWriter, r *http.Request, body []byte) {
	sum := sha256.Sum256(body)
	if !unchanged(w, r, sum[:]) {
		writeJSON(w, http.StatusOK, body)
	}
}

// unchanged sets a listing's ETag and answers a client that has it already.
func unchanged(w http.ResponseWriter, r *http.Request, sum []byte) bool {
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	w.Header().Set("Etag", tag)
	w.Header().Set("Cache-Control", "no-cache")
	if r.Header.Get("If-None-Match") != tag {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
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

// listing is a list of jobs that is being made. What it is made of may be
// larger than memory: bodies that were sent compressed a thousand times, and ten
// thousand of them.
type listing struct {
	hub    *Hub
	share  string
	buffer *intake.Buffer
	sum    hash.Hash
	err    error // the first one
}

func (h *Hub) newListing(a asker) *listing {
	return &listing{hub: h, share: a.share(), buffer: h.intake.NewBuffer(a.share()), sum: sha256.New()}
}

func (l *listing) close() { l.buffer.Take().Close() }

func (l *listing) write(p []byte) {
	if l.err == nil {
		l.sum.Write(p)
		_, l.err = l.buffer.Write(p)
	}
}

func (l *listing) text(s string) { l.write([]byte(s)) }

// tuples writes a JSON list of queue items, with one body in memory at a time.
func (l *listing) tuples(ctx context.Context, jobs []job.Job) error {
	keys := make([]string, len(jobs))
	for n, j := range jobs {
		keys[n] = j.Key
	}
	next := 0
	item := func(body job.Body) {
		if next > 0 {
			l.text(", ")
		}
		l.write(appendTuple(nil, jobs[next], body))
		next++
	}
	l.text("[")
	err := l.hub.queue.EachBody(ctx, keys, func(stored queue.StoredBody) error {
		for jobs[next].Key != stored.Key {
			item(job.Body{}) // it has just ended
		}
		release, err := l.hub.intake.Reserve(ctx, l.share, 3*stored.Size())
		if err != nil {
			return err
		}
		defer release()
		body, err := stored.Read()
		if err != nil {
			l.hub.log().Error("a job's body cannot be read", "job", stored.Key, "error", err)
		}
		item(body)
		return l.err
	})
	for err == nil && next < len(jobs) {
		item(job.Body{})
	}
	l.text("]")
	return err
}

// answer sends the list, or what went wrong with it.
func (l *listing) answer(w http.ResponseWriter, r *http.Request, err error) {
	if err = cmp.Or(err, l.err); err != nil {
		l.hub.refuseBody(w, r, l.share, smallBody, err)
		return
	}
	body := l.buffer.Take()
	if unchanged(w, r, l.sum.Sum(nil)) {
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("Content-Length", strconv.FormatInt(body.Size(), 10))
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(w, body.Reader()) // the visitor may be gone
}
