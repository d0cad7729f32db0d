package a1111

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// listRest is the list in what a node shows that has the answer without its pictures, as
	// one JSON text.
	listRest = "sdapi"
	// refusalKey is the member of an error message that has the answer of a server as it came.
	refusalKey = "a1111_answer"
)

// maxAnswer bounds an answer of a server, in bytes.
const maxAnswer = 256 << 20

// ErrAnswer means that what a job shows is no answer of an A1111 server.
var ErrAnswer = errors.New("a1111: the job shows no answer of A1111's API")

// Answer is the answer of A1111's API to a request.
type Answer struct {
	class string
	// Rest is the answer without its pictures.
	Rest *pyjson.Object
	// Pictures name its pictures: objects with filename, subfolder and type.
	Pictures []*pyjson.Object
}

// ReadAnswer reads the answer that the node [JobNode] of class shows, as in the history. The
// error is [ErrAnswer].
func ReadAnswer(class string, output *pyjson.Object) (Answer, error) {
	a := Answer{class: class}
	rest := output.Array(listRest)
	if len(rest) == 0 {
		return a, ErrAnswer
	}
	text, _ := rest[0].(pyjson.String)
	v, err := pyjson.Parse([]byte(text))
	var ok bool
	if a.Rest, ok = v.(*pyjson.Object); err != nil || !ok {
		return a, ErrAnswer
	}
	for _, v := range output.Array("images") {
		file, ok := v.(*pyjson.Object)
		if !ok {
			return a, ErrAnswer
		}
		a.Pictures = append(a.Pictures, file)
	}
	return a, nil
}

// NoPictures is the answer for a request that was ended before its first picture was there.
// The error is [ErrAnswer] for a class whose answers are no pictures.
func NoPictures(class string) (Answer, error) {
	if class != ClassTxt2Img && class != ClassImg2Img {
		return Answer{}, ErrAnswer
	}
	info := pyjson.Marshal(dict("prompt", pyjson.String(""), "all_prompts", pyjson.Array{}, "seed", pyjson.Int(-1), "all_seeds", pyjson.Array{}, "infotexts", pyjson.Array{}))
	return Answer{class: class, Rest: dict("parameters", &pyjson.Object{}, "info", pyjson.String(info))}, nil
}

// Hide leaves the pictures out, as A1111 does where send_images is false.
func (a *Answer) Hide() {
	a.Pictures = nil
	if parameters := a.Rest.Object("parameters"); parameters != nil {
		parameters.Set("send_images", pyjson.Bool(false))
	}
}

// frame is the JSON of the answer around the pictures: what is before the first one, between
// each two, and after the last.
func (a Answer) frame() (before, between, after string) {
	rest := string(pyjson.Strict(pyjson.Marshal(a.Rest)))
	join := ", "
	if a.Rest.Len() == 0 {
		join = ""
	}
	switch a.class {
	case ClassTxt2Img, ClassImg2Img, ClassExtraBatch:
		if len(a.Pictures) == 0 {
			return `{"images": []` + join + rest[1:], "", ""
		}
		return `{"images": ["`, `", "`, `"]` + join + rest[1:]
	case ClassExtraSingle:
		if len(a.Pictures) == 0 {
			return `{"image": null` + join + rest[1:], "", ""
		}
		return `{"image": "`, "", `"` + join + rest[1:]
	}
	return rest, "", ""
}

// shown are the pictures that are in the answer.
func (a Answer) shown() int {
	switch a.class {
	case ClassTxt2Img, ClassImg2Img, ClassExtraBatch:
		return len(a.Pictures)
	case ClassExtraSingle:
		return min(len(a.Pictures), 1)
	}
	return 0
}

// Length is that of the answer in bytes; size is that of a picture by its place.
func (a Answer) Length(size func(place int) int64) int64 {
	before, between, after := a.frame()
	total := int64(len(before) + len(after))
	for n := range a.shown() {
		if n > 0 {
			total += int64(len(between))
		}
		total += (size(n) + 2) / 3 * 4
	}
	return total
}

// Write writes the answer; open opens a picture by its place. It holds no picture in memory.
// The error is that of open, of reading or of writing.
func (a Answer) Write(w io.Writer, open func(place int) (io.ReadCloser, error)) error {
	before, between, after := a.frame()
	if _, err := io.WriteString(w, before); err != nil {
		return err
	}
	for n := range a.shown() {
		if n > 0 {
			if _, err := io.WriteString(w, between); err != nil {
				return err
			}
		}
		if err := writePicture(w, n, open); err != nil {
			return fmt.Errorf("a1111: picture %d: %w", n, err)
		}
	}
	_, err := io.WriteString(w, after)
	return err
}

func writePicture(w io.Writer, place int, open func(place int) (io.ReadCloser, error)) error {
	content, err := open(place)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	out := base64.NewEncoder(base64.StdEncoding, w)
	if _, err := io.Copy(out, content); err != nil {
		return err
	}
	return out.Close()
}

// Refusal is the answer by which a server has refused the request of a job, with its status:
// data is that of the message execution_error. It is false for an error of another kind, and for an answer
// that is too long to be repeated.
func Refusal(data *pyjson.Object) (status int, answer *pyjson.Object, ok bool) {
	refusal := data.Object(refusalKey)
	v, _ := refusal.Get("status")
	n, _ := v.(pyjson.Number)
	code, _ := n.Int64()
	answer = refusal.Object("answer")
	known := answer != nil && code >= http.StatusBadRequest && code < 600
	return int(code), answer, known && len(pyjson.Marshal(answer)) <= maxError
}
