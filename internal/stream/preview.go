package stream

import (
	"bytes"
	"encoding/binary"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Event types of binary frames: the first four bytes, big-endian.
const (
	eventImage         = 1 // followed by 1 (JPEG) or 2 (PNG), then the image
	eventImageMetadata = 4 // followed by the length of a JSON object, the object, the image
)

// Image formats in a frame of event type 1.
const (
	formatJPEG = 1
	formatPNG  = 2
)

var pngMagic = []byte("\x89PNG\r\n\x1a\n")

// imageEvent returns the event type of a frame that carries an image, 0 for any
// other frame. Only images of kinds Preview and Result may be converted: custom
// nodes use the same event types for other data.
func imageEvent(f *frame, data []byte) uint32 {
	if !f.binary || f.kind != Preview && f.kind != Result || len(data) < 8 {
		return 0
	}
	if event := binary.BigEndian.Uint32(data); event == eventImage || event == eventImageMetadata {
		return event
	}
	return 0
}

// withoutMetadata converts event type 4 to type 1, with the same image bytes. ok is
// false if data cannot be converted.
func withoutMetadata(data []byte) (out []byte, ok bool) {
	if len(data) < 8 || binary.BigEndian.Uint32(data) != eventImageMetadata {
		return nil, false
	}
	length := binary.BigEndian.Uint32(data[4:])
	if uint64(length) > uint64(len(data)-8) {
		return nil, false
	}
	image := data[8+length:]
	out = make([]byte, 8, 8+len(image))
	binary.BigEndian.PutUint32(out, eventImage)
	binary.BigEndian.PutUint32(out[4:], imageFormat(data[8:8+length], image))
	return append(out, image...), true
}

// imageFormat returns the format number of an image, from its metadata or else from
// its first bytes.
func imageFormat(metadata, image []byte) uint32 {
	if v, err := pyjson.Parse(metadata); err == nil {
		if o, ok := v.(*pyjson.Object); ok {
			switch o.String("image_type") {
			case "image/jpeg":
				return formatJPEG
			case "image/png":
				return formatPNG
			}
		}
	}
	if bytes.HasPrefix(image, pngMagic) {
		return formatPNG
	}
	return formatJPEG
}

// withMetadata converts event type 1 to type 4, with the same image bytes. All that is known about
// its origin is the node.
func withMetadata(data []byte, prompt, node string) (out []byte, ok bool) {
	if len(data) < 8 || binary.BigEndian.Uint32(data) != eventImage {
		return nil, false
	}
	var kind string
	switch binary.BigEndian.Uint32(data[4:]) {
	case formatJPEG:
		kind = "image/jpeg"
	case formatPNG:
		kind = "image/png"
	default:
		return nil, false
	}
	metadata := pyjson.Marshal(pyjson.NewObject(
		pyjson.Member{Key: "node_id", Value: pyjson.String(node)},
		pyjson.Member{Key: "prompt_id", Value: pyjson.String(prompt)},
		pyjson.Member{Key: "display_node_id", Value: pyjson.String(node)},
		pyjson.Member{Key: "parent_node_id", Value: pyjson.Null{}},
		pyjson.Member{Key: "real_node_id", Value: pyjson.String(node)},
		pyjson.Member{Key: "image_type", Value: pyjson.String(kind)},
	))
	out = make([]byte, 8, len(metadata)+len(data))
	binary.BigEndian.PutUint32(out, eventImageMetadata)
	binary.BigEndian.PutUint32(out[4:], uint32(len(metadata)))
	out = append(out, metadata...)
	return append(out, data[8:]...), true
}

// outgoing is a message in the form that one socket is sent.
type outgoing struct {
	binary bool
	data   []byte
}

// adapter gives the images of one socket the form that its client asked for. The
// forms also differ in order: ComfyUI sends type 4 before the `progress` of the
// same step and type 1 after it, so a message may have to wait for the next one.
// The zero adapter is ready to use.
type adapter struct {
	late *outgoing
	// node is the node of late, if late is a progress message.
	node string
	// old means that the instance running this prompt sends type 1, so that a
	// progress message has to wait for its image.
	old    bool
	prompt string
}

// adapt returns what to write now. data is the content of f.
func (a *adapter) adapt(f *frame, data []byte, metadata bool) (out []outgoing) {
	if f.prompt != a.prompt {
		a.prompt, a.old = f.prompt, false
	}
	whole := outgoing{binary: f.binary, data: data}
	switch imageEvent(f, data) {
	case eventImageMetadata:
		out = a.flush()
		if converted, ok := withoutMetadata(data); ok && !metadata {
			a.late = &outgoing{binary: true, data: converted}
			return out
		}
		return append(out, whole)
	case eventImage:
		if !metadata {
			return append(a.flush(), whole)
		}
		a.old = true
		converted, ok := withMetadata(data, f.prompt, f.node)
		if !ok {
			return append(a.flush(), whole)
		}
		out = append(out, outgoing{binary: true, data: converted})
		if a.late != nil && a.node != "" && a.node != f.node {
			return append(a.flush(), out...)
		}
		return append(out, a.flush()...)
	}
	if f.kind == Progress && metadata && a.old {
		out = a.flush()
		a.late, a.node = &whole, f.node
		return out
	}
	if f.kind == Progress {
		return append([]outgoing{whole}, a.flush()...)
	}
	return append(a.flush(), whole)
}

// flush returns the message that waits for the next one, if any.
func (a *adapter) flush() (out []outgoing) {
	if a.late != nil {
		out = append(out, *a.late)
	}
	a.late, a.node = nil, ""
	return out
}
