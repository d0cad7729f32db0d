package comfy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// appendTuple writes a queue item: [number, id, graph, extra_data, outputs].
// Strict clients unpack exactly these five.
func appendTuple(dst []byte, j job.Job, body job.Body) []byte {
	dst = append(dst, '[')
	dst = append(dst, j.Number...)
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
	shared

	tenant string
	share  string
	buffer *intake.Buffer
	// part is written to buffer when it is long enough.
	part []byte
	// sum is of what was written, unless tag is known beforehand.
	sum hash.Hash
	tag []byte
	// broken says that something could not be read, so that tag is not this answer's.
	broken bool
	err    error // the first one
}

// partSize is how much of a listing is written to its buffer at a time, in bytes.
const partSize = 64 << 10

// newListing begins a listing. tag identifies its content; with nil it is found by
// reading all of it.
func (l lists) newListing(a api.Requester, tag []byte) *listing {
	return &listing{
		shared: l.shared, tenant: a.Tenant, share: a.Share(), buffer: l.Intake.NewBuffer(a.Share()), sum: sha256.New(), tag: tag,
	}
}

func (l *listing) close() { l.buffer.Take().Close() }

// write adds whole tokens of JSON.
func (l *listing) write(p []byte) {
	l.part = append(l.part, pyjson.Strict(p)...)
	if len(l.part) >= partSize {
		l.flush()
	}
}

func (l *listing) flush() {
	if l.err == nil {
		if l.tag == nil {
			l.sum.Write(l.part)
		}
		_, l.err = l.buffer.Write(l.part)
	}
	l.part = l.part[:0]
}

func (l *listing) text(s string) { l.write([]byte(s)) }

// tuples writes a JSON list of queue items, with one body in memory at a time.
// A job whose body is gone has just ended: it is in the history by now, and has
// no place here.
func (l *listing) tuples(ctx context.Context, jobs []job.Job) error {
	keys := make([]string, len(jobs))
	for n, j := range jobs {
		keys[n] = j.Key
	}
	separator := ""
	count := 0
	var tuple []byte
	l.text("[")
	err := l.hub().Jobs.EachBody(ctx, l.tenant, keys, func(stored view.StoredBody) error {
		release, err := l.Intake.Reserve(ctx, l.share, 3*stored.Size())
		if err != nil {
			return err
		}
		defer release()
		body, err := stored.Read()
		if err != nil {
			l.Log().Error("a job's body cannot be read", "job", stored.Key, "error", err)
			l.broken = true
		}
		for jobs[0].Key != stored.Key { // the bodies come in the order of the keys
			jobs = jobs[1:]
		}
		l.text(separator)
		tuple = appendTuple(tuple[:0], jobs[0], body)
		l.write(tuple)
		separator = ", "
		count++
		return l.err
	})
	l.broken = l.broken || count < len(keys)
	l.text("]")
	return err
}

// digest identifies the content.
func (l *listing) digest() []byte {
	if l.tag != nil {
		return l.tag
	}
	return l.sum.Sum(nil)
}

// answer sends the list, or what went wrong with it.
func (l *listing) answer(w http.ResponseWriter, r *http.Request, err error) {
	l.flush()
	if err = cmp.Or(err, l.err); err != nil {
		l.RefuseBody(w, r, l.share, api.SmallBody, err)
		return
	}
	body := l.buffer.Take()
	switch {
	case l.broken && l.tag != nil:
		w.Header().Set("Cache-Control", "no-cache")
	case api.Unchanged(w, r, l.digest()):
		return
	}
	writeJSONBody(w, body)
}

// writeJSONBody sends an answer that was built in a buffer.
func writeJSONBody(w http.ResponseWriter, body *intake.Body) {
	header := w.Header()
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("Content-Length", strconv.FormatInt(body.Size(), 10))
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(w, body.Reader()) // the visitor may be gone
}
