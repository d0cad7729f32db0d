package comfyui

import "github.com/comfyhub/comfyhub/internal/pyjson"

// RewriteID returns a message with the prompt id from replaced by to, where
// messages have ids: in data.prompt_id, and in each node of progress_state.
// All other bytes stay. A message without that id is returned as it is, not
// copied; so is one that cannot be read.
func RewriteID(message []byte, from, to string) []byte {
	if from == to {
		return message
	}
	r := rewriter{Scanner: pyjson.Scanner{Data: message}, from: from, to: quoted(to)}
	ok := r.Object(func(key string) bool {
		if key != "data" || r.Peek() != '{' {
			return r.Skip()
		}
		return r.Object(func(key string) bool {
			switch {
			case key == "prompt_id":
				return r.id()
			case key == "nodes" && r.Peek() == '{':
				return r.Object(func(string) bool { return r.idOfObject() })
			}
			return r.Skip()
		})
	})
	return r.result(ok)
}

// RewritePreview does the same with a binary frame. Only those with metadata
// have an id; the length in their header is put right.
func RewritePreview(frame []byte, from, to string) []byte {
	b, ok := ParseBinary(frame)
	if !ok || b.Event != EventPreviewMetadata || from == to {
		return frame
	}
	r := rewriter{Scanner: pyjson.Scanner{Data: b.Metadata}, from: from, to: quoted(to)}
	ok = r.idOfObject()
	if !ok || len(r.edits) == 0 {
		return frame
	}
	return NewPreviewMetadata(r.result(ok), b.Image)
}

// rewriter collects the edits that replace one prompt id.
type rewriter struct {
	pyjson.Scanner
	from  string
	to    []byte // quoted
	edits []pyjson.Edit
}

// id steps over a value and notes it if it is the id.
func (r *rewriter) id() bool {
	place, ok := r.Value()
	if ok && r.Data[place.From] == '"' && pyjson.Unquote(place.Of(r.Data)) == r.from {
		r.edits = append(r.edits, pyjson.Edit{Span: place, With: r.to})
	}
	return ok
}

// idOfObject steps over a value and notes its member prompt_id.
func (r *rewriter) idOfObject() bool {
	if r.Peek() != '{' {
		return r.Skip()
	}
	return r.Object(func(key string) bool {
		if key == "prompt_id" {
			return r.id()
		}
		return r.Skip()
	})
}

func (r *rewriter) result(ok bool) []byte {
	if !ok {
		return r.Data
	}
	return pyjson.Splice(r.Data, r.edits)
}
