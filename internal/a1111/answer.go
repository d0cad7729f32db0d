package a1111

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// listRest is the list in what a node shows that has the answer without its pictures, as
// one JSON text.
const listRest = "sdapi"

// maxAnswer bounds an answer of a server, and one that is put together again, in bytes.
const maxAnswer = 256 << 20

// ErrAnswer means that what a job shows is no answer of an A1111 server.
var ErrAnswer = errors.New("a1111: the job shows no answer of A1111's API")

// Answer puts the answer of A1111's API together again. output is what the node [JobNode] of
// class shows, as in the history; open opens a picture that it names, an object with
// filename, subfolder and type. The error is [ErrAnswer] or that of open.
func Answer(class string, output *pyjson.Object, open func(file *pyjson.Object) (io.ReadCloser, error)) (*pyjson.Object, error) {
	rest := output.Array(listRest)
	if len(rest) == 0 {
		return nil, ErrAnswer
	}
	text, _ := rest[0].(pyjson.String)
	v, err := pyjson.Parse([]byte(text))
	parts, ok := v.(*pyjson.Object)
	if err != nil || !ok {
		return nil, ErrAnswer
	}
	pictures := pyjson.Array{}
	room := int64(maxAnswer)
	for _, v := range output.Array("images") {
		file, ok := v.(*pyjson.Object)
		if !ok {
			return nil, ErrAnswer
		}
		text, err := encoded(file, open, room)
		if err != nil {
			return nil, err
		}
		room -= int64(len(text))
		pictures = append(pictures, pyjson.String(text))
	}
	answer := &pyjson.Object{}
	switch class {
	case ClassTxt2Img, ClassImg2Img, ClassExtraBatch:
		answer.Set("images", pictures)
	case ClassExtraSingle:
		answer.Set("image", pyjson.Null{})
		if len(pictures) > 0 {
			answer.Set("image", pictures[0])
		}
	}
	for key, v := range parts.All() {
		answer.Set(key, v)
	}
	return answer, nil
}

// encoded reads a picture that may have room bytes in base64.
func encoded(file *pyjson.Object, open func(file *pyjson.Object) (io.ReadCloser, error), room int64) (string, error) {
	content, err := open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = content.Close() }()
	most := room / 4 * 3
	data, err := io.ReadAll(io.LimitReader(content, most+1))
	if err != nil {
		return "", err
	}
	if int64(len(data)) > most {
		return "", fmt.Errorf("%w: its pictures are too large", ErrAnswer)
	}
	return base64.StdEncoding.EncodeToString(data), nil
}
