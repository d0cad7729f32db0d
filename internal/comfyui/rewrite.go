package comfyui

// RewriteID returns a message with the prompt id from replaced by to, where
// messages have ids: in data.prompt_id, and in each node of progress_state.
// All other bytes stay. A message without that id is returned as it is, not
// copied; so is one that cannot be read.
func RewriteID(message []byte, from, to string) []byte {
	if from == to {
		return message
	}
	r := rewriter{scanner: scanner{data: message}, from: from, to: quoted(to)}
	ok := r.object(func(key string) bool {
		if key != "data" || r.peek() != '{' {
			return r.skip()
		}
		return r.object(func(key string) bool {
			switch {
			case key == "prompt_id":
				return r.id()
			case key == "nodes" && r.peek() == '{':
				return r.object(func(string) bool { return r.idOfObject() })
			}
			return r.skip()
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
	r := rewriter{scanner: scanner{data: b.Metadata}, from: from, to: quoted(to)}
	ok = r.idOfObject()
	if !ok || len(r.edits) == 0 {
		return frame
	}
	return NewPreviewMetadata(r.result(ok), b.Image)
}

// rewriter collects the edits that replace one prompt id.
type rewriter struct {
	scanner
	from  string
	to    []byte // quoted
	edits []edit
}

// id steps over a value and notes it if it is the id.
func (r *rewriter) id() bool {
	place, ok := r.value()
	if ok && r.data[place.from] == '"' && text(place.of(r.data)) == r.from {
		r.edits = append(r.edits, edit{place, r.to})
	}
	return ok
}

// idOfObject steps over a value and notes its member prompt_id.
func (r *rewriter) idOfObject() bool {
	if r.peek() != '{' {
		return r.skip()
	}
	return r.object(func(key string) bool {
		if key == "prompt_id" {
			return r.id()
		}
		return r.skip()
	})
}

func (r *rewriter) result(ok bool) []byte {
	if !ok {
		return r.data
	}
	return splice(r.data, r.edits)
}
